package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gopherlog/bench/hdr"
	"gopherlog/bench/history"
)

// runner is one trial while it runs.
type runner struct {
	plan   Plan
	driver Driver
	clock  *Clock
	topics []topicPlan
	inputs []topicPlan         // those that producers send to
	places []history.Partition // flat index → partition

	history *history.Writer // nil: none kept
	senders []*sender
	reader  *reader
	groups  *groups // nil: none
	outages []outageTracker
	stalls  []stallTracker
	acked   ends // highest acknowledged offset + 1
	stood   standing
	waiting atomic.Int64
	errors  *errorTable
	invalid []string      // owned by the goroutine of Run
	settled time.Duration // when the last outcome was known

	caughtUp time.Duration // when the visible reader was given up or had read all
}

// topicPlan places a topic's partitions in the flat order.
type topicPlan struct {
	name       string
	partitions int
	first      int // flat index of partition 0
}

// Run creates the topics, sends on schedule through all phases, reads along, drains with a fresh client, and deletes nothing.
// It returns an outcome also where ctx ended early (Partial is set, and nothing is drained); an error means that no trial took place.
func Run(ctx context.Context, d Driver, p Plan) (*Outcome, error) {
	p.defaults()
	r := &runner{plan: p, driver: d, clock: p.Clock, errors: newErrorTable()}
	for _, t := range p.Topics {
		r.topics = append(r.topics, topicPlan{t.Name, t.Partitions, len(r.places)})
		if t.Name != p.Consumers.Transform.To {
			r.inputs = append(r.inputs, r.topics[len(r.topics)-1])
		}
		for i := range t.Partitions {
			r.places = append(r.places, history.Partition{Topic: t.Name, Partition: int32(i)})
		}
	}
	r.outages, r.stalls, r.acked = make([]outageTracker, len(r.places)), make([]stallTracker, len(r.places)), make(ends, len(r.places))
	r.stood = make(standing, len(r.places))
	if len(r.places) == 0 {
		return nil, errors.New("load: a plan without partitions")
	}
	if err := d.CreateTopics(ctx, p.Topics); err != nil {
		return nil, fmt.Errorf("load: create topics: %w", err)
	}
	if p.HistoryDir != "" {
		w, err := history.Create(p.HistoryDir, p.RunID, r.places)
		if err != nil {
			return nil, err
		}
		r.history = w
		defer w.Close()
	}
	return r.run(ctx)
}

func (r *runner) run(ctx context.Context) (*Outcome, error) {
	cfg, err := ConfigOf(r.plan.Guarantee, r.plan.Producers, r.plan.Load.MaxOutstanding)
	if err != nil {
		return nil, err
	}
	defer func() { // closes what a failed start leaves; after a whole trial these are closed already, and closing again does nothing
		for _, s := range r.senders {
			s.producer.Close()
		}
	}()
	if err := r.connect(ctx, cfg); err != nil {
		return nil, err
	}
	answers, err := r.stream(history.RoleEnds, "ends")
	if err != nil {
		r.reader.stop()
		return nil, err
	}
	if r.groups, err = r.openGroups(cfg); err != nil {
		r.reader.stop()
		return nil, err
	}
	before := use()
	r.clock.Start()
	r.reader.start()
	if r.groups != nil {
		r.groups.start()
		r.plan.Workers.set(r.groups.crews[r.plan.Consumers.Groups[0].Name])
	}
	background, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { r.askEnds(background, answers) })
	beside.Go(func() { r.report(background) })
	r.send(ctx)
	client := use().since(before)
	stop()
	beside.Wait()
	r.settle(ctx)
	out := &Outcome{Zero: r.clock.Zero(), Model: r.plan.Load.Model, Settings: r.driver.Settings(cfg), Client: client, Partial: ctx.Err() != nil}
	if r.plan.BeforeDrain != nil {
		r.plan.BeforeDrain()
	}
	if r.groups != nil {
		limit, cancel := context.WithTimeout(ctx, r.plan.Phases.Drain)
		r.groups.finish(limit)
		cancel()
	}
	out.Drain = r.drain(ctx, answers)
	r.reader.stop()
	r.caughtUp = r.clock.Now()
	r.fill(out)
	return out, nil
}

// connect makes producers, the visible reader and their history streams.
func (r *runner) connect(ctx context.Context, cfg ProducerConfig) error {
	n := r.plan.Producers.Count
	for i := range n {
		cfg.ClientID = fmt.Sprintf("mqbench-producer-%02d", i)
		s, err := r.sender(ctx, cfg, i, n)
		if err != nil {
			return err
		}
		r.senders = append(r.senders, s)
	}
	reads, err := r.stream(history.RoleReads, "reads")
	if err != nil {
		return err
	}
	if r.plan.Alone {
		r.reader = newReader(r, nobody{}, reads)
		return nil
	}
	c, err := r.driver.NewConsumer(ctx, r.consumerConfig("mqbench-reader"))
	if err != nil {
		return fmt.Errorf("load: connect the reader: %w", err)
	}
	r.reader = newReader(r, c, reads)
	r.reader.stalls, r.reader.polls = r.stalls, true
	return nil
}

func (r *runner) consumerConfig(id string) ConsumerConfig {
	return ConsumerConfig{ClientID: id, Topics: r.plan.Topics, ReadCommitted: r.plan.Guarantee.Transacts()}
}

func (r *runner) sender(ctx context.Context, cfg ProducerConfig, i, n int) (*sender, error) {
	l, seed := r.plan.Load, r.plan.Seed
	s := &sender{run: r, index: uint16(i), keys: newKeys(l.Keys, seed, i, n), bodies: newBodies(l.Value, r.plan.Producers.Compression, seed, i),
		choice: newPartitioner(l.Partitioner, seed, i), sequence: make([]uint64, len(r.places)), topic: i % len(r.inputs),
		late: hdr.NewRecorder(r.plan.Interval), ack: hdr.NewRecorder(r.plan.Interval), failures: hdr.NewRecorder(r.plan.Interval),
		sent: newTally(r.plan.Phases, r.plan.Interval), done: newTally(r.plan.Phases, r.plan.Interval)}
	if l.Model == "closed" {
		share := max(1, l.MaxOutstanding/n)
		s.tokens = make(chan struct{}, share)
		for range share {
			s.tokens <- struct{}{}
		}
	}
	var err error
	if s.sends, err = r.stream(history.RoleSends, fmt.Sprintf("sends-%02d", i)); err != nil {
		return nil, err
	}
	if s.acks, err = r.stream(history.RoleAcks, fmt.Sprintf("acks-%02d", i)); err != nil {
		return nil, err
	}
	cfg.TransactionalID = TransactionalID(r.plan.Guarantee, r.plan.Prefix, r.plan.RunID, i)
	if s.producer, err = r.driver.NewProducer(ctx, cfg); err != nil {
		return nil, fmt.Errorf("load: connect producer %d: %w", i, err)
	}
	if cfg.TransactionalID != "" {
		if err := s.openTransactions(ctx, cfg); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// openTransactions begins the producer's first session.
func (s *sender) openTransactions(ctx context.Context, cfg ProducerConfig) error {
	log, err := s.run.stream(history.RoleTxns, fmt.Sprintf("txns-%02d", s.index))
	if err != nil {
		return err
	}
	s.txn = newTransactions(s, cfg, log)
	ctx, cancel := context.WithTimeout(ctx, createPatience) // the first one waits until there is a coordinator
	defer cancel()
	for {
		err := s.txn.init(ctx)
		if err == nil {
			return nil
		}
		s.producer.Close()
		if !pause(ctx, sessionPause) {
			return fmt.Errorf("load: producer %d: %w", s.index, err)
		}
		if s.producer, err = s.run.driver.NewProducer(ctx, cfg); err != nil {
			return fmt.Errorf("load: connect producer %d: %w", s.index, err)
		}
	}
}

// stream is a history file, or nil where none is kept.
func (r *runner) stream(role, name string) (*history.Stream, error) {
	if r.history == nil {
		return nil, nil
	}
	return r.history.Stream(role, name)
}

// send runs every sender until the load ends.
func (r *runner) send(ctx context.Context) {
	end := r.plan.Phases.Sending()
	n := len(r.senders)
	failed := make([]error, n)
	var wg sync.WaitGroup
	for i, s := range r.senders {
		wg.Go(func() {
			switch {
			case s.tokens != nil && s.txn != nil:
				failed[i] = s.txn.loop(ctx, end)
				return
			case s.tokens != nil:
				failed[i] = s.closed(ctx, end)
				return
			}
			pacer := NewPacer(r.clock, NewArrivals(r.plan.Load, r.plan.Seed, i, n), n)
			pacer.sleep = r.plan.sleep
			var transacting sync.WaitGroup
			var transacted error
			if s.txn != nil {
				late, cancel := context.WithCancel(ctx)
				defer cancel()
				time.AfterFunc(end-r.clock.Now()+r.plan.Phases.Drain, cancel)
				transacting.Go(func() { transacted = s.txn.loop(late, end) })
			}
			failed[i] = s.paced(ctx, pacer, end)
			if s.txn != nil {
				close(s.txn.due)
				transacting.Wait()
				failed[i] = errors.Join(failed[i], transacted)
			}
		})
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil && ctx.Err() == nil {
			r.invalid = append(r.invalid, "a sender ended early: "+err.Error())
		}
	}
}

// settle waits for the outcomes of what was sent, at most as long as the drain phase lasts, and closes the producers: what has no
// outcome then becomes unknown.
func (r *runner) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.plan.Phases.Drain)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range r.senders {
		wg.Go(func() {
			_ = s.producer.Flush(ctx) // what Flush did not see through, Close ends with an outcome
			s.producer.Close()
		})
	}
	wg.Wait()
	r.settled = r.clock.Now()
	if n := r.waiting.Load(); n != 0 {
		r.invalid = append(r.invalid, fmt.Sprintf("%d messages got no outcome from the client", n))
	}
}

// note makes the trial one that proves nothing, and says why.
func (r *runner) note(why string) { r.invalid = append(r.invalid, why) }

func (r *runner) highest(partition int, end int64) { r.acked.raise(partition, end) }

// fill puts together what everybody recorded.
func (r *runner) fill(out *Outcome) {
	var tallies []*tally
	var late, ack, failures, commit, end []*hdr.Recorder
	for _, s := range r.senders {
		tallies = append(tallies, s.sent, s.done)
		late, ack, failures = append(late, s.late), append(ack, s.ack), append(failures, s.failures)
		if s.txn != nil {
			commit, end = append(commit, s.txn.commit), append(end, s.txn.end)
		}
	}
	tallies = append(tallies, r.reader.tally)
	if r.groups != nil {
		for _, m := range r.groups.members {
			tallies = append(tallies, m.tally)
		}
	}
	out.Phases, out.Seconds = total(r.plan.Phases, r.plan.Interval, tallies)
	out.Late, out.Ack, out.Failures = hdr.Merge(late...), hdr.Merge(ack...), hdr.Merge(failures...)
	out.Visible, out.EndToEnd = hdr.Merge(r.reader.visible), hdr.Merge(r.reader.through)
	if r.plan.Guarantee.Transacts() {
		out.Commit, out.EndTxn = hdr.Merge(commit...), hdr.Merge(end...)
	}
	for i := range r.outages {
		out.Outages = append(out.Outages, r.outages[i].finish(r.settled, r.places[i].Topic, r.places[i].Partition)...)
		if !r.plan.Alone {
			out.Stalls = append(out.Stalls, r.stalls[i].finish(r.caughtUp, r.places[i].Topic, r.places[i].Partition)...)
		}
		out.Paces = append(out.Paces, Pace{Topic: r.places[i].Topic, Partition: r.places[i].Partition, Step: paceStep, Acked: r.outages[i].paces})
	}
	out.Errors = r.errors.list()
	if r.history != nil {
		if err := r.history.Close(); err != nil {
			r.invalid = append(r.invalid, err.Error())
		}
		if out.History = r.history.Stats(); out.History.Dropped > 0 {
			r.invalid = append(r.invalid, fmt.Sprintf("%d records of the history were lost: the disk fell behind", out.History.Dropped))
		}
	}
	if n := out.Visible.Negative(); n > 0 {
		r.invalid = append(r.invalid, fmt.Sprintf("%d messages were read before they were due", n))
	}
	out.Invalid = r.invalid
}

// report tells the progress once per interval.
func (r *runner) report(ctx context.Context) {
	tick := time.NewTicker(r.plan.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.plan.Progress(r.glance())
		}
	}
}

func (r *runner) glance() Progress {
	var tallies []*tally
	var acks []*hdr.Recorder
	for _, s := range r.senders {
		tallies = append(tallies, s.sent, s.done)
		acks = append(acks, s.ack)
	}
	phases, ticks := total(r.plan.Phases, r.plan.Interval, append(tallies, r.reader.tally))
	now := r.clock.Now()
	p := Progress{At: now, Phase: r.plan.Phases.Of(now), Waiting: r.waiting.Load()}
	for _, c := range phases {
		p.Failed += c.Failed + c.Unknown
		p.Shed += c.Shed
	}
	last := int(now/r.plan.Interval) - 1
	if last >= 0 && last < len(ticks) {
		per := r.plan.Interval.Seconds()
		k := ticks[last]
		p.Offered, p.Acked, p.Read = float64(k.Slots)/per, float64(k.Acked)/per, float64(k.Read)/per
		h := hdr.MergeLast(last, acks...)
		if d, ok := h.Percentile(50); ok {
			p.P50 = d
		}
		if d, ok := h.Percentile(99); ok {
			p.P99 = d
		}
	}
	return p
}

// use is what the process has used so far.
func use() ClientUse {
	var u syscall.Rusage
	cpu := time.Duration(0)
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	return ClientUse{CPU: cpu, Wall: time.Duration(time.Now().UnixNano()), GCPause: gc.PauseTotal, Goroutines: runtime.NumGoroutine()}
}

func (u ClientUse) since(b ClientUse) ClientUse {
	return ClientUse{CPU: u.CPU - b.CPU, Wall: u.Wall - b.Wall, GCPause: u.GCPause - b.GCPause, Goroutines: u.Goroutines}
}
