package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// patience bounds the wait for anything that has no limit of its own.
const patience = 2 * time.Minute

// cluster is three nodes of the server command. A node's number is its id - 1.
type cluster struct {
	server               string
	dir                  string
	addrs, admins, links []string
	nodes                []*process
}

// process is a child that ends with this one.
type process struct {
	cmd  *exec.Cmd
	out  tail
	done chan struct{}
}

// tail keeps the last bytes that a process printed.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-tailBytes):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}

// newCluster chooses addresses; nothing runs yet.
func newCluster(o options, dir string) (*cluster, error) {
	c := &cluster{server: o.server, dir: dir, nodes: make([]*process, 3)}
	for range c.nodes {
		for _, into := range []*[]string{&c.addrs, &c.admins, &c.links} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			defer l.Close() // all at once, so that no address comes twice
			*into = append(*into, l.Addr().String())
		}
	}
	return c, nil
}

func (c *cluster) start(i int) error {
	var peers []string
	for j, l := range c.links {
		peers = append(peers, fmt.Sprintf("%d@%s", j+1, l))
	}
	p := &process{done: make(chan struct{})}
	p.cmd = exec.Command(c.server, "-id", strconv.Itoa(i+1), "-addr", c.addrs[i], "-rpc", c.links[i], "-admin", c.admins[i], "-pprof",
		"-peers", strings.Join(peers, ","), "-data", filepath.Join(c.dir, strconv.Itoa(i+1)), "-log-level", "warn")
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GOPHERLOG_") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = &p.out, &p.out, childAttr()
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is told by what it printed
	}()
	c.nodes[i] = p
	return nil
}

// kill sends SIGKILL and returns at once.
func (c *cluster) kill(i int) error { return c.nodes[i].cmd.Process.Kill() }

// gone waits until a killed node is reaped.
func (c *cluster) gone(i int) { <-c.nodes[i].done }

// stop kills all nodes: what they wrote is removed next.
func (c *cluster) stop() {
	for _, p := range c.nodes {
		if p != nil {
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
}

// ready waits until a node answers /readyz.
func (c *cluster) ready(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := get(ctx, "http://"+c.admins[i]+"/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-c.nodes[i].done:
			return fmt.Errorf("node %d ended; it printed: %s", i+1, &c.nodes[i].out)
		case <-ctx.Done():
			return fmt.Errorf("node %d is not ready: %w; it printed: %s", i+1, err, &c.nodes[i].out)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(b))
	}
	return b, err
}

func (p *process) proc(name string) string {
	return fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name)
}

// spent is the processor time of a process so far.
func (p *process) spent() (sum time.Duration, err error) {
	b, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		return 0, fmt.Errorf("processor time: %w; it printed: %s", err, &p.out)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	for _, i := range []int{11, 12} { // user and system time, in hundredths of a second
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum, nil
}

// resident is the memory of a process in bytes.
func (p *process) resident() (int64, error) {
	b, err := os.ReadFile(p.proc("status"))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), "\nVmRSS:")
	if f := strings.Fields(rest); ok && len(f) > 0 {
		n, err := strconv.ParseInt(f[0], 10, 64)
		return n << 10, err
	}
	return 0, errors.New("no VmRSS in /proc")
}

// descriptors is how many files and sockets a process has open.
func (p *process) descriptors() (int, error) {
	all, err := os.ReadDir(p.proc("fd"))
	return len(all), err
}
