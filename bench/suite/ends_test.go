package suite

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gopherlog/bench/check"
	"gopherlog/bench/load"
	"gopherlog/bench/report"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
)

// hook is a progress that lets a test act in the middle of a run.
type hook struct {
	silent
	starts func()
	glance func()
	ends   func()
}

func (h hook) TrialStarts(int, int, scenario.Cell, int) { call(h.starts) }
func (h hook) TrialGlance(load.Progress)                { call(h.glance) }
func (h hook) TrialEnds(result.Trial, time.Duration, time.Duration) {
	call(h.ends)
}

func call(f func()) {
	if f != nil {
		f()
	}
}

const someLoad = "guarantee: at_least_once\nload: {model: open, rate: 1k/s, value: {size: 200B}}\n"

func TestInterruptedTrialLeavesAPartialRunWithAReport(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, cfg := onFake(t, someLoad+"phases: {warmup: 200ms, steady: 30s, drain: 20s}\nruns: {repeats: 2, cooldown: 0s}\n")
	cfg.Progress = hook{glance: cancel}
	r, err := Run(ctx, cfg)
	if err != nil || !r.Manifest.Partial || r.Manifest.Stopped != interrupted || len(r.Results.Trials) != 1 || r.Results.Verdict != check.Inconclusive {
		t.Fatalf("%v, %+v, %s", err, r.Manifest.Stopped, r.Results.Verdict)
	}
	if err := report.Render([]string{r.Path}, r.Path, ""); err != nil {
		t.Error(err)
	}
}

func TestInterruptBeforeTheLoadLeavesAPartialRunWithoutTrials(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, cfg := onFake(t, someLoad+shortPhases)
	cfg.Progress = hook{starts: cancel}
	r, err := Run(ctx, cfg)
	if err != nil || !r.Manifest.Partial || len(r.Results.Trials) != 0 || r.Results.Verdict != check.Inconclusive || r.Results.ExitCode != ExitUnusable {
		t.Fatalf("%v, %+v", err, r)
	}
	if err := report.Render([]string{r.Path}, r.Path, ""); err != nil {
		t.Error(err)
	}
	page, err := os.ReadFile(r.File(result.ReportFile))
	if err != nil || strings.Contains(string(page), "Delivery held") {
		t.Errorf("%v: a run without a trial says that delivery held", err)
	}
}

func TestTrialThatCannotRunKeepsWhatWasJudgedBefore(t *testing.T) {
	_, cfg := onFake(t, someLoad+strings.Replace(shortPhases, "repeats: 1", "repeats: 3", 1))
	dir := result.Dir{Path: cfg.Out}
	cfg.Progress = hook{ends: func() { // the second trial finds a file where its history should be
		if err := os.WriteFile(dir.History("b02-c01"), nil, 0o644); err != nil && !errors.Is(err, os.ErrExist) {
			t.Error(err)
		}
	}}
	r, err := Run(t.Context(), cfg)
	if !errors.Is(err, ErrEnvironment) || r == nil || len(r.Results.Trials) != 1 || !r.Manifest.Partial || !strings.Contains(r.Manifest.Stopped, "trial 2 of 3") {
		t.Fatalf("%v, %+v", err, r)
	}
	again, err := result.Load(cfg.Out)
	if err != nil || len(again.Results.Trials) != 1 || again.Results.Verdict != check.Pass {
		t.Errorf("read back: %v, %+v", err, again)
	}
}

func TestExternalSystemKeepsItsOwnTopicsAndNoneOfOurs(t *testing.T) {
	addrs, cfg := onFake(t, someLoad+shortPhases)
	c, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	for _, name := range []string{"theirs", "mqbench-b01-c01-load"} { // the second is what a crashed run left
		if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, name); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := Run(t.Context(), cfg); err != nil || r.Results.Verdict != check.Pass {
		t.Fatalf("%v, %+v", err, r)
	}
	left, err := admin.ListTopics(t.Context())
	if err != nil || len(left) != 2 || !left.Has("theirs") {
		t.Errorf("%v: topics %v are there afterwards", err, left.Names())
	}
}

func TestVerdictOutlivesSeriesThatCannotBeWritten(t *testing.T) {
	_, cfg := onFake(t, someLoad+shortPhases)
	dir := result.Dir{Path: cfg.Out}
	cfg.Progress = hook{starts: func() { // a file where the histograms should go
		if err := errors.Join(os.RemoveAll(dir.Latency("")), os.WriteFile(dir.Latency(""), nil, 0o644)); err != nil {
			t.Error(err)
		}
	}}
	r, err := Run(t.Context(), cfg)
	if err != nil || len(r.Results.Trials) != 1 || r.Results.Verdict != check.Pass || !strings.Contains(strings.Join(r.Results.Trials[0].Invalid, " "), "could not be written") {
		t.Fatalf("%v, %+v", err, r)
	}
}
