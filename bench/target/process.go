package target

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is a child in a process group of its own. When the harness dies, the
// kernel ends it too (Linux); elsewhere only Stop does.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	state error // what Wait returned; valid after done
	asked bool  // kill or terminate was called
	alone bool  // it ended before anybody asked; valid after done
}

// errEnded says that the process had ended by itself.
var errEnded = errors.New("the process had ended by itself")

// startProcess runs argv with its output appended to logPath. The child is
// forked from a thread that lives as long as the child, because the kernel's
// parent-death signal fires when the forking thread ends, not the process.
func startProcess(argv []string, logPath string) (*process, error) {
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = childAttr()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		out.Close() // the child has its own copy
		started <- err
		if err != nil {
			return
		}
		err = p.cmd.Wait()
		p.mu.Lock()
		p.state, p.alone = err, !p.asked
		p.mu.Unlock()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// exited says whether the process has ended, and how.
func (p *process) exited() (bool, error) {
	select {
	case <-p.done:
		p.mu.Lock()
		defer p.mu.Unlock()
		return true, p.state
	default:
		return false, nil
	}
}

// endedAlone says whether the process ended without having been asked to.
func (p *process) endedAlone() bool {
	gone, _ := p.exited()
	p.mu.Lock()
	defer p.mu.Unlock()
	return gone && p.alone
}

func (p *process) ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = true
}

// signal sends sig to the whole process group; to one that has been reaped it
// sends nothing, since its number may be somebody else's by now.
func (p *process) signal(sig syscall.Signal) error {
	if gone, _ := p.exited(); gone {
		return errEnded
	}
	err := syscall.Kill(-p.pid(), sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// kill ends the group and returns when the process has been reaped. A process
// that ended by itself before is errEnded: nobody killed it.
func (p *process) kill() error {
	p.ask()
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	if p.endedAlone() {
		return errEnded
	}
	return nil
}

// terminate asks for an orderly end, and forces it after grace.
func (p *process) terminate(grace time.Duration) error {
	p.ask()
	if err := errors.Join(p.signal(syscall.SIGTERM), p.signal(syscall.SIGCONT)); err != nil && !errors.Is(err, errEnded) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
	}
	if err := p.kill(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}
