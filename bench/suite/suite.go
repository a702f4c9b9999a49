// Package suite runs a scenario: its trials in interleaved order, each with a
// target of its own, load, faults on the same clock, and a verdict, into one
// run directory.
//
// It knows the order of things and what makes a trial unusable. It knows
// nothing of how a record is sent, judged or drawn.
package suite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
	"gopherlog/bench/load"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/stats"
)

// Config says what to run and what the run may use. Net is nil where no network
// namespace could be entered; NetReason then says why.
type Config struct {
	Scenario  *scenario.Scenario
	File      string
	Command   string // that repeats the run
	Profile   string
	Tool      string
	Commit    string
	Out       string         // the run directory, made by Run
	Server    string         // path of the server binary
	Security  *load.Security // how clients reach an external system; nil: plain text, unauthenticated
	Clusters  *Clusters      // that trials without a fresh cluster share; nil: this run has its own, and ends them
	Net       fault.Network
	NetReason string
	// Sabotage plants a fault in every broker before the load starts.
	Sabotage Sabotage
	// Failpoints are armed in every broker before the load starts: name → action,
	// in the control port's words, as in "error probability=0.002".
	Failpoints map[string]string
	Progress   Progress // nil: silent
	Logger     *slog.Logger
}

// Sabotage is one planted fault of the broker; the zero value plants none.
type Sabotage struct {
	Name string
	Arg  int64
}

// Progress hears what the suite is doing. Glances and faults come from goroutines
// of their own and may overlap.
type Progress interface {
	TrialStarts(n, total int, cell scenario.Cell, block int)
	TrialGlance(load.Progress)
	TrialFault(fault.Event)
	TrialEnds(t result.Trial, took, remaining time.Duration)
	Note(text string)
}

// ErrEnvironment says that this machine cannot run the scenario as asked.
var ErrEnvironment = errors.New("the environment is not usable")

// Run executes every trial and leaves a complete run directory, also when ctx
// ends early or a trial cannot be run: then the manifest says partial, and why.
// Missed thresholds and violations are results, not errors. With an error, the
// run holds what was judged before it; it is nil where nothing was.
func Run(ctx context.Context, cfg Config) (*result.Run, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Progress == nil {
		cfg.Progress = silent{}
	}
	dir, err := result.Create(cfg.Out)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	s := &run{Config: cfg, dir: dir, cells: cfg.Scenario.Expand()}
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	if s.Clusters == nil {
		s.Clusters = NewClusters(filepath.Join(dir.Path, "data", "kept"))
		defer s.Clusters.Close() // also where a trial panics
	}
	failed := s.warmAll(ctx)
	if failed == nil {
		failed = s.trials(ctx)
	}
	s.keepLogs()
	r, err := s.finish(ctx)
	if failed != nil && len(s.results.Trials) == 0 {
		return nil, failed
	}
	return r, errors.Join(failed, err)
}

type run struct {
	Config
	dir      *result.Dir
	cells    []scenario.Cell
	manifest result.Manifest
	results  result.Results
}

// trials runs the blocks until the plan, the time or ctx is over.
func (s *run) trials(ctx context.Context) error {
	order := stats.Order(s.Scenario.Seed, len(s.cells), s.Scenario.Runs.Repeats)
	deadline := time.Now().Add(s.Scenario.Runs.MaxTime) // the warming of clusters does not count
	var longest time.Duration
	block := order[0].Block
	for i, o := range order {
		if ctx.Err() != nil {
			s.stop(interrupted)
			return nil
		}
		if s.manifest.Cells[o.Cell].Absent != "" {
			continue
		}
		newBlock := o.Block != block
		block = o.Block
		if newBlock && time.Now().Add(longest*time.Duration(len(s.cells))).After(deadline) {
			s.stop(fmt.Sprintf("runs.max_time %s reached: block %d and later were not begun", s.Scenario.Runs.MaxTime, o.Block+1))
			s.Progress.Note(s.manifest.Stopped)
			return nil
		}
		if newBlock {
			err := s.renew(ctx)
			if ctx.Err() != nil {
				s.stop(interrupted)
				return nil
			}
			if err != nil {
				return err
			}
		}
		began := time.Now()
		s.Progress.TrialStarts(i+1, len(order), s.cells[o.Cell], o.Block)
		t, err := s.trial(ctx, s.cells[o.Cell], o, i)
		switch {
		case errors.Is(err, errAbsent):
			s.absent(o.Cell, err)
			continue
		case err != nil && ctx.Err() != nil: // the interrupt came before the load began
			s.stop(interrupted)
			return nil
		case err != nil:
			s.stop(fmt.Sprintf("trial %d of %d could not be run: %v", i+1, len(order), err))
			return err
		}
		s.results.Trials = append(s.results.Trials, *t)
		longest = max(longest, time.Since(began))
		s.Progress.TrialEnds(*t, time.Since(began), longest*time.Duration(len(order)-i-1))
		if err := s.dir.WriteResults(&s.results); err != nil {
			s.stop(err.Error())
			return fmt.Errorf("%w: %w", ErrEnvironment, err)
		}
		pause(ctx, s.Scenario.Runs.Cooldown, i+1 < len(order))
	}
	return nil
}

const interrupted = "interrupted"

// stop says that no more trials will run, and why.
func (s *run) stop(why string) { s.manifest.Partial, s.manifest.Stopped = true, why }

func pause(ctx context.Context, d time.Duration, more bool) {
	if !more {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// begin writes the manifest before anything runs.
func (s *run) begin() error {
	first := s.cells[0].Scenario
	s.manifest = result.Manifest{
		Tool: s.Tool, Commit: s.Commit, Command: s.Command, Started: time.Now(),
		Scenario: result.Scenario{Name: s.Scenario.Name, File: s.File, Question: s.Scenario.Question, Hypothesis: s.Scenario.Hypothesis,
			Resolved: string(s.Scenario.YAML()), Seed: s.Scenario.Seed, Profile: s.Profile, Blocks: s.Scenario.Runs.Repeats, Model: first.Load.Model},
	}
	for _, c := range s.cells {
		if s.system(c.Target.System) == nil {
			s.manifest.Systems = append(s.manifest.Systems, systemOf(c))
		}
	}
	s.manifest.System = s.manifest.Systems[0]
	for _, e := range s.Scenario.Expect {
		s.manifest.Scenario.Expect = append(s.manifest.Scenario.Expect, e.Raw)
	}
	s.manifest.Planted = s.planted()
	for i, c := range s.cells {
		s.manifest.Cells = append(s.manifest.Cells, cellOf(c))
		if err := cannot(c); err != nil {
			s.absent(i, err)
		}
	}
	var err error
	if s.manifest.Host, err = describeHost(s.dir.Path); err != nil {
		return err
	}
	s.manifest.Host.Namespace = "own"
	if s.Net == nil {
		s.manifest.Host.Namespace = s.NetReason
	}
	return s.dir.WriteManifest(&s.manifest)
}

func systemOf(c scenario.Cell) result.System {
	out := result.System{Name: c.Target.System, Nodes: c.Target.Nodes, ReplicationFactor: c.Target.ReplicationFactor, MinInsync: c.Target.MinInsyncReplicas,
		Tier: c.Target.Durability, RecordBytes: int(c.Load.Value.Size.Mean()), Nice: c.Target.Nice, Kept: !c.Runs.FreshCluster, PerBlock: c.Runs.BlockCluster}
	if out.Name == "external" { // somebody else's: the scenario's words for a cluster to launch say nothing of it
		out.Nodes, out.Tier = 0, ""
	}
	for _, t := range c.Topics {
		out.Partitions += t.Partitions
	}
	return out
}

// system is the manifest's entry of a system; nil where it has none.
func (s *run) system(name string) *result.System {
	for i := range s.manifest.Systems {
		if s.manifest.Systems[i].Name == name {
			return &s.manifest.Systems[i]
		}
	}
	return nil
}

// planted lists what Config asks to break in every broker.
func (s *run) planted() []string {
	var out []string
	if s.Sabotage.Name != "" {
		out = append(out, s.Sabotage.Name)
	}
	for name, action := range s.Failpoints {
		out = append(out, name+"="+action)
	}
	sort.Strings(out)
	return out
}

func cellOf(c scenario.Cell) result.Cell {
	out := result.Cell{ID: cellID(c), System: c.Target.System, Guarantee: string(c.Guarantee), Model: c.Load.Model, Sweep: map[string]string{},
		Client: map[string]string{}, Deviates: map[string]string{}, Producers: c.Producers.Count, Bytes: int(c.Load.Value.Size.Mean())}
	if x := c.Producers.Transaction; c.Guarantee.Transacts() {
		out.Txn = &result.Txn{Records: x.Records, Partitions: x.Partitions, AbortShare: x.AbortShare}
	}
	if c.Load.Model == "open" {
		out.Rate = float64(c.Load.Rate)
	} else {
		out.Bound = c.Load.MaxOutstanding
	}
	for _, a := range c.Axes {
		out.Sweep[a.Key] = a.Value
	}
	return out
}

func cellID(c scenario.Cell) string { return fmt.Sprintf("c%02d", c.Index+1) }

// finish judges the whole run and writes what remains.
func (s *run) finish(ctx context.Context) (*result.Run, error) {
	s.manifest.Finished, s.manifest.System = time.Now(), s.manifest.Systems[0]
	if ctx.Err() != nil {
		s.stop(interrupted)
	}
	r := &result.Run{Dir: *s.dir, Manifest: s.manifest, Results: s.results} // the manifest after its last change
	r.Results.Verdict = verdictOf(s.results.Trials)
	r.Results.Expectations = judgeExpectations(s.Scenario.Expect, r)
	r.Results.ExitCode = exitCode(r)
	err := errors.Join(s.dir.WriteManifest(&r.Manifest), s.dir.WriteResults(&r.Results), writeExports(r), os.RemoveAll(filepath.Join(s.dir.Path, "data")))
	if err != nil {
		err = fmt.Errorf("%w: leave the results: %w", ErrEnvironment, err)
	}
	return r, err
}

// verdictOf is the worst verdict of all trials.
func verdictOf(ts []result.Trial) check.Status {
	v := check.Pass
	if len(ts) == 0 {
		return check.Inconclusive
	}
	for _, t := range ts {
		switch {
		case t.Check.Status == check.Violated:
			return check.Violated
		case t.Check.Status == check.Inconclusive:
			v = check.Inconclusive
		}
	}
	return v
}

// Exit codes of a run. Safety outranks validity, which outranks thresholds. An undecided line is unusable as well, and is
// outranked by a missed one, which is an answer.
const (
	ExitPass        = 0
	ExitInternal    = 1
	ExitUsage       = 2
	ExitUnusable    = 3
	ExitViolation   = 10
	ExitThreshold   = 99
	ExitInterrupted = 130
)

func exitCode(r *result.Run) int {
	if r.Results.Verdict == check.Violated {
		return ExitViolation
	}
	if len(r.Results.Trials) == 0 || unexcused(r.Results.Trials) || !usable(r) {
		return ExitUnusable
	}
	for _, e := range r.Results.Expectations {
		if e.Outcome == missed {
			return ExitThreshold
		}
	}
	for _, e := range r.Results.Expectations {
		if unanswered(e) {
			return ExitUnusable
		}
	}
	return ExitPass
}

// unanswered says whether a line was to be decided and was not.
func unanswered(e result.Expectation) bool { return e.Outcome == undecided && !e.Open }

// usable says whether the run answers what it was asked: some trial is sound,
// or all that was asked for are counts, which every trial answers.
func usable(r *result.Run) bool {
	if len(r.Results.Valid()) > 0 {
		return true
	}
	for _, e := range r.Results.Expectations {
		if e.Outcome == undecided {
			return false
		}
	}
	return len(r.Results.Expectations) > 0
}

// unexcused says whether a trial is inconclusive for another reason than a
// fault that this machine cannot inject: that one is reported as skipped.
func unexcused(ts []result.Trial) bool {
	for _, t := range ts {
		if t.Check.Status == check.Inconclusive && !skippedOnly(t) {
			return true
		}
	}
	return false
}

func skippedOnly(t result.Trial) bool {
	skipped := 0
	for _, e := range t.Faults {
		if e.Skipped {
			skipped++
		} else if !e.Proved() {
			return false
		}
	}
	return skipped > 0 && len(t.Check.Reasons) == skipped
}

type silent struct{}

func (silent) TrialStarts(int, int, scenario.Cell, int)             {}
func (silent) TrialGlance(load.Progress)                            {}
func (silent) TrialFault(fault.Event)                               {}
func (silent) TrialEnds(result.Trial, time.Duration, time.Duration) {}
func (silent) Note(string)                                          {}

// controlled says whether the brokers need their test-control port.
func (s *run) controlled() bool { return s.Sabotage.Name != "" || len(s.Failpoints) > 0 }
