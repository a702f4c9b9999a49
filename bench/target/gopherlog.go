package target

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits of starting and stopping a cluster.
const (
	startTimeout = 30 * time.Second
	stopGrace    = 10 * time.Second
)

// GopherlogConfig describes the cluster that NewGopherlog will start.
type GopherlogConfig struct {
	Server   string            // path of the server binary
	Nodes    int               // at least 1
	Dir      string            // data directories; made if missing
	Logs     string            // what the nodes print goes to <Logs>node<N>.log; "" means Dir
	Settings map[string]string // broker defaults, passed with -set
	// Control opens the test-control port of every node, for planted faults.
	Control bool
}

// Gopherlog launches real server processes on 127.0.1.N, one address a node,
// so that one packet-filter rule per pair of nodes is enough to part them.
type Gopherlog struct {
	cfg   GopherlogConfig
	token string
	http  *http.Client

	mu    sync.Mutex
	nodes []*glNode
	runs  []run // every process that was started
}

// run is one life of a node.
type run struct {
	node *glNode
	proc *process
}

type glNode struct {
	Node
	args    []string
	control string
	proc    *process
}

// NewGopherlog checks the configuration and picks the ports; nothing runs yet.
func NewGopherlog(cfg GopherlogConfig) (*Gopherlog, error) {
	if cfg.Nodes < 1 || cfg.Nodes > 9 {
		return nil, fmt.Errorf("target.nodes is %d: give 1 to 9", cfg.Nodes)
	}
	if _, err := exec.LookPath(cfg.Server); err != nil {
		return nil, fmt.Errorf("the server binary %q cannot be run: %w; build it with `make build` or name it with -server", cfg.Server, err)
	}
	if cfg.Logs == "" {
		cfg.Logs = cfg.Dir + string(filepath.Separator)
	}
	t := &Gopherlog{cfg: cfg, http: &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	t.token = hex.EncodeToString(secret)
	ports, err := freePorts(cfg.Nodes, 4)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range cfg.Nodes {
		peers = append(peers, fmt.Sprintf("%d@%s:%d", i+1, nodeHost(i+1), ports[1]))
	}
	for i := range cfg.Nodes {
		t.nodes = append(t.nodes, t.newNode(i+1, ports, strings.Join(peers, ",")))
	}
	return t, nil
}

func nodeHost(id int) string { return fmt.Sprintf("127.0.1.%d", id) }

func (t *Gopherlog) newNode(id int, ports []int, peers string) *glNode {
	host := nodeHost(id)
	at := func(i int) string { return fmt.Sprintf("%s:%d", host, ports[i]) }
	n := &glNode{Node: Node{
		ID: id, Client: at(0), Host: host, Admin: at(2), State: Down,
		Log:  fmt.Sprintf("%snode%d.log", t.cfg.Logs, id),
		Data: filepath.Join(t.cfg.Dir, fmt.Sprintf("node%d", id)),
	}}
	n.args = []string{t.cfg.Server, "-id", fmt.Sprint(id), "-addr", at(0), "-rpc", at(1), "-admin", at(2), "-data", n.Data}
	if t.cfg.Nodes > 1 {
		n.args = append(n.args, "-peers", peers)
	}
	if t.cfg.Control {
		n.control = at(3)
		n.args = append(n.args, "-control", n.control, "-control-token", t.token)
	}
	keys := make([]string, 0, len(t.cfg.Settings))
	for k := range t.cfg.Settings {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		n.args = append(n.args, "-set", k+"="+t.cfg.Settings[k])
	}
	return n
}

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

// System returns "gopherlog".
func (t *Gopherlog) System() string { return "gopherlog" }

// Version asks the server binary.
func (t *Gopherlog) Version() string {
	out, err := exec.Command(t.cfg.Server, "-version").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// Start launches all nodes at once and returns when each answers /readyz.
func (t *Gopherlog) Start(ctx context.Context) error {
	if err := os.MkdirAll(t.cfg.Dir, 0o755); err != nil {
		return err
	}
	t.mu.Lock()
	nodes := append([]*glNode(nil), t.nodes...)
	t.mu.Unlock()
	for _, n := range nodes {
		if err := t.launch(n); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, n := range nodes {
		if err := t.awaitReady(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (t *Gopherlog) launch(n *glNode) error {
	p, err := startProcess(behindClient(n.args), n.Log)
	if err != nil {
		return err
	}
	t.mu.Lock()
	n.proc, n.PID, n.State = p, p.pid(), Running
	t.runs = append(t.runs, run{n, p})
	t.mu.Unlock()
	return nil
}

// brokerNice is the scheduling priority of the brokers. They share the machine
// with the load client, which must keep its schedule: a record that is sent late
// says nothing about the broker. What the broker loses by it is in its latency.
const brokerNice = 10

// behindClient runs a command line at that priority, where nice is installed.
func behindClient(args []string) []string {
	nice, err := exec.LookPath("nice")
	if err != nil {
		return args
	}
	return append([]string{nice, "-n", strconv.Itoa(brokerNice)}, args...)
}

func (t *Gopherlog) awaitReady(ctx context.Context, n *glNode) error {
	t.mu.Lock()
	p := n.proc
	t.mu.Unlock()
	return waitFor(ctx, fmt.Sprintf("node %d did not become ready; see %s", n.ID, n.Log), func(ctx context.Context) (bool, error) {
		if gone, err := p.exited(); gone {
			return true, fmt.Errorf("the process ended: %v: %s", err, lastLine(n.Log))
		}
		return false, t.get(ctx, n.Admin, "/readyz")
	})
}

func (t *Gopherlog) get(ctx context.Context, admin, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+path, nil)
	if err != nil {
		return err
	}
	res, err := t.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 512))
		return fmt.Errorf("%s answered %d: %s", path, res.StatusCode, bytes.TrimSpace(body))
	}
	return nil
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
func (t *Gopherlog) Stop(ctx context.Context) error {
	t.mu.Lock()
	var running []*process
	for _, n := range t.nodes {
		if n.proc != nil {
			running = append(running, n.proc)
		}
		n.proc, n.PID, n.State = nil, 0, Down
	}
	t.mu.Unlock()
	grace := stopGrace
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
func (t *Gopherlog) Deaths() []string {
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
func (t *Gopherlog) Bootstrap() []string {
	var out []string
	for _, n := range t.Nodes() {
		out = append(out, n.Client)
	}
	return out
}

// Nodes returns a copy of what is known of each node.
func (t *Gopherlog) Nodes() []Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Node
	for _, n := range t.nodes {
		out = append(out, n.Node)
	}
	return out
}

func (t *Gopherlog) find(id int, want NodeState) (*glNode, *process, error) {
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
func (t *Gopherlog) Kill(_ context.Context, id int) error {
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

func (t *Gopherlog) setState(n *glNode, s NodeState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.State = s
	if s == Down {
		n.PID, n.proc = 0, nil
	}
}

// Restart starts a killed node again on its data.
func (t *Gopherlog) Restart(ctx context.Context, id int) error {
	n, _, err := t.find(id, Down)
	if err != nil {
		return err
	}
	if err := t.launch(n); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return t.awaitReady(ctx, n)
}

// Pause stops a node with SIGSTOP.
func (t *Gopherlog) Pause(id int) error { return t.toggle(id, Running, Paused, syscall.SIGSTOP) }

// Resume continues a paused node.
func (t *Gopherlog) Resume(id int) error { return t.toggle(id, Paused, Running, syscall.SIGCONT) }

func (t *Gopherlog) toggle(id int, from, to NodeState, sig syscall.Signal) error {
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

// Control posts body as JSON to the node's test-control port.
func (t *Gopherlog) Control(ctx context.Context, id int, path string, body any) error {
	n, _, err := t.find(id, Running)
	if err != nil {
		return err
	}
	if n.control == "" {
		return fmt.Errorf("node %d runs without a test-control port: %w", id, ErrUnsupported)
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.control+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+t.token)
	res, err := t.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		msg, _ := io.ReadAll(io.LimitReader(res.Body, 512))
		return fmt.Errorf("control port of node %d, %s: %d %s", id, path, res.StatusCode, bytes.TrimSpace(msg))
	}
	return nil
}
