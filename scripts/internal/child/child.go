// Package child runs commands as child processes that end with this one, for the programs that measure a broker from outside.
// It knows processes, their last words and what the kernel says of them; it knows nothing of what they are.
package child

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// Process is a running child.
type Process struct {
	cmd  *exec.Cmd
	out  tail
	done chan struct{}
}

// Start runs a command with these open files from descriptor 3 on, and without the GOPHERLOG_ variables of this process. A child that
// reads its standard input sees the end of it when this process ends.
func Start(path string, env []string, files []*os.File, args ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GOPHERLOG_") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles = &p.out, &p.out, files
	p.cmd.SysProcAttr = attr()
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

// Kill sends SIGKILL and returns at once.
func (p *Process) Kill() error { return p.cmd.Process.Kill() }

// Gone is closed when the process has ended.
func (p *Process) Gone() <-chan struct{} { return p.done }

// Stop kills the process and waits for its end: what it wrote is removed next.
func (p *Process) Stop() {
	_ = p.Kill()
	<-p.done
}

// Said is the end of what the process printed so far.
func (p *Process) Said() string { return p.out.String() }

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
