package coordinator

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"gopherlog/engine/record"
	"gopherlog/txn/group"
)

// writer makes batches as they are in the log.
type writer struct{ next int64 }

func (w *writer) batch(producer *record.Producer, pairs ...pair) record.Batch {
	b := record.Builder{Producer: producer, Transactional: producer != nil}
	for _, p := range pairs {
		b.Append(record.Record{Key: p.key.Encode(), Value: p.value})
	}
	return w.place(b.Finish())
}

func (w *writer) place(b record.Batch) record.Batch {
	b.SetBaseOffset(w.next)
	w.next = b.NextOffset()
	return b
}

func offsetOf(id string, number int32, offset int64) pair {
	return pair{group.Key{Group: id, Topic: "t", Partition: number}, group.Offset{Offset: offset, LeaderEpoch: 3, Metadata: "m", Committed: 5}.Encode()}
}

func (t *table) at(id string, number int32) Committed {
	return t.lookup(id, []Wanted{{Topic: "t", Partition: number}})[0]
}

func TestTransactionalOffsetsCountWithTheirMarkerAndNotOverNewerOnes(t *testing.T) {
	tb, w := newTable(), &writer{}
	p := &record.Producer{ID: 1}
	tb.Apply(w.batch(p, offsetOf("g", 0, 10), offsetOf("g", 1, 11)))
	if c := tb.at("g", 0); c.Offset != -1 || !c.Unstable {
		t.Fatalf("before the marker: %+v", c)
	}
	tb.Apply(w.batch(nil, offsetOf("g", 1, 99)))
	tb.Apply(w.place(record.BuildControl(record.Commit, 1, 0, 1, 0)))
	if a, b := tb.at("g", 0), tb.at("g", 1); a.Offset != 10 || a.Unstable || b.Offset != 99 {
		t.Fatalf("after the marker: %+v %+v", a, b)
	}
	tb.Apply(w.batch(p, offsetOf("g", 0, 20)))
	tb.Apply(w.place(record.BuildControl(record.Abort, 1, 0, 1, 0)))
	if c := tb.at("g", 0); c.Offset != 10 || c.Unstable {
		t.Fatalf("after an abort: %+v", c)
	}
}

func TestRecordsThatNobodyCanReadAreSkipped(t *testing.T) {
	tb, w := newTable(), &writer{}
	b := record.Builder{}
	b.Append(record.Record{Key: []byte{0, 99, 1}, Value: []byte("of a newer version")})
	b.Append(record.Record{Key: []byte{1}, Value: nil})
	k := offsetOf("g", 0, 4)
	b.Append(record.Record{Key: k.key.Encode(), Value: []byte{0, 3, 1}})
	b.Append(record.Record{Key: k.key.Encode(), Value: k.value})
	tb.Apply(w.place(b.Finish()))
	if tb.skipped != 3 || tb.at("g", 0).Offset != 4 {
		t.Fatalf("skipped %d, offset %d", tb.skipped, tb.at("g", 0).Offset)
	}
}

// A table that was restored from a snapshot at any place goes on like the one that applied everything.
func TestTableFromASnapshotGoesOnLikeTheOneThatAppliedEverything(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &writer{}
	var log []record.Batch
	for range 400 {
		log = append(log, randomBatch(rng, w))
	}
	whole := newTable()
	for _, b := range log {
		whole.Apply(b)
	}
	want := whole.Snapshot(nil)
	for range 20 {
		cut := rng.IntN(len(log))
		a, b := newTable(), newTable()
		for _, batch := range log[:cut] {
			a.Apply(batch)
		}
		if err := b.Restore(a.Snapshot(nil)); err != nil {
			t.Fatal(err)
		}
		if a.bytes < 0 || len(a.groups) == 0 && a.bytes != 0 {
			t.Fatalf("%d groups of %d bytes", len(a.groups), a.bytes)
		}
		for _, batch := range log[cut:] {
			b.Apply(batch)
		}
		if got := b.Snapshot(nil); !bytes.Equal(got, want) {
			t.Fatalf("restored behind batch %d: %d bytes, want %d", cut, len(got), len(want))
		}
	}
}

func randomBatch(rng *rand.Rand, w *writer) record.Batch {
	id := fmt.Sprint("g", rng.IntN(5))
	producer := int64(rng.IntN(3))
	switch n := rng.IntN(20); {
	case n == 0:
		return w.batch(nil, pair{key: group.Key{Group: id}})
	case n < 3:
		return w.place(record.BuildControl(record.ControlType(rng.IntN(2)), producer, 0, 1, 0))
	case n < 7:
		return w.batch(&record.Producer{ID: producer}, offsetOf(id, int32(rng.IntN(4)), rng.Int64N(1000)))
	case n < 9:
		return w.batch(nil, pair{key: group.Key{Group: id, Topic: "t", Partition: int32(rng.IntN(4))}})
	case n < 12:
		r := &group.Record{ProtocolType: "consumer", Generation: int32(n), Protocol: "range", Leader: "m", Since: 5,
			Members: []group.RecordMember{{ID: "m", Subscription: []byte("s"), Assignment: []byte("a")}}}
		return w.batch(nil, pair{group.Key{Group: id}, r.Encode()})
	}
	return w.batch(nil, offsetOf(id, int32(rng.IntN(4)), rng.Int64N(1000)), offsetOf(id, int32(rng.IntN(4)), rng.Int64N(1000)))
}

func TestDamagedAndUnknownTablesAreRefused(t *testing.T) {
	tb, w := newTable(), &writer{}
	tb.Apply(w.batch(nil, offsetOf("g", 0, 10)))
	good := tb.Snapshot(nil)
	for n := range good {
		if err := newTable().Restore(good[:n]); err == nil {
			t.Fatalf("%d of %d bytes were taken", n, len(good))
		}
	}
	if err := newTable().Restore(append([]byte{9}, good[1:]...)); err == nil {
		t.Fatal("version 9 was taken")
	}
	if err := newTable().Restore(nil); err != nil {
		t.Fatal(err)
	}
}
