package coordinator

import (
	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
	"gopherlog/txn/twopc"
)

// readable is a shard whose log can be read; *partition.Partition is the real one.
type readable interface {
	LogStart() int64
	Read(partition.ReadRequest) (partition.ReadResult, error)
}

// evidenceChunk is how much of a log is looked at in one go.
const evidenceChunk = 1 << 20

// Evidence are the steps that the logs of the shards hold which are led here, from their beginnings: a process that was restarted did not
// apply them all again, and of a lone replica nobody else did. For tests.
func (v *Voted) Evidence() (facts []partition.Fact) {
	v.shards.mu.RLock()
	var all []*shard
	for _, s := range v.shards.all {
		all = append(all, s)
	}
	v.shards.mu.RUnlock()
	for _, s := range all {
		if p, ok := s.part.(readable); ok && s.heard.Load() && !s.replaced.Load() { // before that it may not be asked
			facts = append(facts, evidence(p, s.number)...)
		}
	}
	return facts
}

// evidence reads one log, as far as it can be read.
func evidence(p readable, number int32) (facts []partition.Fact) {
	for from := p.LogStart(); ; {
		r, err := p.Read(partition.ReadRequest{Offset: from, MaxBytes: evidenceChunk, MinOne: true, CurrentEpoch: partition.NoEpoch, LastFetchedEpoch: partition.NoEpoch})
		if err != nil || r.Slice == nil {
			return facts
		}
		bytes, err := r.Slice.ReadAll(nil)
		r.Slice.Release()
		for err == nil && len(bytes) > 0 {
			var b record.Batch
			if b, bytes, err = record.Parse(bytes); err == nil {
				facts = append(facts, factsOf(b, number)...)
				from = b.NextOffset()
			}
		}
		if err != nil {
			return facts
		}
	}
}

func factsOf(b record.Batch, number int32) (facts []partition.Fact) {
	if b.IsControl() {
		return nil
	}
	for rec, err := range record.Records(b) {
		if err != nil || rec.Value == nil {
			continue
		}
		if r, err := twopc.Decode(rec.Value); err == nil {
			facts = append(facts, factOf(string(rec.Key), r, VotedTopic, number, b.BaseOffset()+int64(rec.OffsetDelta)))
		}
	}
	return facts
}

// factOf is a step of a coordinator.
func factOf(id string, r twopc.Record, topic string, number int32, offset int64) partition.Fact {
	txn, what := partition.WhatOf(r)
	f := partition.Fact{ID: id, What: what, Topic: topic, Partition: number, Index: offset}
	if !txn.None() {
		f.Txn = txn.String()
	}
	if c, ok := r.(twopc.Committed); ok {
		for _, m := range c.Members {
			f.Members = append(f.Members, string(m))
		}
	}
	return f
}
