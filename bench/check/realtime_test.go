package check

import (
	"math/rand/v2"
	"testing"
	"time"

	"gopherlog/bench/history"
)

// In a long run many messages and many milliseconds share a place in the tables: they may hide a small inversion and never make one, and
// a large one is found and counted message by message.
func TestLongRunsShareTheirPlacesAndInventNoInversion(t *testing.T) {
	const n = 40 * maxSpans
	for name, wrong := range map[string]int{"in order": 0, "three that stand far before their time": 3} {
		w := &world{held: agreeing()}
		for i := range uint64(n) {
			at := time.Duration(i) * 2 * time.Millisecond
			r := history.Record{Kind: history.Sent, Partition: 1, Sequence: i, At: at}
			w.sends = append(w.sends, r)
			r.Kind, r.Result, r.Offset, r.At = history.Outcome, history.OK, int64(i), at+time.Duration(1+i%40)*time.Millisecond
			if int(i) >= n/2 && int(i) < n/2+wrong {
				r.Offset = int64(i) / 2
			}
			w.acks = append(w.acks, r)
			r.Kind, r.Result, r.Offset = history.Delivered, 0, int64(i)
			w.drain = append(w.drain, r)
		}
		w.ends = []history.Record{{Kind: history.EndAnswer, Partition: 1, Offset: n, Epoch: 1, Asked: time.Hour, At: time.Hour}}
		o := strict()
		o.Rules = []string{"A10"}
		if r := rule(t, w.judge(t, o), "A10"); int(r.Count) != wrong || r.Denominator != n {
			t.Errorf("%s: %d of %d: %v", name, r.Count, r.Denominator, r.Examples)
		}
	}
}

func TestTablesOfTimeAndOffsetNeverTellTooMuch(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for _, scale := range []time.Duration{time.Second, time.Minute, 4 * time.Hour} {
		var kept ticks
		var list []history.Record
		for range 2000 {
			r := history.Record{At: time.Duration(rnd.Int64N(int64(scale))), Offset: rnd.Int64N(1 << 30)}
			list = append(list, r)
			kept.add(r.At, r.Offset)
		}
		kept.sum()
		if len(kept.list) > maxTicks {
			t.Errorf("%d ticks", len(kept.list))
		}
		for range 200 {
			at, truth := time.Duration(rnd.Int64N(int64(scale))), int64(-1)
			for _, r := range list {
				if r.At < at {
					truth = max(truth, r.Offset)
				}
			}
			if got := kept.before(at); got > truth {
				t.Fatalf("seed %d: at %s offset %d was known already, the table says %d", seed, at, truth, got)
			}
		}
		if kept.before(2*scale) < 0 {
			t.Error("in the end nothing is known")
		}
	}
	var s spans
	for i := range uint64(5 * maxSpans) {
		x := s.at(i)
		x.sent, x.offset = min(x.sent, time.Duration(i)), min(x.offset, int64(i))
	}
	for i := range uint64(5 * maxSpans) {
		if x := s.at(i); x.sent > time.Duration(i) || x.offset > int64(i) || len(s.list) > maxSpans {
			t.Fatalf("message %d: %+v", i, x)
		}
	}
}
