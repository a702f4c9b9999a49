package target

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const actVar = "BENCH_TARGET_ACT"

// TestMain turns this test binary into the server that the tests start: they
// need processes, not a broker.
func TestMain(m *testing.M) {
	if act := os.Getenv(actVar); strings.HasPrefix(act, "java") {
		os.Exit(fakeJava(os.Args[1:]))
	} else if act != "" {
		os.Exit(serve(act, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// serve answers on -admin and -control like a broker that does nothing.
func serve(act string, args []string) int {
	flags := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		flags[args[i]] = args[i+1]
	}
	fmt.Fprintln(os.Stderr, "started with", args)
	if act == "refuse" && flags["-id"] == "2" {
		fmt.Fprintln(os.Stderr, "the disk is not mine")
		return 3
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/crash", func(http.ResponseWriter, *http.Request) { fmt.Fprintln(os.Stderr, "last words"); os.Exit(7) })
	mux.HandleFunc("/sabotage", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+flags["-control-token"] {
			http.Error(w, "who are you?", http.StatusForbidden)
		}
	})
	for _, at := range []string{flags["-admin"], flags["-control"]} {
		if at != "" {
			go func() { fmt.Fprintln(os.Stderr, http.ListenAndServe(at, mux)) }()
		}
	}
	<-stop
	return 0
}

func cluster(t *testing.T, act string, cfg GopherlogConfig) *Gopherlog {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(actVar, act)
	cfg.Server, cfg.Dir = self, t.TempDir()
	c, err := NewGopherlog(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(t.Context()) })
	return c
}

func started(t *testing.T, act string, cfg GopherlogConfig) *Gopherlog {
	t.Helper()
	c := cluster(t, act, cfg)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func running(pid int) bool {
	s, err := ReadProc(pid)
	return err == nil && s.State != 'Z'
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestStopLeavesNothingRunningInWhateverStateNodesAre(t *testing.T) {
	c := started(t, "serve", GopherlogConfig{Nodes: 3})
	var pids []int
	for _, n := range c.Nodes() {
		if n.State != Running || !running(n.PID) {
			t.Fatalf("%+v does not run after Start", n)
		}
		pids = append(pids, n.PID)
	}
	if err := errors.Join(c.Pause(1), c.Kill(t.Context(), 2), c.Stop(t.Context()), c.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	for i, pid := range pids {
		if running(pid) {
			t.Errorf("process %d of node %d still runs", pid, i+1)
		}
	}
	if d := c.Deaths(); len(d) > 0 {
		t.Errorf("deaths that were asked for are reported: %q", d)
	}
}

func TestStopForcesAServerThatIgnoresItsSignal(t *testing.T) {
	p, err := startProcess([]string{"/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"}, filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.terminate(50 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if gone, _ := p.exited(); !gone || running(p.pid()) {
		t.Error("it still runs")
	}
}

func TestKilledNodeIsGoneAndComesBackOnTheSameAddresses(t *testing.T) {
	c := started(t, "serve", GopherlogConfig{Nodes: 2})
	before := c.Nodes()[0]
	if err := c.Kill(t.Context(), 1); err != nil || running(before.PID) {
		t.Fatalf("%v, running: %v", err, running(before.PID))
	}
	if n := c.Nodes()[0]; n.State != Down || n.PID != 0 {
		t.Errorf("%+v", n)
	}
	if err := c.Kill(t.Context(), 1); err == nil {
		t.Error("a node that is down was killed")
	}
	if err := c.Restart(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	after := c.Nodes()[0]
	if after.PID == before.PID || after.Client != before.Client || after.Data != before.Data || !running(after.PID) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	b, err := os.ReadFile(after.Log)
	if n := strings.Count(string(b), "started with"); err != nil || n != 2 {
		t.Errorf("the log tells of %d starts, not 2: %v", n, err)
	}
}

func TestPausedNodeIsStoppedInTheProcessTableAndYieldsNoSample(t *testing.T) {
	c := started(t, "serve", GopherlogConfig{Nodes: 1})
	pid := c.Nodes()[0].PID
	state := func(want byte) func() bool {
		return func() bool { s, err := ReadProc(pid); return err == nil && s.State == want }
	}
	if err := c.Pause(1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not stopped", state('T'))
	if err := c.Pause(1); err == nil {
		t.Error("a paused node was paused")
	}
	if err := c.Resume(1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not continued", func() bool { return !state('T')() })
}

func TestNodeThatEndsByItselfIsReportedAndCannotBeKilled(t *testing.T) {
	c := started(t, "serve", GopherlogConfig{Nodes: 2})
	_ = c.get(t.Context(), c.Nodes()[1].Admin, "/crash")
	eventually(t, "its end is not reported", func() bool { return len(c.Deaths()) == 1 })
	if d := c.Deaths()[0]; !strings.Contains(d, "node 2") || !strings.Contains(d, "last words") || !strings.Contains(d, "exit status 7") {
		t.Errorf("got %q", d)
	}
	if err := c.Kill(t.Context(), 2); !errors.Is(err, errEnded) {
		t.Errorf("killing it: %v, want %v: a fault that did not happen must not be proved", err, errEnded)
	}
	if err := c.Pause(2); !errors.Is(err, errEnded) {
		t.Errorf("pausing it: %v, want %v", err, errEnded)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Errorf("stop after a crash: %v", err)
	}
	if len(c.Deaths()) != 1 {
		t.Errorf("after Stop: %q", c.Deaths())
	}
}

func TestStartSaysWhyANodeEndedAtOnce(t *testing.T) {
	c := cluster(t, "refuse", GopherlogConfig{Nodes: 3, Logs: filepath.Join(t.TempDir(), "trial-")})
	began := time.Now()
	err := c.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the disk is not mine") || !strings.Contains(err.Error(), "trial-node2.log") {
		t.Errorf("got %v", err)
	}
	if time.Since(began) > startTimeout/2 {
		t.Error("it waited although the process had ended")
	}
	var pids []int
	for _, n := range c.Nodes() {
		pids = append(pids, n.PID)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("process %d was left running", pid)
		}
	}
}

func TestControlNeedsItsPortAndCarriesTheToken(t *testing.T) {
	c := started(t, "serve", GopherlogConfig{Nodes: 1, Control: true})
	if err := c.Control(t.Context(), 1, "/sabotage", map[string]any{"on": true}); err != nil {
		t.Error(err)
	}
	c.token = "wrong"
	if err := c.Control(t.Context(), 1, "/sabotage", nil); err == nil || !strings.Contains(err.Error(), "who are you?") {
		t.Errorf("got %v, want the answer of the server", err)
	}
	plain := started(t, "serve", GopherlogConfig{Nodes: 1})
	if err := plain.Control(t.Context(), 1, "/sabotage", nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v, want %v", err, ErrUnsupported)
	}
}

func TestMissingServerSaysHowToGetOne(t *testing.T) {
	if _, err := NewGopherlog(GopherlogConfig{Server: filepath.Join(t.TempDir(), "server"), Nodes: 1}); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v", err)
	}
	if _, err := NewGopherlog(GopherlogConfig{Nodes: 10}); err == nil || !strings.Contains(err.Error(), "1 to 9") {
		t.Errorf("got %v", err)
	}
}

func TestPortsOfANodeDiffer(t *testing.T) {
	ports, err := freePorts(3, 60)
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p] {
			t.Errorf("port %d twice", p)
		}
		seen[p] = true
	}
	if err != nil || len(ports) != 60 {
		t.Error(err, len(ports))
	}
}

func TestExternalSystemIsNeverTouched(t *testing.T) {
	e := NewExternal([]string{"broker:9092"})
	for what, err := range map[string]error{"kill": e.Kill(t.Context(), 1), "restart": e.Restart(t.Context(), 1), "pause": e.Pause(1),
		"resume": e.Resume(1), "control": e.Control(t.Context(), 1, "/", nil)} {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v, want %v", what, err, ErrUnsupported)
		}
	}
}
