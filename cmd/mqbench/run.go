package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
	"gopherlog/bench/report"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/suite"
	"gopherlog/bench/target"
	"gopherlog/cmd/internal/cli"
)

// scenarioFlags select and change scenarios.
type scenarioFlags struct {
	Files   []string `arg:"" name:"scenario" help:"Scenario files." type:"path"`
	Set     []string `help:"Override one key of the scenario, as in load.rate=5k/s; may be repeated." sep:"none" placeholder:"KEY=VALUE"`
	Repeats int      `help:"Blocks to run, instead of the profile's or the scenario's."`
	Profile string   `help:"quick: at most 3 blocks, ranges only. standard: 6. full: 10. Default: as the scenario says." enum:"quick,standard,full," default:""`
	Seed    *int64   `help:"Seed instead of the scenario's."`
}

var profileBlocks = map[string]int{"standard": 6, "full": 10}

// quickBlocks is how many blocks the quick profile runs at most: scenarios that ask for fewer keep them.
const quickBlocks = 3

// sets turns the flags into -set overrides, which the parser validates.
func (f *scenarioFlags) sets() []string {
	out := append([]string(nil), f.Set...)
	if n := profileBlocks[f.Profile]; n > 0 && f.Repeats == 0 {
		out = append(out, fmt.Sprintf("runs.repeats=%d", n))
	}
	if f.Repeats > 0 {
		out = append(out, fmt.Sprintf("runs.repeats=%d", f.Repeats))
	}
	if f.Seed != nil {
		out = append(out, fmt.Sprintf("seed=%d", *f.Seed))
	}
	return out
}

// parsed is one scenario file, read.
type parsed struct {
	file     string
	scenario *scenario.Scenario
}

// parse reads all files and reports the mistakes of all of them.
func (f *scenarioFlags) parse() ([]parsed, error) {
	if f.Repeats < 0 {
		return nil, cli.Usage(fmt.Errorf("-repeats is %d: give at least 1", f.Repeats))
	}
	var out []parsed
	var wrong []error
	names := map[string]string{}
	for _, file := range f.Files {
		sc, err := scenario.Parse(file, f.sets())
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		if old, ok := names[sc.Name]; ok {
			wrong = append(wrong, fmt.Errorf("%s and %s have the same name %q: rename one, run directories are named by it", old, file, sc.Name))
		}
		names[sc.Name] = file
		if f.Profile == "quick" && f.Repeats == 0 {
			sc.Runs.Repeats = min(sc.Runs.Repeats, quickBlocks)
		}
		out = append(out, parsed{file, sc})
	}
	if len(wrong) > 0 {
		return nil, cli.Usage(errors.Join(wrong...))
	}
	return out, nil
}

type runCmd struct {
	scenarioFlags
	Out         string            `help:"Run directory to make; nothing may be in it. Default: results/<time>-<name>." type:"path"`
	Server      string            `help:"The server binary. Default: 'server' beside mqbench." type:"path"`
	Title       string            `help:"Title of the report over several scenarios."`
	Progress    string            `help:"auto: a live line on a terminal, plain lines elsewhere." enum:"auto,plain,none" default:"auto"`
	Sabotage    string            `help:"Plant a fault in every broker, to see the checks catch it: ack-before-commit, skip-dedupe, hide-batches, append-twice, diverge, commit-before-votes, skip-epoch-check, marker-to-one-partition, forget-group-generation or no-barrier." enum:"ack-before-commit,skip-dedupe,hide-batches,append-twice,diverge,commit-before-votes,skip-epoch-check,marker-to-one-partition,forget-group-generation,no-barrier," default:""`
	Failpoint   map[string]string `help:"Arm a failpoint in every broker, as in produce/before-answer='error probability=0.002'; may be repeated." placeholder:"NAME=ACTION" mapsep:"none"`
	SabotageArg int64             `help:"Argument of the planted fault: one in N, or milliseconds; 0: its default."`
}

// Run executes the scenarios one after the other. The process may be replaced
// by one in a network namespace first: see fault.Enter.
func (c *runCmd) Run(s *streams) error {
	list, err := c.parse()
	if err != nil {
		return err
	}
	if err := canRunTogether(list); err != nil {
		return err
	}
	if err := c.findSystems(list); err != nil {
		return err
	}
	out := c.Out
	if out == "" {
		out = filepath.Join("results", time.Now().Format("20060102-150405")+"-"+setName(list))
	}
	if err := vacant(out, list); err != nil {
		return err
	}
	network, reason := enterNamespace(list)
	ctx, stop := interruptible(s)
	defer stop()
	p := newProgress(s.err, c.Progress)
	clusters := suite.NewClusters(out + ".clusters")
	defer clusters.Close()
	var runs []*result.Run
	var failed error
	for _, sc := range list {
		r, err := suite.Run(ctx, suite.Config{Scenario: sc.scenario, File: fromHere(sc.file), Command: c.command(sc), Profile: c.profile(), Tool: cli.Version(),
			Commit: cli.Commit(), Out: runDir(out, list, sc), Server: c.Server, Clusters: clusters, Net: network, NetReason: reason,
			Sabotage: suite.Sabotage{Name: c.Sabotage, Arg: c.SabotageArg}, Failpoints: c.Failpoint, Progress: p})
		if r != nil {
			runs = append(runs, r)
		}
		if failed = err; err != nil || ctx.Err() != nil {
			break
		}
	}
	clusters.Close() // before the reports are drawn: nothing is measured any more
	return c.conclude(ctx, s, out, runs, failed)
}

// runDir is where a scenario's run goes: a set has a directory for each.
func runDir(out string, list []parsed, p parsed) string {
	if len(list) == 1 {
		return out
	}
	return filepath.Join(out, p.scenario.Name)
}

// vacant refuses directories that hold something, before the first scenario has
// spent its time.
func vacant(out string, list []parsed) error {
	errs := []error{result.Free(out)}
	for _, p := range list {
		if dir := runDir(out, list, p); dir != out {
			errs = append(errs, result.Free(dir))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// conclude tells the verdicts, draws the reports and decides the exit code. What
// was judged is told and decides first, whatever else failed.
func (c *runCmd) conclude(ctx context.Context, s *streams, out string, runs []*result.Run, failed error) error {
	for _, r := range runs {
		printSummary(s.out, r)
	}
	beside := report.SideBySide(runs)
	for _, b := range beside {
		fmt.Fprintf(s.out, "\n%s", b.Text())
	}
	if goals, ok := report.Goals(beside); ok {
		fmt.Fprintf(s.out, "\n%s", goals.Text())
	}
	failed = errors.Join(failed, c.draw(s, out, runs))
	code := exitOf(ctx, runs)
	switch {
	case failed == nil:
		return code
	case cli.Code(code) == suite.ExitViolation:
		return &cli.Error{Code: suite.ExitViolation, Err: errors.Join(code, failed)}
	case ctx.Err() != nil:
		return &cli.Error{Code: suite.ExitInterrupted, Err: errors.Join(code, failed)}
	case errors.Is(failed, suite.ErrEnvironment):
		return cli.Environment(failed)
	}
	return failed
}

// draw renders each run's report, and the one over all of them. A figure that
// cannot be drawn costs the report, never the verdict.
func (c *runCmd) draw(s *streams, out string, runs []*result.Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("draw the report: %v", p)
		}
	}()
	var dirs []string
	for _, r := range runs {
		dirs = append(dirs, r.Path)
		if err := report.Render([]string{r.Path}, r.Path, ""); err != nil {
			return fmt.Errorf("%w: draw the report of %s: %w", suite.ErrEnvironment, r.Path, err)
		}
	}
	if len(runs) == 0 {
		return nil
	}
	page := filepath.Join(runs[0].Path, result.ReportFile)
	if len(runs) > 1 {
		page = filepath.Join(out, result.ReportFile)
		if err := report.Render(dirs, out, c.Title); err != nil {
			return fmt.Errorf("%w: draw the report over all scenarios: %w", suite.ErrEnvironment, err)
		}
	}
	linkLatest(out)
	fmt.Fprintf(s.out, "\nreport: %s\n", page)
	return nil
}

// exitOf picks the gravest exit code: safety, then interruption, then validity,
// then thresholds.
func exitOf(ctx context.Context, runs []*result.Run) error {
	for _, code := range []int{suite.ExitViolation, suite.ExitInterrupted, suite.ExitUnusable, suite.ExitThreshold} {
		if code == suite.ExitInterrupted {
			if ctx.Err() != nil {
				return &cli.Error{Code: code, Err: errors.New("interrupted: the report covers the trials that ended")}
			}
			continue
		}
		for _, r := range runs {
			if r.Results.ExitCode == code {
				return &cli.Error{Code: code, Err: errors.New(r.Manifest.Scenario.Name + ": " + exitWord(code, r.Results))}
			}
		}
	}
	return nil
}

var exitWords = map[int]string{
	suite.ExitViolation: "a delivery guarantee was violated",
	suite.ExitThreshold: "a threshold was missed",
}

// exitWord says why a run ends with its code.
func exitWord(code int, r result.Results) string {
	switch {
	case code != suite.ExitUnusable:
		return exitWords[code]
	case len(r.Trials) == 0:
		return "no trial was run, so nothing is known"
	case r.Verdict == check.Inconclusive:
		return "delivery could not be judged; the report says what is missing"
	case len(r.Valid()) == 0:
		return "every trial was set aside, so there is no sound latency or rate; what was delivered is judged all the same"
	}
	return "a line of expect was left undecided; more -repeats or a quieter machine decide it"
}

// findSystems makes sure, before anything takes time, that what the scenarios
// launch is on this machine.
func (c *runCmd) findSystems(list []parsed) error {
	for _, p := range list {
		needed := map[string]bool{}
		for _, cell := range p.scenario.Expand() {
			needed[cell.Target.System] = true
		}
		if needed["kafka"] {
			if _, _, _, err := target.FindKafka(); err != nil {
				return cli.Environment(fmt.Errorf("%s cannot be run here: %w", p.scenario.Name, err))
			}
		}
		if !needed["gopherlog"] || c.Server != "" {
			continue
		}
		var err error
		if c.Server, err = locateServer(); err != nil {
			return err
		}
	}
	return nil
}

// locateServer looks beside this binary.
func locateServer() (string, error) {
	self, err := os.Executable()
	if err == nil {
		beside := filepath.Join(filepath.Dir(self), "server")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return "", cli.Environment(fmt.Errorf("the server binary was not found beside mqbench: run `make build`, or name it with -server"))
}

func (c *runCmd) profile() string {
	if c.Profile == "" {
		return "custom"
	}
	return c.Profile
}

// fromHere names a file by its path below the working directory, where it is
// below it: a run directory that travels says nothing of the machine it is from.
func fromHere(file string) string {
	wd, err := os.Getwd()
	if err != nil {
		return file
	}
	rel, err := filepath.Rel(wd, file)
	if err != nil || strings.HasPrefix(rel, "..") {
		return file
	}
	return rel
}

// command is the line that repeats one scenario of this run.
func (c *runCmd) command(p parsed) string {
	line := "mqbench run " + fromHere(p.file)
	if c.Profile != "" {
		line += " -profile " + c.Profile
	}
	if c.Repeats > 0 {
		line += fmt.Sprintf(" -repeats %d", c.Repeats)
	}
	if c.Sabotage != "" {
		line += " -sabotage " + c.Sabotage
	}
	if c.SabotageArg != 0 {
		line += fmt.Sprintf(" -sabotage-arg %d", c.SabotageArg)
	}
	for _, k := range slices.Sorted(maps.Keys(c.Failpoint)) {
		line += fmt.Sprintf(" -failpoint %q", k+"="+c.Failpoint[k])
	}
	for _, kv := range c.Set {
		line += fmt.Sprintf(" -set %q", kv)
	}
	return line + fmt.Sprintf(" -seed %d", p.scenario.Seed)
}

func setName(list []parsed) string {
	if len(list) == 1 {
		return list[0].scenario.Name
	}
	return "set"
}

// enterNamespace enters a network namespace of its own if any scenario parts
// the network. Without one those faults are skipped, and the reason is printed.
func enterNamespace(list []parsed) (fault.Network, string) {
	for _, p := range list {
		for _, f := range p.scenario.Faults {
			if f.Kind == "partition" {
				n, err := fault.Enter()
				if err != nil {
					return nil, err.Error()
				}
				return n, ""
			}
		}
	}
	return nil, "no scenario parts the network"
}

// interruptible ends the context at the first interrupt, so that the running
// trial is closed and the report written; the second ends the process at once.
func interruptible(s *streams) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		fmt.Fprintln(s.err, "\ninterrupted: ending the trial and writing the report; interrupt again to stop at once")
		cancel()
		<-signals
		os.Exit(suite.ExitInterrupted)
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}

// linkLatest points results/latest at a run directory under results.
func linkLatest(out string) {
	abs, err := filepath.Abs(out)
	if err != nil || filepath.Base(filepath.Dir(abs)) != "results" {
		return
	}
	link := filepath.Join(filepath.Dir(abs), "latest")
	if st, err := os.Lstat(link); err == nil && st.Mode()&os.ModeSymlink == 0 {
		return // somebody's own file or directory
	}
	fresh := fmt.Sprintf("%s.%d", link, os.Getpid())
	if os.Symlink(filepath.Base(abs), fresh) == nil && os.Rename(fresh, link) != nil {
		_ = os.Remove(fresh)
	}
}
