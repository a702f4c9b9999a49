package endtoend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// orderly is how long a node may take to stop by SIGTERM: it gives itself ten seconds, which are longer on a busy machine.
const orderly = 30 * time.Second

// stream is an mqclient that produces numbered lines until it is closed.
type stream struct {
	cmd  *exec.Cmd
	stop chan struct{}
	wg   sync.WaitGroup
	out  output
	errs output
	sent int
}

func produceStream(t *testing.T, addrs []string) *stream {
	t.Helper()
	s := &stream{stop: make(chan struct{})}
	s.cmd = exec.Command(filepath.Join(bin, "mqclient"), "produce", "-addr", strings.Join(addrs, ","), "-topic", "t", "-timeout", patience.String())
	s.cmd.Env = cleanEnv()
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.errs
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	s.wg.Go(func() { s.feed(in) })
	return s
}

func (s *stream) feed(in io.WriteCloser) {
	defer in.Close()
	for ; ; s.sent++ {
		select {
		case <-s.stop:
			return
		case <-time.After(time.Millisecond):
		}
		if _, err := fmt.Fprintf(in, "line %d\n", s.sent); err != nil {
			return
		}
	}
}

// acked counts the acknowledgements so far.
func (s *stream) acked() int { return strings.Count(s.out.String(), "produced to t ") }

// end closes the stream and returns how many lines were sent; all must be acknowledged.
func (s *stream) end(t *testing.T) int {
	t.Helper()
	close(s.stop)
	s.wg.Wait()
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, s.errs.String())
	}
	if got := s.acked(); got != s.sent {
		t.Fatalf("%d of %d lines were acknowledged: %s", got, s.sent, s.errs.String())
	}
	return s.sent
}

// TestSIGTERMOfOneNodeAndThenOfAllLosesNoAcknowledgement stops nodes in order while a client produces.
func TestSIGTERMOfOneNodeAndThenOfAllLosesNoAcknowledgement(t *testing.T) {
	c := newCluster(t)
	must(t, "mqclient", "topic", "create", "-addr", c.addrs[0], "-topic", "t", "-partitions", "6", "-replication-factor", "3")
	s := produceStream(t, c.addrs)
	eventually(t, func() error { return atLeast(s.acked(), 200) })
	for id := 1; id <= 3; id++ {
		c.stopInOrder(t, id)
		before := s.acked()
		eventually(t, func() error { return atLeast(s.acked(), before+100) }) // two nodes carry on
		c.start(t, id)
		ready(t, c.admins[id-1])
	}
	var wg sync.WaitGroup
	for id := 1; id <= 3; id++ {
		wg.Go(func() { c.stopInOrder(t, id) })
	}
	wg.Wait()
	for id := 1; id <= 3; id++ {
		c.start(t, id)
	}
	for _, a := range c.admins {
		ready(t, a)
	}
	before := s.acked()
	eventually(t, func() error { return atLeast(s.acked(), before+100) })
	sent := s.end(t)
	got := must(t, "mqclient", "consume", "-addr", c.addrs[0], "-topic", "t")
	lines := map[string]int{}
	for _, l := range strings.Split(got, "\n") {
		if _, v, ok := strings.Cut(l, " value="); ok {
			lines[v]++
		}
	}
	for i := range sent {
		if n := lines[fmt.Sprintf("line %d", i)]; n != 1 {
			t.Fatalf("line %d of %d is there %d times", i, sent, n)
		}
	}
}

func atLeast(got, want int) error {
	if got < want {
		return fmt.Errorf("%d acknowledgements, want %d", got, want)
	}
	return nil
}

// cluster is three nodes whose processes may come and go.
type cluster struct {
	nodes               []*process
	addrs, rpcs, admins []string
	dirs                []string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{nodes: make([]*process, 3)}
	for range 3 {
		c.addrs, c.rpcs, c.admins = append(c.addrs, freeAddr(t)), append(c.rpcs, freeAddr(t)), append(c.admins, freeAddr(t))
		c.dirs = append(c.dirs, t.TempDir())
	}
	for id := 1; id <= 3; id++ {
		c.start(t, id)
	}
	for _, a := range c.admins {
		ready(t, a)
	}
	return c
}

func (c *cluster) start(t *testing.T, id int, more ...string) {
	t.Helper()
	var peers []string
	for i, a := range c.rpcs {
		peers = append(peers, fmt.Sprintf("%d@%s", i+1, a))
	}
	i := id - 1
	c.nodes[i] = start(t, nil, append([]string{"-id", fmt.Sprint(id), "-addr", c.addrs[i], "-rpc", c.rpcs[i], "-admin", c.admins[i],
		"-peers", strings.Join(peers, ","), "-data", c.dirs[i], "-log-level", "warn"}, more...)...)
}

// stopInOrder sends SIGTERM and checks how the node ends.
func (c *cluster) stopInOrder(t *testing.T, id int) {
	began := time.Now()
	p := c.nodes[id-1]
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("node %d: %v", id, err)
		return
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("node %d has not stopped after %v", id, patience)
		return
	}
	if took, code := time.Since(began), p.cmd.ProcessState.ExitCode(); code != 0 || took > orderly {
		t.Errorf("node %d: exit code %d after %v", id, code, took)
	}
}

// TestFailedSyncOfTheStoreEndsTheProcessWithASentence plants the failure through the control port.
func TestFailedSyncOfTheStoreEndsTheProcessWithASentence(t *testing.T) {
	const token = "a token of some length"
	control := freeAddr(t)
	p, addr := one(t, t.TempDir(), "-control", control, "-control-token", token)
	must(t, "mqclient", "produce", "-addr", addr, "-topic", "t", "-value", "before")
	req, err := http.NewRequest(http.MethodPost, "http://"+control+"/failpoint", bytes.NewReader([]byte(`{"name":"kv/before-sync","action":"error"}`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent {
		t.Fatalf("the control port answers %s", resp.Status)
	}
	eventually(t, func() error { // one that does not reach a busy node in time makes the store sync no sooner
		_ = try(t, "", "mqclient", "topic", "create", "-addr", addr, "-topic", "other", "-timeout", "2s")
		select {
		case <-p.done:
			return nil
		default:
			return errors.New("the server goes on")
		}
	})
	if code := p.wait(t); code != 3 {
		t.Errorf("exit code %d", code)
	}
	log := p.log.String()
	if !strings.Contains(log, "cannot write to the store") || strings.Contains(log, "goroutine ") {
		t.Errorf("the server says\n%s", log)
	}
}
