package check

import (
	"slices"

	"gopherlog/bench/history"
)

// pipeline is what is known of the inputs of one partition: how many outputs of each are readable. Two bits an input.
type pipeline struct {
	once, again bitset // by offset from the view's base
	made        bool   // some output names an input of this partition
	position    int64  // of the group at the end; -1 unknown
}

// maxReads bounds the reads of one transaction from another that are kept for C5: 24 bytes each.
const maxReads = 1 << 22

// read says that a transaction read what stands at a place.
type readEdge struct {
	offset    int64
	partition uint32
	reader    int32 // index in the book
}

// judgePipelines is rules C5, C7 and C8: what workers made of what they read.
func judgePipelines(l *ledger, found map[string]*finding, o Options) error {
	lines := make([]pipeline, len(l.partitions))
	for i := range lines {
		lines[i].position = l.groups.position(uint32(i), o.Transforms)
		lines[i].made = inputOf(l.partitions[i].Topic, o.Transforms)
	}
	c8 := &splits{l: l, lines: lines, wrong: map[int32]string{}}
	var reads []readEdge
	over := false
	err := l.outputs(func(a *lane, sequence uint64, input *history.Record) {
		lines[input.Partition].made = true
		readable := l.isReadable(a, sequence)
		if readable {
			lines[input.Partition].output(&l.views[input.Partition], input.Offset)
		}
		if i := l.book.indexOf(a, sequence); i >= 0 {
			c8.output(i, readable, input)
			if n := len(reads); n == 0 || reads[n-1] != (readEdge{input.Offset, input.Partition, i}) {
				if over = over || n >= maxReads; !over {
					reads = append(reads, readEdge{input.Offset, input.Partition, i})
				}
			}
		}
	})
	if err != nil {
		return err
	}
	found["C7"] = outputs(l, lines, o)
	if len(l.book.txns) > 0 {
		found["C8"] = c8.conclude(o)
		found["C5"], err = circles(l, reads, over)
	}
	return err
}

func inputOf(topic string, ts []Transform) bool {
	return slices.ContainsFunc(ts, func(t Transform) bool { return t.From == topic })
}

// outputs calls fn for every message that was made from another: its lane and sequence, and a record with the input's place.
func (l *ledger) outputs(fn func(a *lane, sequence uint64, input *history.Record)) error {
	if !l.derived {
		return nil
	}
	for _, name := range l.files[history.RoleSends] {
		var sent history.Record
		err := l.file(name, func(r *history.Record) {
			switch {
			case r.Kind == history.Sent:
				sent = *r
			case r.Kind == history.Origin && sent.Kind == history.Sent:
				if a := l.find(&sent); a != nil {
					fn(a, sent.Sequence, r)
				}
				sent.Kind = 0
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isReadable says whether the committed final read found a message.
func (l *ledger) isReadable(a *lane, sequence uint64) bool {
	if l.raw {
		return a.readable.has(sequence)
	}
	return a.seen.has(sequence)
}

// indexOf is the transaction of a message; -1 where it has none.
func (b *book) indexOf(a *lane, sequence uint64) int32 {
	if b.of(a, sequence) == nil {
		return -1
	}
	return a.runs[a.cursor].txn
}

func (p *pipeline) output(v *view, offset int64) {
	if !v.has(offset) {
		return
	}
	i := uint64(offset - v.base)
	if p.once.has(i) {
		p.again.set(i)
	}
	p.once.set(i)
}

// outputs is rule C7: below the group's position every readable input has one readable output.
func outputs(l *ledger, lines []pipeline, o Options) *finding {
	f := &finding{missing: "the run has no pipeline"}
	blind := l.complete(o)
	for i := range lines {
		p, v := &lines[i], &l.views[i]
		if !p.made {
			continue
		}
		if blind != "" || v.over || p.position < 0 {
			f.missing = "no position of the group is known"
			if blind != "" {
				f.missing = blind
			}
			continue
		}
		f.missing = ""
		f.of += v.count(v.base, p.position, nil)
		tell := func(shape, what string) func(int64) bool {
			return func(offset int64) bool {
				f.add(shape, func() Example {
					return l.example(&history.Record{Partition: uint32(i), Offset: offset}, what)
				})
				return true
			}
		}
		v.each(v.base, p.position, p.once, tell("lost", "the group went past this input, and nothing that was made of it is readable"))
		both := view{base: v.base, set: p.again}
		both.each(v.base, v.end, nil, tell("doubled", "more than one readable message was made of this input"))
	}
	return f
}
