package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

// The slow twin: random runs with random faults, judged by a checker that keeps everything in maps.
func TestAgreesWithASlowTwinOnRandomHistories(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		seed := rand.Uint64()
		w := randomWorld(rand.New(rand.NewPCG(seed, 1)))
		v := w.judge(t, strict())
		for id, want := range twin(w) {
			if got := rule(t, v, id).Count; got != want {
				t.Errorf("seed %d: %s counts %d, the twin %d", seed, id, got, want)
			}
		}
	}
}

func randomWorld(rnd *rand.Rand) *world {
	w := perfect()
	var drain []history.Record
	next := [worldPartitions]int64{}
	for _, r := range w.drain {
		p := r.Partition
		put := func(r history.Record) {
			r.Offset = next[p]
			next[p]++
			drain = append(drain, r)
		}
		switch x := rnd.IntN(1000); {
		case x < 10: // lost
		case x < 20:
			put(r)
			put(r)
		case x < 25:
			r.Sequence += uint64(rnd.IntN(2 * perLane))
			put(r)
		default:
			put(r)
		}
	}
	w.drain = drain
	for i := range w.ends {
		w.ends[i].Offset = min(w.ends[i].Offset, next[w.ends[i].Partition])
	}
	for p := range uint32(worldPartitions) {
		w.ends = append(w.ends, history.Record{Kind: history.EndAnswer, Partition: p, Offset: next[p], Epoch: 2, Asked: time.Hour, At: time.Hour})
	}
	for i := range w.acks {
		if rnd.IntN(100) == 0 {
			w.acks[i].Result, w.acks[i].Offset, w.acks[i].Class = history.Unknown, -1, 1
		} else if rnd.IntN(200) == 0 {
			w.acks[i].Offset = int64(rnd.IntN(int(w.acks[i].Offset) + 1))
		}
	}
	return w
}

func twin(w *world) map[string]int64 {
	type message struct {
		producer  uint16
		partition uint32
		sequence  uint64
	}
	id := func(r history.Record) message { return message{r.Producer, r.Partition, r.Sequence} }
	sent, copies, last := map[message]bool{}, map[message]int64{}, map[message]uint64{}
	at := map[string]message{}
	n := map[string]int64{"A1": 0, "A2": 0, "A3": 0, "A4": 0, "A5": 0, "A6": 0, "A7": 0, "A9": 0, "A10": 0}
	ends := map[uint32]int64{}
	place := func(r history.Record) string { return fmt.Sprint(r.Partition, "/", r.Offset) }
	for _, r := range w.sends {
		sent[id(r)] = true
	}
	for _, r := range w.drain {
		at[place(r)] = id(r)
		ends[r.Partition] = r.Offset + 1
		if !sent[id(r)] {
			n["A3"]++
			continue
		}
		if copies[id(r)]++; copies[id(r)] > 1 {
			n["A2"]++
			continue
		}
		lane := message{r.Producer, r.Partition, 0}
		if r.Sequence+1 < last[lane] {
			n["A9"]++
		}
		last[lane] = r.Sequence + 1
	}
	sentAt := map[message]time.Duration{}
	for _, r := range w.sends {
		sentAt[id(r)] = r.At
	}
	for _, y := range w.acks {
		inLog := func(r history.Record) bool { return r.Result == history.OK && copies[id(r)] > 0 }
		if inLog(y) && slices.ContainsFunc(w.acks, func(x history.Record) bool {
			return inLog(x) && x.Partition == y.Partition && x.Offset > y.Offset && x.At/tick < sentAt[id(y)]/tick
		}) {
			n["A10"]++
		}
	}
	for _, r := range w.reads {
		if at[place(r)] != id(r) {
			n["A1"]++
		}
	}
	for _, r := range w.acks {
		if r.Result != history.OK {
			continue
		}
		switch held, ok := at[place(r)]; {
		case copies[id(r)] == 0 && r.Offset < ends[r.Partition]:
			n["A4"]++
			n["A7"]++
		case copies[id(r)] == 0:
			n["A6"]++
			n["A7"]++
		case !ok || held != id(r):
			n["A1"]++
		}
	}
	return n
}

func BenchmarkJudge(b *testing.B) {
	w := &world{}
	for seq := range uint64(150_000) {
		for p := range uint32(worldPartitions) {
			at := time.Duration(seq) * 10 * time.Microsecond
			r := history.Record{Kind: history.Sent, Partition: p, Sequence: seq, At: at}
			w.sends = append(w.sends, r)
			r.Kind, r.Result, r.Offset = history.Outcome, history.OK, int64(seq)
			w.acks = append(w.acks, r)
			r.Kind, r.Result = history.Delivered, 0
			w.reads, w.drain = append(w.reads, r), append(w.drain, r)
		}
	}
	dir := w.write(b)
	operations := len(w.sends) + len(w.acks) + len(w.reads) + len(w.drain)
	b.ResetTimer()
	for b.Loop() {
		if v, err := Judge(dir, Options{Guarantee: scenario.Idempotent, Drained: true}); err != nil || v.Status != Pass {
			b.Fatal(err, v.Status, v.Reasons)
		}
	}
	b.ReportMetric(float64(operations)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mop/s")
}
