package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/load"
	"gopherlog/bench/price"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/suite"
	"gopherlog/cmd/internal/cli"
)

type priceCmd struct {
	connectFlags
	Rate       string        `help:"Records offered a second, over all producers; nothing is sent faster. Default: ${default}." default:"1k/s" placeholder:"N/s"`
	Saturate   bool          `help:"Measure the greatest throughput as well: loads the cluster as much as it takes, for four minutes."`
	Guarantees []string      `help:"Guarantees to price; at_least_once must be among them. Default: all." placeholder:"NAME"`
	Producers  int           `help:"Producer clients." default:"2"`
	Partitions int           `help:"Partitions of a topic." default:"6"`
	Copies     int           `name:"replication-factor" help:"Copies of a partition. Default: the cluster's."`
	Bytes      int           `name:"record-bytes" help:"Bytes of a record's value." default:"1024"`
	Records    int           `name:"txn-records" help:"Records of a transaction, which lasts 100ms at most." default:"100"`
	Workers    int           `help:"Workers that read in a group, make a record of each and commit, for the end-to-end price of a pipeline; 0: none." default:"0"`
	Blocks     int           `help:"Repeats; six are the least that give an interval." default:"6"`
	Steady     time.Duration `help:"Measured part of a trial; a third of it is sent before." default:"4.5s"`
	Seed       int64         `help:"Seed of everything random." default:"1"`
	Prefix     string        `help:"Begins the name of everything that is created." default:"mqbench-price-"`
	DryRun     bool          `help:"List what would be created and which rights that takes; create nothing."`
	Cleanup    bool          `help:"Remove what earlier runs left; measure nothing."`
	Yes        bool          `help:"Do not ask before leftovers are removed."`
	Out        string        `help:"Run directory to make; nothing may be in it. Default: results/<time>-price." type:"path"`
	Progress   string        `help:"auto: a live line on a terminal, plain lines elsewhere." enum:"auto,plain,none" default:"auto"`
}

// Run prices the guarantees of a running cluster. Whatever it creates is gone when it returns, or is named.
func (c *priceCmd) Run(s *streams) error {
	options, err := c.options()
	security, e := c.security(s)
	if err = errors.Join(err, e); err != nil {
		return cli.Usage(err)
	}
	ctx, stop := interruptedOnce(s)
	defer stop()
	i, err := load.NewInspector(load.KafkaConfig{Bootstrap: c.Brokers, Security: security})
	if err != nil {
		return err
	}
	defer i.Close()
	welcome, err := price.Greeted(i.Greet(ctx), security)
	switch {
	case errors.Is(err, price.ErrTwoClusters):
		return cli.Usage(err)
	case err != nil:
		return cli.Environment(err)
	}
	facts, err := i.Facts(ctx)
	if err != nil {
		return cli.Environment(price.Explain(err, welcome.Answered, security))
	}
	c.Brokers = welcome.Answered
	options.Brokers, options.Silent = welcome.Answered, welcome.Silent
	plan, err := price.NewPlan(options, facts)
	if err != nil {
		return err
	}
	p := &pricing{priceCmd: c, streams: s, ctx: ctx, inspector: i, security: security, plan: plan}
	p.introduce(welcome.Notes)
	if why := price.Unreachable(facts); why != "" {
		return cli.Environment(errors.New(why))
	}
	switch {
	case c.Cleanup:
		return p.cleanup()
	case c.DryRun:
		return p.dryRun()
	}
	return p.run()
}

func (c *priceCmd) options() (price.Options, error) {
	o := price.Options{Brokers: c.Brokers, Prefix: c.Prefix, Guarantees: price.Guarantees, Saturate: c.Saturate, Producers: c.Producers,
		Partitions: c.Partitions, Copies: c.Copies, Bytes: c.Bytes, Records: c.Records, Workers: c.Workers, Blocks: c.Blocks, Steady: c.Steady, Seed: c.Seed}
	if len(c.Guarantees) > 0 {
		o.Guarantees = nil
		for _, g := range c.Guarantees {
			o.Guarantees = append(o.Guarantees, scenario.Guarantee(g))
		}
	}
	var err error
	if o.Rate, err = price.ParseRate(c.Rate); err != nil {
		o.Rate = 1 // its own mistake is told
		err = fmt.Errorf("-rate: %w", err)
	}
	return o, errors.Join(err, o.Validate())
}

// pricing is one call of the command.
type pricing struct {
	*priceCmd
	*streams
	ctx       context.Context
	inspector *load.Inspector
	security  *load.Security
	plan      *price.Plan
	checked   *price.Report
	silent    []string // brokers that stopped answering during the run
	swept     bool
}

// introduce says what was found.
func (p *pricing) introduce(notes []string) {
	f := p.plan.Facts
	if len(notes) > 0 {
		p.list("note: ", append(notes, fmt.Sprintf("%s answered, and one is enough", strings.Join(p.plan.Brokers, ", "))))
	}
	like := ""
	if f.Resembles != "" {
		like = ", which answers like Kafka " + f.Resembles
	}
	fmt.Fprintf(p.out, "cluster %s%s; %s\n", f.ClusterID, like, p.security)
	for _, b := range f.Brokers {
		rack := ""
		if b.Rack != "" {
			rack = " in rack " + b.Rack
		}
		fmt.Fprintf(p.out, "  broker %d at %s%s\n", b.ID, b.Addr, rack)
	}
	for _, b := range f.Down {
		fmt.Fprintf(p.out, "  broker %d at %s is down, says the cluster\n", b.ID, b.Addr)
	}
}

// extent says how much a run would be.
func (p *pricing) extent() string {
	trials, short := p.plan.Trials()
	text := fmt.Sprintf("%d trials in about %s, at most %s", trials, price.Span(p.plan.Takes().Round(10*time.Second)), price.Span(price.MostTime))
	if short > 0 {
		text += fmt.Sprintf(" (%d of %d blocks; more do not fit: fewer -guarantees, or a shorter -steady, leave room for them)", p.plan.Blocks-short, p.plan.Blocks)
	}
	return text
}

// dryRun lists everything, and asks what can be asked without an effect.
func (p *pricing) dryRun() error {
	fmt.Fprintln(p.out)
	p.list("", []string{fmt.Sprintf("A run would make %s. It would create, TIME being when it begins:", p.extent())})
	p.list("  - ", p.plan.Creates())
	fmt.Fprintf(p.out, "\nBeside these it would touch:\n")
	p.list("  - ", p.plan.Touches())
	fmt.Fprintf(p.out, "\nIt would need these rights, which are tried with one record before the load:\n")
	var rights []string
	for _, r := range p.plan.Wants() {
		rights = append(rights, r.String())
	}
	p.list("  - ", rights)
	for _, g := range p.plan.Guarantees {
		if why := p.plan.Unavailable[g]; why != "" {
			p.list("", []string{fmt.Sprintf("%s is n/a: %s", g, why)})
		}
	}
	if l, err := p.leftovers(""); err == nil {
		p.tellLeftovers(l)
	}
	report, err := p.plan.Check(p.ctx, p.inspector, time.Now(), true)
	if err != nil {
		return cli.Environment(err)
	}
	if len(report.Missing) > 0 {
		return p.refused(report)
	}
	fmt.Fprintln(p.out)
	p.list("", []string{"Nothing was created. The rights to create and to remove topics were asked for, and are there."})
	return nil
}

func (p *pricing) refused(r *price.Report) error {
	fmt.Fprintf(p.out, "\n%s", r.Text(p.security.Principal(), p.Brokers[0]))
	var names []string
	for _, m := range r.Missing {
		names = append(names, m.String())
	}
	return cli.Environment(fmt.Errorf("no load was sent: missing %s", strings.Join(names, "; ")))
}

// run tries the rights, measures, removes, and tells.
func (p *pricing) run() (err error) {
	out := p.Out
	if out == "" {
		out = filepath.Join("results", time.Now().Format("20060102-150405")+"-price")
	}
	if err := result.Free(out); err != nil {
		return cli.Usage(err)
	}
	if err := p.offerLeftovers(); err != nil {
		return err
	}
	defer func() { err = p.conclude(err) }()
	report, err := p.plan.Check(p.ctx, p.inspector, time.Now(), false)
	switch {
	case p.ctx.Err() != nil:
		return p.interrupted()
	case err != nil:
		return cli.Environment(err)
	case len(report.Missing) > 0:
		return p.refused(report)
	}
	p.checked = report
	p.list("note: ", report.Notes)
	p.list("", []string{fmt.Sprintf("rights: all there. %s; everything created begins with %s", p.extent(), p.plan.Stem())})
	runs, failed := p.measure(out)
	return p.tell(out, runs, failed, p.sweep())
}

func (p *pricing) interrupted() error {
	return &cli.Error{Code: suite.ExitInterrupted, Err: errors.New("interrupted before the load began")}
}

// measure runs the plan's scenarios one after the other.
func (p *pricing) measure(out string) (runs []*result.Run, err error) {
	list := make([]parsed, len(p.plan.Scenarios))
	for n, sc := range p.plan.Scenarios {
		list[n] = parsed{sc.Name, sc}
	}
	progress := sayOnce(newProgress(p.err, p.Progress), p.checked.Effective == nil, len(p.plan.Priced()))
	progress.between = p.missing
	for _, sc := range list {
		r, err := suite.Run(p.ctx, suite.Config{Scenario: sc.scenario, File: sc.scenario.Name + " (built in)", Command: p.command(), Profile: "price", Tool: cli.Version(), Commit: cli.Commit(),
			Out: runDir(out, list, sc), Security: p.security, NetReason: "the cluster is external", Progress: progress.orNone()})
		if r != nil {
			runs = append(runs, r)
		}
		if err != nil || p.ctx.Err() != nil {
			return runs, err
		}
		p.missing() // also where nobody sees the progress
	}
	return runs, nil
}

// missing asks between two trials which brokers of the beginning do not answer any more, and says so of each once.
func (p *pricing) missing() (news []string) {
	ctx, cancel := context.WithTimeout(p.ctx, 3*time.Second)
	defer cancel()
	now, err := p.inspector.Facts(ctx)
	if err != nil { // the next trial tells
		return nil
	}
	for _, b := range p.plan.Facts.Brokers {
		name := fmt.Sprintf("broker %d at %s", b.ID, b.Addr)
		here := slices.ContainsFunc(now.Brokers, func(n load.Broker) bool { return n.ID == b.ID && n.Unreachable == nil })
		if !here && !slices.Contains(p.silent, name) {
			p.silent = append(p.silent, name)
			news = append(news, name+" does not answer any more: the trial that has just ended and those that follow had a cluster without it")
		}
	}
	return news
}

// once passes on one note of each kind: what is so in one trial of a cluster is so in the next. When the first block ends without a sound
// trial it says so: nobody should wait to the end for a list without figures.
type once struct {
	suite.Progress
	mu    sync.Mutex
	seen  map[string]bool
	block int // trials of one
	ended int
	sound int

	between func() []string // what is to be said between two trials
}

// sayOnce wraps a progress that may be nil. That topics' settings cannot be read may have been said before.
func sayOnce(p suite.Progress, noSettings bool, block int) *once {
	return &once{Progress: p, seen: map[string]bool{"the topic's effective settings could not be read back": noSettings}, block: block}
}

// orNone is nil where nobody wants to see anything.
func (o *once) orNone() suite.Progress {
	if o.Progress == nil {
		return nil
	}
	return o
}

// TrialEnds counts the trials that were not set aside.
func (o *once) TrialEnds(t result.Trial, took, remaining time.Duration) {
	o.Progress.TrialEnds(t, took, remaining)
	if o.between != nil {
		for _, news := range o.between() {
			o.Progress.Note(news)
		}
	}
	o.mu.Lock()
	o.ended++
	if len(t.Invalid) == 0 {
		o.sound++
	}
	hopeless := o.ended == o.block && o.sound == 0
	o.mu.Unlock()
	if hopeless {
		o.Note("no trial of the first block is sound, and if that goes on there will be no prices: a client machine that does nothing else, or a lower -rate, changes it. Ctrl-C ends the run and removes what it made")
	}
}

// Note drops what begins, up to its colon, like an earlier note.
func (o *once) Note(text string) {
	kind, _, _ := strings.Cut(text, ":")
	o.mu.Lock()
	said := o.seen[kind]
	o.seen[kind] = true
	o.mu.Unlock()
	if !said {
		o.Progress.Note(text)
	}
}

// command is the line that repeats the run; it never held a password.
func (p *pricing) command() string {
	line := "mqbench price"
	for _, a := range os.Args[min(2, len(os.Args)):] {
		line += " " + a
	}
	return line
}

// tell draws the report, writes the list beside it and prints it last.
func (p *pricing) tell(out string, runs []*result.Run, failed, left error) error {
	judge := &runCmd{Title: "What does each delivery guarantee cost on " + p.Brokers[0] + "?"}
	for _, r := range runs {
		if r.Results.Verdict == check.Violated { // with its witnesses; else the list says all
			printSummary(p.out, r)
		}
	}
	failed = errors.Join(failed, judge.draw(p.streams, out, runs))
	list := price.List{Plan: p.plan, Report: p.checked, Runs: runs, Silent: p.silent}
	if len(runs) > 0 {
		failed = errors.Join(failed, os.WriteFile(filepath.Join(out, "price.txt"), []byte(list.Text(120)), 0o644))
	}
	fmt.Fprintf(p.out, "\n%s", list.Text(columns()))
	code := exitOf(p.ctx, runs)
	if code == nil && !list.Priced() {
		code = cli.Environment(errors.New("no trial of at_least_once is sound, so there is nothing to tell prices by"))
	}
	if left != nil {
		failed = errors.Join(failed, fmt.Errorf("%w: %w", suite.ErrEnvironment, left))
	}
	switch {
	case failed == nil:
		return code
	case p.ctx.Err() != nil:
		return &cli.Error{Code: suite.ExitInterrupted, Err: errors.Join(code, failed)}
	case cli.Code(code) == suite.ExitViolation:
		return &cli.Error{Code: suite.ExitViolation, Err: errors.Join(code, failed)}
	case errors.Is(failed, suite.ErrEnvironment):
		return cli.Environment(failed)
	}
	return failed
}

// list prints paragraphs, each behind its mark.
func (p *pricing) list(mark string, paragraphs []string) {
	for _, x := range paragraphs {
		for _, line := range price.Wrap(mark, x, columns()) {
			fmt.Fprintln(p.out, line)
		}
	}
}

// interruptedOnce ends the context at the first interrupt: the trial is closed, what was created is removed, and the report is written. The
// second interrupt ends the process at once, and says what that leaves.
func interruptedOnce(s *streams) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		fmt.Fprintln(s.err, "\ninterrupted: ending the trial and removing what was created; interrupt again to stop at once")
		cancel()
		<-signals
		fmt.Fprintln(s.err, "\nstopped at once: `mqbench price -cleanup` finds what is left on the cluster")
		os.Exit(suite.ExitInterrupted)
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}
