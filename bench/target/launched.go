package target

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// launched is a cluster whose nodes are children of this process.
type launched struct {
	dir      string // made by Start
	nice     int    // scheduling priority of the nodes
	patience time.Duration
	grace    time.Duration                     // between asking a node to end and forcing it
	ready    func(context.Context, Node) error // asks a node once

	mu    sync.Mutex
	nodes []*node
	runs  []run // every process that was started
}

// node is one broker and the command line that starts it. mu of launched guards
// what changes: state, pid and process.
type node struct {
	Node
	args    []string
	control string // address of the test-control port; "" without
	proc    *process
}

// run is one life of a node.
type run struct {
	node *node
	proc *process
}

func nodeHost(id int) string { return fmt.Sprintf("127.0.1.%d", id) }

// freePorts returns `count` ports that are free on the loopback addresses of
// all nodes right now.
func freePorts(nodes, count int) ([]int, error) {
	var ports []int
	for tries := 0; len(ports) < count && tries < 200; tries++ {
		l, err := net.Listen("tcp", nodeHost(1)+":0")
		if err != nil {
			return nil, fmt.Errorf("no free port on %s: %w", nodeHost(1), err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		free := true
		for id := 2; id <= nodes && free; id++ {
			other, err := net.Listen("tcp", fmt.Sprintf("%s:%d", nodeHost(id), port))
			if free = err == nil; free {
				other.Close()
			}
		}
		l.Close()
		if free && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	if len(ports) < count {
		return nil, fmt.Errorf("found only %d of %d ports that are free on every node address", len(ports), count)
	}
	return ports, nil
}

// Start launches all nodes at once and returns when each is ready.
func (t *launched) Start(ctx context.Context) error {
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	t.mu.Lock()
	nodes := append([]*node(nil), t.nodes...)
	t.mu.Unlock()
	for _, n := range nodes {
		if err := t.launch(n); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	for _, n := range nodes {
		if err := t.awaitReady(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (t *launched) launch(n *node) error {
	p, err := startProcess(behindClient(t.nice, n.args), n.Log)
	if err != nil {
		return err
	}
	t.mu.Lock()
	n.proc, n.PID, n.State = p, p.pid(), Running
	t.runs = append(t.runs, run{n, p})
	t.mu.Unlock()
	return nil
}

// behindClient runs a command line at a lower priority, where nice is installed.
// Brokers share the machine with the load client, which must keep its schedule: a
// record that is sent late says nothing about the broker. What the broker loses
// by it is in its latency.
func behindClient(by int, args []string) []string {
	nice, err := exec.LookPath("nice")
	if err != nil || by == 0 {
		return args
	}
	return append([]string{nice, "-n", strconv.Itoa(by)}, args...)
}

func (t *launched) awaitReady(ctx context.Context, n *node) error {
	t.mu.Lock()
	p, told := n.proc, n.Node
	t.mu.Unlock()
	return waitFor(ctx, fmt.Sprintf("node %d did not become ready; see %s", n.ID, n.Log), func(ctx context.Context) (bool, error) {
		if gone, err := p.exited(); gone {
			return true, fmt.Errorf("the process ended: %v: %s", err, lastLine(n.Log))
		}
		return false, t.ready(ctx, told)
	})
}

func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// Stop asks every node for an orderly end at once and forces what remains.
func (t *launched) Stop(ctx context.Context) error {
	t.mu.Lock()
	var running []*process
	for _, n := range t.nodes {
		if n.proc != nil {
			running = append(running, n.proc)
		}
		n.proc, n.PID, n.State = nil, 0, Down
	}
	t.mu.Unlock()
	grace := t.grace
	if ctx.Err() != nil {
		grace = 0
	}
	errs := make(chan error, len(running))
	for _, p := range running {
		go func() { errs <- p.terminate(grace) }()
	}
	var first error
	for range running {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Deaths lists the processes that ended without having been asked to, each with
// the last line that it printed.
func (t *launched) Deaths() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, r := range t.runs {
		if r.proc.endedAlone() {
			_, err := r.proc.exited()
			out = append(out, fmt.Sprintf("node %d ended by itself (%v): %s", r.node.ID, err, lastLine(r.node.Log)))
		}
	}
	return out
}

// Bootstrap lists the client addresses of all nodes.
func (t *launched) Bootstrap() []string {
	var out []string
	for _, n := range t.Nodes() {
		out = append(out, n.Client)
	}
	return out
}

// Nodes returns a copy of what is known of each node.
func (t *launched) Nodes() []Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Node
	for _, n := range t.nodes {
		out = append(out, n.Node)
	}
	return out
}

func (t *launched) find(id int, want NodeState) (*node, *process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id < 1 || id > len(t.nodes) {
		return nil, nil, fmt.Errorf("there is no node %d: the cluster has nodes 1 to %d", id, len(t.nodes))
	}
	n := t.nodes[id-1]
	if n.State != want {
		return nil, nil, fmt.Errorf("node %d is %s, not %s", id, n.State, want)
	}
	return n, n.proc, nil
}

// Kill ends a node with SIGKILL.
func (t *launched) Kill(_ context.Context, id int) error {
	n, p, err := t.find(id, Running)
	if err != nil {
		return err
	}
	if err := p.kill(); err != nil {
		return err
	}
	t.setState(n, Down)
	return nil
}

func (t *launched) setState(n *node, s NodeState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.State = s
	if s == Down {
		n.PID, n.proc = 0, nil
	}
}

// Restart starts a killed node again on its data.
func (t *launched) Restart(ctx context.Context, id int) error {
	n, _, err := t.find(id, Down)
	if err != nil {
		return err
	}
	if err := t.launch(n); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	return t.awaitReady(ctx, n)
}

// Pause stops a node with SIGSTOP.
func (t *launched) Pause(id int) error { return t.toggle(id, Running, Paused, syscall.SIGSTOP) }

// Resume continues a paused node.
func (t *launched) Resume(id int) error { return t.toggle(id, Paused, Running, syscall.SIGCONT) }

func (t *launched) toggle(id int, from, to NodeState, sig syscall.Signal) error {
	n, p, err := t.find(id, from)
	if err != nil {
		return err
	}
	if err := p.signal(sig); err != nil {
		return err
	}
	t.setState(n, to)
	return nil
}
