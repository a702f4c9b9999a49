package partition

import (
	"sync"
	"time"

	"gopherlog/txn/twopc"
)

// Fact is one replicated step of a voted transaction, as a node applied it. Every replica that applies a step reports it, also again after a
// restart; Topic, Partition and Index name it.
type Fact struct {
	ID        string   `json:"id"`
	Txn       string   `json:"txn"`
	What      string   `json:"what"` // raised, begun, committed, finished; opened, promised, skipped, commit-marker, abort-marker
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Index     int64    `json:"index"`
	Members   []string `json:"members,omitempty"` // of a decision
}

// Facts are the newest steps that a node applied: evidence for tests. A nil *Facts keeps nothing.
type Facts struct {
	since time.Time

	mu      sync.Mutex // guards what follows
	ring    []Fact
	next    int // where the next one goes once the ring is full
	dropped int64
}

// maxFacts bounds what a node keeps.
const maxFacts = 1 << 16

// NewFacts begins to keep.
func NewFacts(now time.Time) *Facts { return &Facts{since: now} }

// Add keeps a fact, in the place of the oldest if there are many.
func (f *Facts) Add(fact Fact) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ring) < maxFacts {
		f.ring = append(f.ring, fact)
		return
	}
	f.ring[f.next] = fact
	f.next = (f.next + 1) % maxFacts
	f.dropped++
}

// Keeps says that Add keeps: what a fact is made of need not be made otherwise.
func (f *Facts) Keeps() bool { return f != nil }

// FactsDump is what a node tells of its facts.
type FactsDump struct {
	Since   time.Time `json:"since"`   // when this process began to keep
	Dropped int64     `json:"dropped"` // facts that had to go
	Facts   []Fact    `json:"facts"`   // oldest first
}

// Dump returns a copy.
func (f *Facts) Dump() FactsDump {
	if f == nil {
		return FactsDump{Facts: []Fact{}}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return FactsDump{Since: f.since, Dropped: f.dropped, Facts: append(append(make([]Fact, 0, len(f.ring)), f.ring[f.next:]...), f.ring[:f.next]...)}
}

// WhatOf is the word for a participant's record.
func WhatOf(r twopc.Record) (txn twopc.Txn, what string) {
	switch r := r.(type) {
	case twopc.Opened:
		return r.Txn, "opened"
	case twopc.Promised:
		return r.Txn, "promised"
	case twopc.Skipped:
		return r.Txn, "skipped"
	case twopc.Marked:
		if r.Commit {
			return r.Txn, "commit-marker"
		}
		return r.Txn, "abort-marker"
	case twopc.Begun:
		return r.Txn, "begun"
	case twopc.Committed:
		return r.Txn, "committed"
	case twopc.Finished:
		return r.Txn, "finished"
	}
	return twopc.Txn{}, "raised"
}
