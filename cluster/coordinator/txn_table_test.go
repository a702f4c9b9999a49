package coordinator

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"gopherlog/engine/record"
	"gopherlog/txn/kafkatx"
)

// steps makes batches as coordinators of transactions write them.
type steps struct {
	rng  *rand.Rand
	next int64
}

func (s *steps) batch() record.Batch {
	b := record.Builder{}
	for range 1 + s.rng.IntN(3) {
		id := fmt.Sprint("x", s.rng.IntN(6))
		b.Append(record.Record{Key: kafkatx.EncodeKey(id), Value: s.meta().EncodeValue()})
	}
	out := b.Finish()
	out.SetBaseOffset(s.next)
	s.next = out.NextOffset()
	return out
}

func (s *steps) meta() *kafkatx.Meta {
	if s.rng.IntN(8) == 0 {
		return nil
	}
	m := &kafkatx.Meta{Status: kafkatx.Status(s.rng.IntN(6)), ProducerID: s.rng.Int64N(5), Epoch: int16(s.rng.IntN(9)), LastEpoch: kafkatx.None,
		Previous: kafkatx.None, Next: kafkatx.None, Timeout: time.Minute, Start: kafkatx.None, Update: s.next, Version: kafkatx.Version2}
	if m.Status == kafkatx.Ongoing || m.Status.Decided() {
		m.Start = s.next
		for n := range int32(s.rng.IntN(4)) {
			m.Partitions = append(m.Partitions, kafkatx.Partition{Topic: "t", Number: n})
		}
	}
	return m
}

// A table that was restored from a snapshot at any place goes on like the one that applied everything.
func TestTransactionsFromASnapshotGoOnLikeThoseThatAppliedEverything(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := &steps{rng: rand.New(rand.NewPCG(seed, 1))}
	var log []record.Batch
	whole := newTxnTable()
	for range 300 {
		log = append(log, s.batch())
		whole.Apply(log[len(log)-1])
	}
	want := whole.Snapshot(nil)
	for range 20 {
		cut := s.rng.IntN(len(log))
		a, b := newTxnTable(), newTxnTable()
		for _, batch := range log[:cut] {
			a.Apply(batch)
		}
		if err := b.Restore(a.Snapshot(nil)); err != nil {
			t.Fatal(err)
		}
		for _, batch := range log[cut:] {
			b.Apply(batch)
		}
		if got := b.Snapshot(nil); !bytes.Equal(got, want) || b.size() != whole.size() || b.size() < 0 {
			t.Fatalf("restored behind batch %d: %d bytes for %d, want %d for %d", cut, len(got), b.size(), len(want), whole.size())
		}
	}
}

func TestDamagedAndUnknownTablesOfTransactionsAreRefused(t *testing.T) {
	s := &steps{rng: rand.New(rand.NewPCG(1, 1))}
	tb := newTxnTable()
	for len(tb.metas) == 0 {
		tb.Apply(s.batch())
	}
	good := tb.Snapshot(nil)
	for n := range good {
		if err := newTxnTable().Restore(good[:n]); err == nil {
			t.Fatalf("%d of %d bytes were taken", n, len(good))
		}
	}
	if err := newTxnTable().Restore(append([]byte{9}, good[1:]...)); err == nil {
		t.Fatal("version 9 was taken")
	}
	if err := newTxnTable().Restore(append(good, 0)); err == nil {
		t.Fatal("a byte too many was taken")
	}
	if err := newTxnTable().Restore(nil); err != nil {
		t.Fatal(err)
	}
}

// What another version wrote is skipped, by all replicas alike.
func TestTransactionRecordsThatNobodyCanReadAreSkipped(t *testing.T) {
	tb := newTxnTable()
	m := &kafkatx.Meta{ProducerID: 7, LastEpoch: kafkatx.None, Previous: kafkatx.None, Next: kafkatx.None, Timeout: time.Minute, Start: kafkatx.None}
	b := record.Builder{}
	b.Append(record.Record{Key: []byte{0, 9, 1}, Value: []byte("newer")})
	b.Append(record.Record{Key: kafkatx.EncodeKey("x"), Value: []byte{0, 9, 1}})
	b.Append(record.Record{Key: kafkatx.EncodeKey("y"), Value: m.EncodeValue()})
	tb.Apply(b.Finish())
	if tb.skipped != 2 || tb.meta("x") != nil || tb.meta("y") == nil {
		t.Fatalf("skipped %d, x %v, y %v", tb.skipped, tb.meta("x"), tb.meta("y"))
	}
}
