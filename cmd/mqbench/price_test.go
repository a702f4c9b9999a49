package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"gopherlog/bench/load"
	"gopherlog/bench/result"
	"gopherlog/bench/suite"
)

// someCluster is a fake one with a topic of somebody else's.
func someCluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(1, "theirs")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// there lists what is on a cluster.
func there(t *testing.T, c *kfake.Cluster, s *load.Security) string {
	t.Helper()
	i, err := load.NewInspector(load.KafkaConfig{Bootstrap: c.ListenAddrs(), Security: s})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	l, err := i.Find(t.Context(), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(l.List(), ", ")
}

// quick makes runs of two trials of a second.
func quick(c *kfake.Cluster, more ...string) []string {
	args := append([]string{"price", "-brokers", strings.Join(c.ListenAddrs(), ","), "-blocks", "1", "-progress", "plain"}, more...)
	for flag, value := range map[string]string{"-guarantees": "at_least_once,idempotent", "-steady": "600ms"} {
		if !slices.Contains(more, flag) {
			args = append(args, flag, value)
		}
	}
	return args
}

func TestPriceEndsWithAListAndAReportAndLeavesNothing(t *testing.T) {
	c := someCluster(t)
	out := filepath.Join(t.TempDir(), "o")
	code, text, errs := call(quick(c, "-out", out, "-saturate")...)
	if code != 0 && !strings.Contains(errs, "no trial of at_least_once is sound") { // on a busy machine the client falls behind
		t.Fatalf("exit code %d: %s\n%s", code, text, errs)
	}
	for _, want := range []string{"What each delivery guarantee costs", "at least once", "idempotent", "At saturation", "✓ held", "rights: all there"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\ndoes not say %q", text, want)
		}
	}
	for _, name := range []string{"report.html", "price.txt", "price/manifest.json", "price-at-saturation/results.json"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	if got := there(t, c, nil); got != "topic theirs" {
		t.Errorf("on the cluster: %s", got)
	}
}

func TestPriceDryRunListsEverythingAndCreatesNothing(t *testing.T) {
	c := someCluster(t)
	code, text, errs := call(quick(c, "-dry-run")...)
	if code != 0 || !strings.Contains(text, "2 topics mqbench-price-") || !strings.Contains(text, "Create on Topic mqbench-price-*") || !strings.Contains(text, "Nothing was created") {
		t.Errorf("exit code %d: %s\n%s", code, text, errs)
	}
	if got := there(t, c, nil); got != "topic theirs" {
		t.Errorf("on the cluster: %s", got)
	}
}

// watched is a stream that calls once when it has seen some text.
type watched struct {
	mu   sync.Mutex
	all  bytes.Buffer
	text string
	call func()
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.all.Write(p)
	if w.call != nil && strings.Contains(w.all.String(), w.text) {
		w.call()
		w.call = nil
	}
	return n, err
}

func TestPriceThatIsInterruptedRemovesWhatItCreated(t *testing.T) {
	c := someCluster(t)
	errs := &watched{text: "trial 1/2 price transactional", call: func() {
		time.AfterFunc(300*time.Millisecond, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGINT) }) // within the trial
	}}
	var text bytes.Buffer
	code := run(quick(c, "-guarantees", "at_least_once,transactional", "-seed", "5", "-steady", "30s", "-out", filepath.Join(t.TempDir(), "o")), &text, errs)
	if code != 130 || !strings.Contains(errs.all.String(), "removing what was created") {
		t.Errorf("exit code %d: %s\n%s", code, text.String(), errs.all.String())
	}
	if got := there(t, c, nil); got != "topic theirs" {
		t.Errorf("on the cluster: %s", got)
	}
}

func TestPriceNamesABrokerThatGoesAwayMeanwhile(t *testing.T) {
	c := someCluster(t)
	var gone sync.WaitGroup
	errs := &watched{text: "trial 1/2", call: func() {
		gone.Go(func() {
			time.Sleep(300 * time.Millisecond)
			if err := c.RemoveNode(2); err != nil {
				t.Error(err)
			}
		})
	}}
	defer gone.Wait()
	var text bytes.Buffer
	run(quick(c, "-out", filepath.Join(t.TempDir(), "o")), &text, errs) // whether trials are sound does not matter here
	if !strings.Contains(errs.all.String(), "does not answer any more") || strings.Count(errs.all.String(), "does not answer any more") != 1 ||
		!strings.Contains(strings.Join(strings.Fields(text.String()), " "), "stopped answering during the run") {
		t.Errorf("%s\n%s", text.String(), errs.all.String())
	}
}

func TestPriceFindsWhatAKilledRunLeftAndRemovesItWhenAgreed(t *testing.T) {
	const old = "mqbench-price-ab2c-20200102-030405.678-b01-c01-load"
	c := someCluster(t, kfake.SeedTopics(1, old, "mqbench-price-of-theirs"))
	code, text, errs := call(quick(c, "-cleanup")...)
	if code != 2 || !strings.Contains(text, "topic "+old+", begun ") || !strings.Contains(errs, "-yes") || strings.Contains(text, "of-theirs") {
		t.Errorf("exit code %d: %s\n%s", code, text, errs)
	}
	if code, text, errs = call(quick(c, "-dry-run")...); code != 0 || !strings.Contains(text, old) {
		t.Errorf("exit code %d: %s\n%s", code, text, errs)
	}
	if got := there(t, c, nil); got != "topic "+old+", topic mqbench-price-of-theirs, topic theirs" {
		t.Errorf("before anybody agreed: %s", got)
	}
	if code, text, errs = call(quick(c, "-cleanup", "-yes")...); code != 0 || !strings.Contains(text, "1 removed") {
		t.Errorf("exit code %d: %s\n%s", code, text, errs)
	}
	if got := there(t, c, nil); got != "topic mqbench-price-of-theirs, topic theirs" {
		t.Errorf("afterwards: %s", got)
	}
	if code, text, _ = call(quick(c, "-cleanup")...); code != 0 || !strings.Contains(text, "Nothing that an earlier run created is left") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

func TestPriceWithoutARightSendsNoLoadAndNamesTheACL(t *testing.T) {
	c := someCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"), kfake.User("SCRAM-SHA-512", "ada", "hush"))
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "o")
	code, text, errs := call(quick(c, "-sasl", "SCRAM-SHA-512", "-user", "ada", "-password-file", file, "-out", out)...)
	if code != 3 || !strings.Contains(errs, "no load was sent: missing Create on Topic mqbench-price-*") || !strings.Contains(text, "--allow-principal User:ada --operation Create") {
		t.Errorf("exit code %d: %s\n%s", code, text, errs)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a run directory was made")
	}
	if got := there(t, c, &load.Security{Mechanism: "PLAIN", User: "root", Password: "root"}); got != "topic theirs" {
		t.Errorf("on the cluster: %s", got)
	}
}

func TestPriceTakesNoPasswordAsAFlag(t *testing.T) {
	t.Setenv("GOPHERLOG_SASL_PASSWORD", "")
	code, _, errs := call("price", "-brokers", "h:1", "-sasl", "PLAIN", "-user", "ada", "-password", "hush")
	if code != 2 || !strings.Contains(errs, "password") || strings.Contains(errs, "hush") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	code, _, errs = call("price", "-brokers", "h:1", "-sasl", "PLAIN", "-user", "ada", "-cert", "x.pem")
	if code != 2 || !strings.Contains(errs, "-password-file") || !strings.Contains(errs, "GOPHERLOG_SASL_PASSWORD") || !strings.Contains(errs, "-cert and -key go together") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestPriceOfAClusterThatDoesNotAnswerSaysSo(t *testing.T) {
	code, _, errs := call("price", "-brokers", "127.0.0.1:1", "-dry-run")
	if code != 3 || !strings.Contains(errs, "no broker of 127.0.0.1:1 answers") || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestPriceGoesOnWithoutBrokersThatCannotBeReachedAndNamesThem(t *testing.T) {
	c := someCluster(t)
	out := filepath.Join(t.TempDir(), "o")
	args := quick(c, "-out", out)
	args[2] = "127.0.0.1:1," + c.ListenAddrs()[0]
	code, text, errs := call(args...)
	if code != 0 && !strings.Contains(errs, "no trial of at_least_once is sound") { // on a busy machine the client falls behind
		t.Fatalf("exit code %d: %s\n%s", code, text, errs)
	}
	all := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{"127.0.0.1:1 of -brokers cannot be reached", "connection refused", c.ListenAddrs()[0] + " answered, and one is enough",
		"What each delivery guarantee costs on " + c.ListenAddrs()[0], "! 127.0.0.1:1 could not be reached when the run began"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s\ndoes not say %q", text, want)
		}
	}
}

func TestPriceOfBrokersOfTwoClustersIsRefused(t *testing.T) {
	a, b := someCluster(t, kfake.ClusterID("one")), someCluster(t, kfake.ClusterID("two"))
	code, _, errs := call("price", "-brokers", a.ListenAddrs()[0]+","+b.ListenAddrs()[0], "-dry-run")
	if code != 2 || !strings.Contains(errs, "belongs to cluster one, and "+b.ListenAddrs()[0]+" to cluster two") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestPriceDryRunNamesInternalTopicsThatTheClusterWouldMake(t *testing.T) {
	c := someCluster(t)
	for _, x := range []struct{ flags, listed, absent []string }{
		{[]string{"-guarantees", "at_least_once,idempotent"}, nil, []string{"__transaction_state", "__consumer_offsets", "__two_phase_commit"}},
		{[]string{"-guarantees", "at_least_once,transactional"}, []string{"topic __transaction_state: not by us"}, []string{"__consumer_offsets", "__two_phase_commit"}},
		{[]string{"-guarantees", "at_least_once,transactional", "-workers", "2"}, []string{"topic __transaction_state: not by us", "topic __consumer_offsets: not by us"}, []string{"__two_phase_commit"}},
	} {
		code, text, errs := call(quick(c, append(x.flags, "-dry-run")...)...)
		if code != 0 {
			t.Errorf("exit code %d: %s", code, errs)
		}
		all := strings.Join(strings.Fields(text), " ")
		for _, want := range append(x.listed, "Beside these it would touch:", "producer ids: about", "nothing else.", "disks: at most") {
			if !strings.Contains(all, want) {
				t.Errorf("%v: %s\ndoes not say %q", x.flags, text, want)
			}
		}
		for _, no := range x.absent {
			if strings.Contains(all, no) {
				t.Errorf("%v: %s\nsays %s", x.flags, text, no)
			}
		}
	}
	if got := there(t, c, nil); got != "topic theirs" {
		t.Errorf("on the cluster: %s", got)
	}
}

// heard keeps notes.
type heard struct {
	suite.Progress
	notes []string
}

func (h *heard) TrialEnds(result.Trial, time.Duration, time.Duration) {}
func (h *heard) Note(text string)                                     { h.notes = append(h.notes, text) }

func TestPriceSaysAfterTheFirstBlockThatNothingCouldBeTold(t *testing.T) {
	late, sound := result.Trial{Invalid: []string{"the load client fell behind its schedule"}}, result.Trial{}
	for _, x := range []struct {
		trials []result.Trial
		said   int
	}{
		{[]result.Trial{late, late}, 0},
		{[]result.Trial{late, late, late, late, late, late}, 1},
		{[]result.Trial{late, sound, late, late}, 0},
	} {
		h := &heard{}
		p := sayOnce(h, false, 3)
		for _, trial := range x.trials {
			p.TrialEnds(trial, 0, 0)
		}
		if len(h.notes) != x.said {
			t.Errorf("after %d trials: %q", len(x.trials), h.notes)
		}
	}
}
