package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"gopherlog/cmd/internal/cli"
)

// devFlags are the flags of a cluster for trying things out.
type devFlags struct {
	Addr     string            `help:"Client address of the first node; the next ones take the following hundreds. Default: ${default}." default:"127.0.0.1:9092" placeholder:"HOST:PORT"`
	Nodes    int               `help:"How many nodes." default:"3"`
	Data     string            `help:"Directory that holds one data directory per node. Default: ${default}." default:"./data-dev" placeholder:"DIR"`
	Set      map[string]string `help:"As for one node, for all of them." placeholder:"KEY=VALUE"`
	LogLevel string            `help:"Least level that is logged: ${enum}." enum:"debug,info,warn,error" default:"warn"`
	Config   string            `help:"YAML file whose keys are these flags' names." placeholder:"FILE"`
}

const (
	maxDevNodes = 9
	devStride   = 100 // between the ports of two nodes
)

// devNode is one child process.
type devNode struct {
	id                 int
	client, rpc, admin string
	cmd                *exec.Cmd
}

// Run starts the nodes as child processes and stops them all when the context ends, or when one of them ends.
func (f *devFlags) Run(s streams, stop context.Context) error {
	nodes, err := f.plan()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return cli.Environment(fmt.Errorf("the server cannot find its own program: %w", err))
	}
	out := &lines{w: s.out}
	ended := make(chan devExit, len(nodes))
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, n := range nodes {
		if err := n.start(f, self, nodes, out); err != nil {
			stopAll(nodes)
			return cli.Environment(fmt.Errorf("node %d cannot be started: %w", n.id, err))
		}
		wg.Go(func() { ended <- devExit{n.id, n.cmd.Wait()} })
	}
	f.announce(s, nodes)
	select {
	case <-stop.Done():
		stopAll(nodes)
		return nil
	case e := <-ended:
		stopAll(nodes)
		return cli.Environment(fmt.Errorf("node %d ended (%v), so all were stopped; its lines above say why", e.id, e.err))
	}
}

type devExit struct {
	id  int
	err error
}

// plan gives each node its addresses.
func (f *devFlags) plan() ([]*devNode, error) {
	host, port, err := net.SplitHostPort(f.Addr)
	first, perr := strconv.Atoi(port)
	switch {
	case f.Nodes < 1 || f.Nodes > maxDevNodes:
		return nil, cli.Usage(fmt.Errorf("-nodes is %d: give 1 to %d", f.Nodes, maxDevNodes))
	case err != nil || perr != nil || first < 1 || first+devStride*f.Nodes > 65535:
		return nil, cli.Usage(fmt.Errorf("-addr is %q: give HOST:PORT with a port that leaves room for the other nodes, as in 127.0.0.1:9092", f.Addr))
	}
	var nodes []*devNode
	for i := range f.Nodes {
		at := func(k int) string { return net.JoinHostPort(host, strconv.Itoa(first+devStride*i+k)) }
		nodes = append(nodes, &devNode{id: i + 1, client: at(0), rpc: at(1), admin: at(2)})
	}
	return nodes, nil
}

func (n *devNode) start(f *devFlags, self string, all []*devNode, out *lines) error {
	var peers []string
	for _, p := range all {
		peers = append(peers, fmt.Sprintf("%d@%s", p.id, p.rpc))
	}
	args := []string{"-id", strconv.Itoa(n.id), "-addr", n.client, "-rpc", n.rpc, "-admin", n.admin,
		"-data", filepath.Join(f.Data, strconv.Itoa(n.id)), "-peers", strings.Join(peers, ","), "-log-level", f.LogLevel}
	for k, v := range f.Set {
		args = append(args, "-set", k+"="+v)
	}
	n.cmd = exec.Command(self, args...)
	n.cmd.Env = withoutSettings(os.Environ())
	n.cmd.SysProcAttr = childAttributes()
	w := &prefixed{out: out, prefix: fmt.Sprintf("node %d | ", n.id)}
	n.cmd.Stdout, n.cmd.Stderr = w, w
	return n.cmd.Start()
}

// withoutSettings drops GOPHERLOG_* variables, which would apply to each node alike.
func withoutSettings(env []string) (out []string) {
	for _, kv := range env {
		if !strings.HasPrefix(kv, cli.EnvPrefix+"_") {
			out = append(out, kv)
		}
	}
	return out
}

func (f *devFlags) announce(s streams, nodes []*devNode) {
	var boot []string
	for _, n := range nodes {
		boot = append(boot, n.client)
		fmt.Fprintf(s.out, "node %d: clients at %s, HTTP at http://%s/readyz, data in %s\n", n.id, n.client, n.admin, filepath.Join(f.Data, strconv.Itoa(n.id)))
	}
	fmt.Fprintf(s.out, "bootstrap servers: %s\nCtrl-C stops all nodes\n", strings.Join(boot, ","))
}

func stopAll(nodes []*devNode) {
	for _, n := range nodes {
		if n.cmd != nil && n.cmd.Process != nil {
			_ = n.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
		}
	}
}

// lines lets several processes share one writer, line by line.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

// prefixed marks each line with its origin.
type prefixed struct {
	out    *lines
	prefix string
	rest   []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		n, line, err := bufio.ScanLines(p.rest, false)
		if n == 0 || err != nil {
			return len(b), err
		}
		p.out.mu.Lock()
		_, err = fmt.Fprintf(p.out.w, "%s%s\n", p.prefix, line)
		p.out.mu.Unlock()
		if p.rest = p.rest[n:]; err != nil {
			return len(b), err
		}
	}
}
