package main

import (
	"context"
	"fmt"

	"gopherlog/engine/record"
	"gopherlog/txn/producer"
)

// duplicateRow is what the decision about a batch costs while a thousand producers are known and each has a batch in flight.
func duplicateRow(e *env) row {
	const producers = 1000
	ops := e.pick(2_000_000, 2000)
	return row{
		name: "duplicate check", unit: "ns", limit: 100, atMost: true,
		value: func(s sample) float64 { return float64(s.wall.Nanoseconds()) / float64(s.ops) },
		open: func(context.Context, string) (bare, ours side, end func(), err error) {
			ours = func(context.Context, string) (sample, error) {
				state, inflight := producer.New(), producer.NewOverlay()
				next := make([]record.Batch, producers)
				for id := range next {
					for seq := range int32(producer.Window) {
						b := sequenced(int64(id), seq)
						b.SetBaseOffset(int64(seq)*producers + int64(id))
						state.Apply(b)
					}
					inflight.Add(sequenced(int64(id), producer.Window), 1)
					next[id] = sequenced(int64(id), producer.Window+1)
				}
				m := startMeter()
				for i := range ops {
					if v := state.Check(next[i%producers], inflight); v.Kind != producer.Append {
						return sample{}, fmt.Errorf("a new batch was taken for %v", v)
					}
				}
				return m.stop(int64(ops), 0), nil
			}
			return nil, ours, nil, nil
		},
	}
}

// sequenced returns a batch of one record of an idempotent producer.
func sequenced(id int64, sequence int32) record.Batch {
	b := record.Builder{Producer: &record.Producer{ID: id, Sequence: sequence}}
	b.Append(record.Record{Value: []byte("v")})
	return b.Finish()
}
