package coordinator

import (
	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
	"gopherlog/txn/group"
)

const (
	gatherBytes   = 256 << 10 // a batch of this size goes at once
	gatherFlights = 4         // with so many under way the next batch waits, and grows
)

// pair is a record of the topic; a nil value is a tombstone.
type pair struct {
	key   group.Key
	value []byte
}

// gathered is the batch that groups of a shard append together: what is asked for while others are on their way shares one header, one
// proposal and one write. Its records are in the order in which they were appended.
type gathered struct {
	b      record.Builder
	parts  []part
	posted bool // flush is queued
	flying int  // batches without an outcome
}

// part is what one group put into a batch.
type part struct {
	l    *live
	then func(error)
	lost func()
}

// appendOf replicates records of a group, in order. then is called on this goroutine with the outcome; when the term ends before there is
// one, lost is called instead, on whichever goroutine, unless it is nil.
func (t *groupTerm) appendOf(l *live, then func(error), lost func(), pairs ...pair) {
	g := &t.gathered
	size := 0
	for _, p := range pairs {
		size += len(p.value) + len(p.key.Group) + len(p.key.Topic) + rowOverhead
	}
	if len(g.parts) > 0 && g.b.Size()+size > gatherBytes {
		t.flush() // so that only a record that is too large by itself is refused as that
	}
	if len(g.parts) == 0 {
		g.b.BaseTimestamp = t.now().UnixMilli()
	}
	for _, p := range pairs {
		g.b.Append(record.Record{Key: p.key.Encode(), Value: p.value})
	}
	l.flying++
	g.parts = append(g.parts, part{l, then, lost})
	if g.b.Size() > gatherBytes || !t.flushSoon() {
		t.flush()
	}
}

// flushSoon queues a flush behind what is queued already; false: the term is over.
func (t *groupTerm) flushSoon() bool {
	g := &t.gathered
	if !g.posted {
		g.posted = t.post(func() {
			if g.posted = false; g.flying < gatherFlights {
				t.flush()
			}
		})
	}
	return g.posted
}

// flush lets the batch go that was gathered.
func (t *groupTerm) flush() {
	g := &t.gathered
	if len(g.parts) == 0 {
		return
	}
	parts := g.parts
	g.parts = nil
	g.flying++
	t.term.append(g.b.Finish(), func(err error) {
		g.flying--
		for _, p := range parts {
			p.l.flying--
			p.then(err)
			t.settle(p.l)
		}
		if !g.posted {
			t.flush()
		}
	}, func() { abandon(parts) })
}

func abandon(parts []part) {
	for _, p := range parts {
		if p.lost != nil {
			p.lost()
		}
	}
}

// send is for batches that are not gathered: they go behind what was.
func (t *groupTerm) send(r *partition.AppendRequest, then func(error), lost func()) {
	t.flush()
	t.term.send(r, then, lost)
}
