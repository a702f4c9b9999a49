package target

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// Limits of starting and stopping a cluster.
const (
	startTimeout = time.Minute
	stopGrace    = 10 * time.Second
)

// GopherlogConfig describes the cluster that NewGopherlog will start.
type GopherlogConfig struct {
	Server   string            // path of the server binary
	Nodes    int               // at least 1
	Nice     int               // scheduling priority of the nodes
	Dir      string            // data directories; made if missing
	Logs     string            // what the nodes print goes to <Logs>node<N>.log; "" means Dir
	Settings map[string]string // broker defaults, passed with -set
	// Control opens the test-control port of every node, for planted faults.
	Control bool
}

// Gopherlog launches real server processes on 127.0.1.N, one address a node,
// so that one packet-filter rule per pair of nodes is enough to part them.
type Gopherlog struct {
	*launched
	cfg   GopherlogConfig
	token string
	http  *http.Client
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
	t.launched = &launched{dir: cfg.Dir, nice: cfg.Nice, patience: startTimeout, grace: stopGrace, ready: func(ctx context.Context, n Node) error { return t.get(ctx, n.Admin, "/readyz") }}
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

func (t *Gopherlog) newNode(id int, ports []int, peers string) *node {
	host := nodeHost(id)
	at := func(i int) string { return fmt.Sprintf("%s:%d", host, ports[i]) }
	n := &node{Node: Node{
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

// Control posts body as JSON to the node's test-control port.
func (t *Gopherlog) Control(ctx context.Context, id int, path string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = t.control(ctx, t.http, id, http.MethodPost, path, b)
	return err
}

// Ask reads what the control port of a node tells, for as long as ctx lets it: what a node wrote down may be many megabytes.
func (t *Gopherlog) Ask(ctx context.Context, id int, path string) ([]byte, error) {
	return t.control(ctx, &http.Client{Transport: t.http.Transport}, id, http.MethodGet, path, nil)
}

// maxControlAnswer bounds what a control port may tell.
const maxControlAnswer = 256 << 20

func (t *Gopherlog) control(ctx context.Context, client *http.Client, id int, method, path string, body []byte) ([]byte, error) {
	n, _, err := t.find(id, Running)
	if err != nil {
		return nil, err
	}
	if n.control == "" {
		return nil, fmt.Errorf("node %d runs without a test-control port: %w", id, ErrUnsupported)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.control+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+t.token)
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		msg, _ := io.ReadAll(io.LimitReader(res.Body, 512))
		return nil, fmt.Errorf("control port of node %d, %s: %d %s", id, path, res.StatusCode, bytes.TrimSpace(msg))
	}
	return io.ReadAll(io.LimitReader(res.Body, maxControlAnswer))
}
