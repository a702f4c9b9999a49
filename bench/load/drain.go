package load

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gopherlog/bench/history"
)

const (
	drainPatience = 3 * time.Second        // per question for end offsets
	drainPause    = 20 * time.Millisecond  // between looks at positions
	drainConfirm  = 500 * time.Millisecond // the ends are asked again this long after they were reached
)

// stableGrace is what a broker gets beyond the timeout of a transaction to end one that was left open.
const stableGrace = 10 * time.Second

// question asks for an offset of every partition of a topic.
type question func(ctx context.Context, topic string) (map[int32]OffsetAnswer, error)

// drain reads everything with a fresh client until every partition's end is passed. The ends are what the leaders tell after the
// faults; they are asked twice, and the last answer stands in the history: an acknowledged offset beyond it is lost. With transactions
// it reads what is committed, up to the last stable offset, and then once more, with another client, what is there.
func (r *runner) drain(ctx context.Context, answers *history.Stream) Drain {
	if ctx.Err() != nil {
		return Drain{Why: "interrupted"}
	}
	limit, cancel := context.WithTimeout(ctx, r.plan.Phases.Drain)
	defer cancel()
	teller, ok := r.driver.(StableTeller)
	if !r.plan.Guarantee.Transacts() || !ok {
		out := r.readAll(limit, answers, fullRead{role: history.RoleDrain, kind: history.EndAnswer, ends: r.driver.EndOffsets})
		r.judgeDrain(out)
		return out
	}
	r.awaitStable(limit, teller, answers)
	out := r.readAll(limit, answers, fullRead{role: history.RoleDrain, committed: true, kind: history.StableAnswer, ends: teller.StableOffsets})
	r.judgeDrain(out)
	raw := r.readAll(limit, answers, fullRead{role: history.RoleUncommitted, kind: history.EndAnswer, ends: r.driver.EndOffsets})
	out.Raw = raw.Complete
	return out
}

func (r *runner) judgeDrain(d Drain) {
	if !d.Complete {
		r.invalid = append(r.invalid, "the final read is incomplete: "+d.Why)
	}
}

// awaitStable waits until no transaction holds readers back, at most as long as the broker may take to end one that was left open, and no
// longer once it is certain that it does not.
func (r *runner) awaitStable(ctx context.Context, teller StableTeller, answers *history.Stream) {
	timeout := r.plan.Producers.Transaction.Timeout
	ctx, cancel := context.WithTimeout(ctx, timeout+stableGrace)
	defer cancel()
	var calm time.Duration // since when nothing excuses the broker
	if r.plan.Troubled {
		calm = r.clock.Now()
	}
	for ctx.Err() == nil {
		ask, done := context.WithTimeout(ctx, drainPatience)
		stable := r.ask(ask, history.StableAnswer, teller.StableOffsets, answers)
		ends := r.ends(ask, answers)
		done()
		if !missing(stable) && same(stable, ends) || r.stood.stuck(stable, ends, calm, r.clock.Now(), timeout+stillGrace) {
			return
		}
		pause(ctx, 5*drainPause)
	}
}

// fullRead is one read of everything.
type fullRead struct {
	role      string
	committed bool
	kind      history.Kind
	ends      question
}

func (r *runner) readAll(limit context.Context, answers *history.Stream, how fullRead) Drain {
	begin := time.Now()
	stream, err := r.stream(how.role, how.role)
	if err != nil {
		return Drain{Why: err.Error()}
	}
	d := r.driver
	if r.plan.DrainReader != nil {
		d = r.plan.DrainReader()
		defer d.Close()
	}
	cfg := r.consumerConfig("mqbench-" + how.role)
	cfg.ReadCommitted = how.committed
	c, err := d.NewConsumer(limit, cfg)
	if err != nil {
		return Drain{Why: fmt.Sprintf("connect: %v", err)}
	}
	fresh := newReader(r, c, stream)
	fresh.start()
	targets, complete := r.reach(limit, fresh, how, answers)
	r.askAll(limit, history.StartAnswer, r.driver.StartOffsets, answers) // what retention deleted meanwhile is not lost
	r.catchUp(limit, targets)
	fresh.stop()
	out := Drain{Complete: complete, Took: time.Since(begin)}
	for _, k := range fresh.tally.ticks {
		out.Messages += k.Read
	}
	for i, p := range r.places {
		out.Partitions = append(out.Partitions, DrainPartition{Topic: p.Topic, Partition: p.Partition, Target: targets[i], Reached: fresh.position[i].Load()})
	}
	if !complete {
		out.Why = why(out.Partitions, r.plan.Phases.Drain)
	}
	return out
}

// reach waits until the positions passed the ends, and the ends stayed.
func (r *runner) reach(ctx context.Context, fresh *reader, how fullRead, answers *history.Stream) (targets []int64, complete bool) {
	targets = r.askAll(ctx, how.kind, how.ends, answers)
	for {
		if !wait(ctx, func() bool { return passed(fresh, targets) }) {
			return targets, false
		}
		if r.beyondEnd(targets) && !pause(ctx, drainConfirm) { // an acknowledged offset is missing: give a stale answer time to mend
			return targets, false
		}
		again := r.askAll(ctx, how.kind, how.ends, answers)
		if same(again, targets) {
			return targets, !missing(targets)
		}
		targets = again
	}
}

// askAll asks until every partition answered, or ctx ends.
func (r *runner) askAll(ctx context.Context, kind history.Kind, q question, answers *history.Stream) []int64 {
	targets := make([]int64, len(r.places))
	for {
		ask, cancel := context.WithTimeout(ctx, drainPatience)
		for i, end := range r.ask(ask, kind, q, answers) {
			targets[i] = end
		}
		cancel()
		if !missing(targets) || !pause(ctx, drainPause) {
			return targets
		}
	}
}

// catchUp lets the visible reader see what the fresh one saw, for at most a second: its latencies end with the run.
func (r *runner) catchUp(ctx context.Context, targets []int64) {
	if r.plan.Alone {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	wait(ctx, func() bool { return passed(r.reader, targets) })
}

func (r *runner) beyondEnd(targets []int64) bool {
	for i := range targets {
		if r.acked[i].Load() > targets[i] {
			return true
		}
	}
	return false
}

func passed(d *reader, targets []int64) bool {
	for i, end := range targets {
		if end < 0 || d.position[i].Load() < end {
			return false
		}
	}
	return true
}

func missing(targets []int64) bool {
	for _, end := range targets {
		if end < 0 {
			return true
		}
	}
	return false
}

func same(a, b []int64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func wait(ctx context.Context, ok func() bool) bool {
	for !ok() {
		if !pause(ctx, drainPause) {
			return false
		}
	}
	return true
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func why(partitions []DrainPartition, limit time.Duration) string {
	var short []string
	for _, p := range partitions {
		if p.Target < 0 || p.Reached < p.Target {
			short = append(short, fmt.Sprintf("%s/%d at %d of %d", p.Topic, p.Partition, p.Reached, p.Target))
		}
	}
	if len(short) == 0 {
		return "the ends kept moving"
	}
	const shown = 4
	if len(short) > shown {
		short = append(short[:shown], fmt.Sprintf("and %d more", len(short)-shown))
	}
	return fmt.Sprintf("after %v: %s", limit, strings.Join(short, ", "))
}
