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
	"strconv"
	"strings"
	"sync"
	"time"
)

// starting bounds the wait for processes, topics and leaders.
const starting = 30 * time.Second

// process is a child that ends with this process.
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

// startProcess runs a command with these open files from descriptor 3 on. A child that reads its standard input sees the end of it when
// this process ends.
func startProcess(path string, env []string, files []*os.File, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GOPHERLOG_") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles = &p.out, &p.out, files
	p.cmd.SysProcAttr = childAttr()
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is told by what it printed
		in.Close()
	}()
	return p, nil
}

// stop kills the process: what it wrote is removed next.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// spent is the processor time of processes so far.
func spent(all []*process) (sum time.Duration, err error) {
	for _, p := range all {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return 0, fmt.Errorf("processor time of %s: %w; it printed: %s", p.cmd.Path, err, &p.out)
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		for _, i := range []int{11, 12} { // user and system time, in hundredths of a second
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum, nil
}

// freeAddr returns a loopback address that nobody listens on.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// servers is a running cluster of the server command.
type servers struct {
	all    []*process
	addrs  []string // where clients connect
	admins []string
	dirs   []string
}

// startServers starts n nodes and waits until all are ready. stop it, also after an error.
func startServers(ctx context.Context, e *env, dir string, n int) (*servers, error) {
	s := &servers{}
	if e.server == "" {
		return s, errors.New("needs the server command: -server PATH")
	}
	var rpcs, peers []string
	for i := range n {
		for _, into := range []*[]string{&s.addrs, &s.admins, &rpcs} {
			a, err := freeAddr()
			if err != nil {
				return s, err
			}
			*into = append(*into, a)
		}
		peers = append(peers, fmt.Sprintf("%d@%s", i+1, rpcs[i]))
		s.dirs = append(s.dirs, fmt.Sprintf("%s/%d", dir, i+1))
	}
	for i := range n {
		args := []string{"-id", fmt.Sprint(i + 1), "-addr", s.addrs[i], "-admin", s.admins[i], "-data", s.dirs[i], "-log-level", "warn"}
		if n > 1 {
			args = append(args, "-rpc", rpcs[i], "-peers", strings.Join(peers, ","))
		}
		if e.profile != "" {
			args = append(args, "-pprof")
		}
		p, err := startProcess(e.server, nil, nil, args...)
		if err != nil {
			return s, err
		}
		s.all = append(s.all, p)
	}
	ctx, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	for i, a := range s.admins {
		for {
			if _, err := get(ctx, "http://"+a+"/readyz"); err == nil {
				break
			} else if ctx.Err() != nil {
				return s, fmt.Errorf("node %d is not ready: %w; it printed: %s", i+1, err, &s.all[i].out)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return s, nil
}

func (s *servers) stop() {
	for _, p := range s.all {
		p.stop()
	}
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(b))
	}
	return string(b), err
}

// heapOf is what a node has allocated so far.
func (s *servers) heapOf(ctx context.Context, node int) (h heap, err error) {
	text, err := get(ctx, "http://"+s.admins[node]+"/metrics")
	if err != nil {
		return h, err
	}
	for name, into := range map[string]*float64{"go_memstats_mallocs_total ": &h.objects, "go_memstats_alloc_bytes_total ": &h.bytes} {
		_, rest, ok := strings.Cut(text, "\n"+name)
		if !ok {
			return h, fmt.Errorf("no %samong the metrics", name)
		}
		value, _, _ := strings.Cut(rest, "\n")
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return h, err
		}
	}
	return h, nil
}
