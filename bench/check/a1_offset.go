package check

import (
	"fmt"
	"slices"

	"gopherlog/bench/history"
)

// Rule A1: what an offset holds never changes. Three witnesses speak of an offset: the final read, the reads of the run, and the
// acknowledgements of messages that are in the log (one that is not is A4's or A6's). Keeping what every offset held would take sixteen
// bytes a message; instead each witness keeps a fingerprint, free of order, of each stretch of offsets. Only stretches whose fingerprints
// differ are read again and compared offset by offset.

const (
	stretchOffsets  = 4096
	stretchesAtOnce = 1024 // 64 MiB of table a round
)

// print is the fingerprint of one stretch.
type print struct {
	count    uint32
	sum, xor uint64
}

func (p *print) add(h uint64) { p.count++; p.sum += h; p.xor ^= h }

func (p *print) remove(h uint64) { p.count--; p.sum -= h; p.xor ^= h }

// prints of one witness, by partition and stretch.
type prints [][]print

func (p prints) at(partition uint32, offset int64) *print {
	i := int(offset / stretchOffsets)
	row := p[partition]
	for len(row) <= i {
		row = append(row, print{})
	}
	p[partition] = row
	return &row[i]
}

// mark mixes offset and message into 64 bits. The first message of all must count for something, too.
func mark(offset int64, lane uint32, sequence uint64) uint64 {
	h := uint64(offset+1)*0x9e3779b97f4a7c15 ^ (uint64(lane)<<40+sequence)*0xc2b2ae3d27d4eb4f
	h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
	return h ^ h>>32
}

const nobody = 1<<24 - 1 // stands for a message that belongs to no lane

// markOf is the mark of what was read; a is its lane, nil where it has none.
func markOf(r *history.Record, a *lane) uint64 {
	if a != nil && r.Flags == 0 {
		return mark(r.Offset, a.index, r.Sequence)
	}
	return mark(r.Offset, nobody, uint64(r.Flags))
}

// stretch is a run of offsets of a partition.
type stretch struct {
	partition uint32
	index     int
}

func stretchOf(r *history.Record) stretch {
	return stretch{r.Partition, int(r.Offset / stretchOffsets)}
}

// witnesses are the fingerprints, taken while the files are read for other rules.
type witnesses struct {
	final, ackedInFinal, run, acks prints
	runNext                        []int64 // by partition: where the reader of the run stands
	doubt                          map[stretch]bool
	compared                       int64
}

func newWitnesses(partitions int) witnesses {
	p := func() prints { return make(prints, partitions) }
	return witnesses{final: p(), ackedInFinal: p(), run: p(), acks: p(), runNext: make([]int64, partitions), doubt: map[stretch]bool{}}
}

// drained takes what the final read found; again says that it was at this offset before.
func (w *witnesses) drained(r *history.Record, a *lane, again bool) {
	w.compared++
	if again {
		w.doubt[stretchOf(r)] = true
		return
	}
	h := markOf(r, a)
	w.final.at(r.Partition, r.Offset).add(h)
	if a != nil && r.Flags == 0 && a.acked.has(r.Sequence) {
		w.ackedInFinal.at(r.Partition, r.Offset).add(h)
	}
}

// read takes what was read during the run.
func (w *witnesses) read(r *history.Record, a *lane) {
	w.compared++
	if r.Offset < w.runNext[r.Partition] {
		w.doubt[stretchOf(r)] = true
		return
	}
	w.runNext[r.Partition] = r.Offset + 1
	w.run.at(r.Partition, r.Offset).add(markOf(r, a))
}

// acked takes an acknowledgement, and unacked takes back one whose message is not in the log.
func (w *witnesses) acked(r *history.Record, a *lane) {
	if r.Offset >= 0 {
		w.compared++
		w.acks.at(r.Partition, r.Offset).add(mark(r.Offset, a.index, r.Sequence))
	}
}

func (w *witnesses) unacked(r *history.Record, a *lane) {
	if r.Offset >= 0 {
		w.compared--
		w.acks.at(r.Partition, r.Offset).remove(mark(r.Offset, a.index, r.Sequence))
	}
}

// suspicious lists the stretches in which the witnesses do not tell the same.
func (w *witnesses) suspicious() []stretch {
	differ(w.doubt, w.final, w.run)
	differ(w.doubt, w.ackedInFinal, w.acks)
	list := make([]stretch, 0, len(w.doubt))
	for s := range w.doubt {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b stretch) int {
		if a.partition != b.partition {
			return int(a.partition) - int(b.partition)
		}
		return a.index - b.index
	})
	return list
}

func judgeOffsets(l *ledger, found map[string]*finding) error {
	suspects := l.witnesses.suspicious()
	f := &finding{of: l.witnesses.compared}
	for len(suspects) > 0 {
		n := min(len(suspects), stretchesAtOnce)
		if err := compare(l, f, suspects[:n]); err != nil {
			return err
		}
		suspects = suspects[n:]
	}
	found["A1"] = f
	return nil
}

// differ adds the stretches in which b tells something, and something else than a.
func differ(doubt map[stretch]bool, a, b prints) {
	for p := range b {
		for i, told := range b[p] {
			if told.count > 0 && (i >= len(a[p]) || a[p][i] != told) {
				doubt[stretch{uint32(p), i}] = true
			}
		}
	}
}

// cell is what the final read found at an offset.
type cell struct {
	mark uint64
	held bool
}

// compare reads the suspects again, offset by offset.
func compare(l *ledger, f *finding, suspects []stretch) error {
	table := map[stretch]*[stretchOffsets]cell{}
	for _, s := range suspects {
		table[s] = new([stretchOffsets]cell)
	}
	at := func(r *history.Record) *cell {
		if t := table[stretchOf(r)]; t != nil {
			return &t[r.Offset%stretchOffsets]
		}
		return nil
	}
	err := l.delivered(l.final, func(r *history.Record) {
		c := at(r)
		if c == nil {
			return
		}
		if m := markOf(r, l.find(r)); !c.held {
			*c = cell{m, true}
		} else if c.mark != m {
			f.add("changed", func() Example { return l.example(r, "the final read found another message here when it read again") })
		}
	})
	if err != nil {
		return err
	}
	err = l.delivered(history.RoleReads, func(r *history.Record) {
		if c := at(r); c != nil {
			l.confront(f, r, c, markOf(r, l.find(r)), "was read here during the run")
		}
	})
	if err != nil {
		return err
	}
	return l.each(history.RoleAcks, history.Outcome, func(r *history.Record) {
		a := l.find(r)
		if r.Result != history.OK || r.Offset < 0 || a == nil || !a.seen.has(r.Sequence) {
			return
		}
		if c := at(r); c != nil {
			l.confront(f, r, c, mark(r.Offset, a.index, r.Sequence), "was acknowledged at this offset")
		}
	})
}

// confront compares one witness with the final read. Beyond where the final read got, only a log that is known to be read whole can be
// said to hold nothing.
func (l *ledger) confront(f *finding, r *history.Record, c *cell, m uint64, what string) {
	switch {
	case c.held && c.mark != m:
		f.add("changed", func() Example { return l.example(r, what+"; in the end another message is here") })
	case !c.held && !l.holes && l.start[r.Partition] >= 0 && r.Offset >= l.start[r.Partition] && (r.Offset < l.next[r.Partition] || l.drained):
		f.add("vanished", func() Example {
			return l.example(r, fmt.Sprintf("%s; in the end nothing is here, the log was read to %d", what, l.next[r.Partition]))
		})
	}
}
