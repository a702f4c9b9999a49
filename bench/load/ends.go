package load

import (
	"context"
	"fmt"
	"time"

	"gopherlog/bench/history"
)

// askEnds asks for end offsets now and then; answers go into the history, where a shrinking log shows.
func (r *runner) askEnds(ctx context.Context, answers *history.Stream) {
	const patience = time.Second
	tick := time.NewTicker(r.plan.EndsEvery)
	defer tick.Stop()
	stable, ok := r.driver.(StableTeller)
	ok = ok && r.plan.Guarantee.Transacts()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ask, cancel := context.WithTimeout(ctx, patience)
		r.ends(ask, answers)
		if ok {
			r.ask(ask, history.StableAnswer, stable.StableOffsets, answers)
		}
		cancel()
	}
}

// ends asks once for the ends of all partitions; -1 where no answer came.
func (r *runner) ends(ctx context.Context, answers *history.Stream) []int64 {
	return r.ask(ctx, history.EndAnswer, r.driver.EndOffsets, answers)
}

// ask puts a question about every topic, and keeps the answers in the history.
func (r *runner) ask(ctx context.Context, kind history.Kind, q question, answers *history.Stream) []int64 {
	out := make([]int64, len(r.places))
	for i := range out {
		out[i] = -1
	}
	for _, t := range r.topics {
		asked := r.clock.Now()
		got, err := q(ctx, t.name)
		if err != nil && ctx.Err() == nil {
			r.errors.class(fmt.Errorf("list offsets: %w", err))
		}
		now := r.clock.Now()
		for p, a := range got {
			if p < 0 || int(p) >= t.partitions {
				continue
			}
			out[t.first+int(p)] = a.Offset
			switch kind {
			case history.StableAnswer:
				r.stood.stable(t.first+int(p), a.Offset, now)
			case history.EndAnswer:
				r.stood.end(t.first+int(p), a.Offset)
			}
			if answers != nil {
				answers.Append(history.Record{Kind: kind, Partition: uint32(t.first + int(p)), Offset: a.Offset, Epoch: a.LeaderEpoch, Asked: asked, At: now})
			}
		}
	}
	return out
}
