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

// drain reads everything with a fresh client until every partition's end is passed. The ends are what the leaders tell after the
// faults; they are asked twice, and the last answer stands in the history: an acknowledged offset beyond it is lost.
func (r *runner) drain(ctx context.Context, answers *history.Stream) Drain {
	begin := time.Now()
	if ctx.Err() != nil {
		return Drain{Why: "interrupted"}
	}
	limit, cancel := context.WithTimeout(ctx, r.plan.Phases.Drain)
	defer cancel()
	stream, err := r.stream(history.RoleDrain, "drain")
	if err != nil {
		return Drain{Why: err.Error()}
	}
	d := r.driver
	if r.plan.DrainReader != nil {
		d = r.plan.DrainReader()
		defer d.Close()
	}
	c, err := d.NewConsumer(limit, r.consumerConfig("mqbench-drain"))
	if err != nil {
		return Drain{Why: fmt.Sprintf("connect: %v", err)}
	}
	fresh := newReader(r, c, stream)
	fresh.start()
	targets, complete := r.reach(limit, fresh, answers)
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
		r.invalid = append(r.invalid, "the final read is incomplete: "+out.Why)
	}
	return out
}

// reach waits until the positions passed the ends, and the ends stayed.
func (r *runner) reach(ctx context.Context, fresh *reader, answers *history.Stream) (targets []int64, complete bool) {
	targets = r.askAll(ctx, history.EndAnswer, r.driver.EndOffsets, answers)
	for {
		if !wait(ctx, func() bool { return passed(fresh, targets) }) {
			return targets, false
		}
		if r.beyondEnd(targets) && !pause(ctx, drainConfirm) { // an acknowledged offset is missing: give a stale answer time to mend
			return targets, false
		}
		again := r.askAll(ctx, history.EndAnswer, r.driver.EndOffsets, answers)
		if same(again, targets) {
			return targets, !missing(targets)
		}
		targets = again
	}
}

// askAll asks until every partition answered, or ctx ends.
func (r *runner) askAll(ctx context.Context, kind history.Kind, question func(context.Context, string) (map[int32]OffsetAnswer, error), answers *history.Stream) []int64 {
	targets := make([]int64, len(r.places))
	for {
		ask, cancel := context.WithTimeout(ctx, drainPatience)
		for i, end := range r.ask(ask, kind, question, answers) {
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
