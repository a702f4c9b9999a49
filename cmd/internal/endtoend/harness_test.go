package endtoend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bin holds the built commands.
var bin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "gopherlog-commands-")
	if err != nil {
		panic(err)
	}
	bin = dir
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/server", "./cmd/mqclient", "./cmd/mqvalidate")
	build.Dir = root()
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// root is the repository's directory.
func root() string { return filepath.Join("..", "..", "..") }

// patience bounds every wait; it is long because machines under load are slow, and it is never slept through.
const patience = 3 * time.Minute

// result is how a command ended.
type result struct {
	out, err string
	code     int
}

// try runs a command to its end.
func try(t *testing.T, stdin string, name string, args ...string) result {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Env = cleanEnv()
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", name, err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// must runs a command that has to succeed and returns what it printed.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	if name == "mqclient" && slices.Contains([]string{"topic", "produce", "consume", "group", "txn"}, args[0]) && !slices.Contains(args, "-timeout") {
		args = append(args, "-timeout", patience.String()) // as answered does
	}
	r := try(t, "", name, args...)
	if r.code != 0 {
		t.Fatalf("%s %s: exit code %d\n%s%s", name, strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// answered runs a client's command that may be refused, and gives the cluster time to say so: its own 15 s may pass on a busy machine.
func answered(t *testing.T, args ...string) result {
	t.Helper()
	return try(t, "", "mqclient", append(args, "-timeout", patience.String())...)
}

func cleanEnv(more ...string) (env []string) {
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GOPHERLOG_") {
			env = append(env, kv)
		}
	}
	return append(env, more...)
}

// process is a server that runs.
type process struct {
	cmd  *exec.Cmd
	log  *output
	done chan struct{}
}

// output collects what a process prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start runs a server until the test ends.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(filepath.Join(bin, "server"), args...), log: &output{}, done: make(chan struct{})}
	p.cmd.Env = cleanEnv(env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is looked at by wait
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("server %s\n%s", strings.Join(args, " "), p.log)
		}
	})
	return p
}

// stop sends the signal and returns the exit code.
func (p *process) stop(t *testing.T, s syscall.Signal) int {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	return p.wait(t)
}

func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("the server has not ended after %v", patience)
		return -1
	}
}

// eventually waits until ok returns nil.
func eventually(t *testing.T, ok func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	t.Fatalf("after %v: %v", patience, err)
}

// ready waits until a node's HTTP port says so.
func ready(t *testing.T, admin string) {
	t.Helper()
	eventually(t, func() error {
		var a struct {
			Ready   bool
			Reasons []string
		}
		resp, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
			return err
		}
		if !a.Ready {
			return fmt.Errorf("not ready: %v", a.Reasons)
		}
		return nil
	})
}

// given are the addresses that freeAddr returned before: the kernel may name a port again that nobody listens on yet.
var given sync.Map

// loopback is an address of this machine that no other process of tests listens at: what is free there stays free until it is used, and
// while its node is down.
func loopback() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255)
}

// freeAddr returns an address that nobody listens on now, another one each time.
func freeAddr(t *testing.T) string {
	t.Helper()
	return freeAddrOf(t, loopback())
}

// freePort returns a port that is free on all addresses of the machine.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddrOf(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func freeAddrOf(t *testing.T, host string) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		l.Close()
		if _, before := given.LoadOrStore(addr, true); !before {
			return addr
		}
	}
}

// one starts a node by itself and waits until it is ready.
func one(t *testing.T, data string, more ...string) (p *process, addr string) {
	t.Helper()
	addr, admin := freeAddr(t), freeAddr(t)
	p = start(t, nil, append([]string{"-addr", addr, "-admin", admin, "-data", data}, more...)...)
	ready(t, admin)
	return p, addr
}
