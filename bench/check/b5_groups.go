package check

import (
	"fmt"
	"slices"
	"time"

	"gopherlog/bench/history"
)

// groupFindings are what the rules on groups count.
type groupFindings struct {
	b5, b6, b7, b8, b9, b10, b11, b12 finding
}

// judgeGroups is rules B5 to B12, and B1 to B4 on members of groups.
func judgeGroups(l *ledger, found map[string]*finding) (err error) {
	if l.groups, err = readGroups(l); err != nil {
		return err
	}
	var f groupFindings
	all := map[string]*finding{"B5": &f.b5, "B6": &f.b6, "B7": &f.b7, "B8": &f.b8, "B9": &f.b9, "B10": &f.b10, "B11": &f.b11, "B12": &f.b12}
	for id, x := range all {
		x.missing = "the run has no consumer group"
		found[id] = x
	}
	for _, g := range l.groups {
		if len(g.files) == 0 {
			continue
		}
		for _, x := range all {
			x.missing = ""
		}
		f.b7.missing, f.b12.missing = "no member told what it processed", "no position of the group was told in the end"
		if g.processed {
			f.b7.missing = ""
		}
		for _, name := range g.files {
			m := newMember(l, g, &f, name)
			if err := l.file(name, m.step); err != nil {
				return err
			}
		}
		for i := range g.partitions {
			g.judge(l, uint32(i), &f)
		}
		if g.over {
			l.note(fmt.Sprintf("only %d commits of group %s are judged", maxCommits, g.name))
		}
	}
	return nil
}

// A member is followed through its file.
type member struct {
	l     *ledger
	g     *groupBook
	f     *groupFindings
	watch *watch
	who   actor
	holds map[uint32]*hold
	ends  []int32 // of its incarnation's transactions, in order
	next  int     // the first of them that did not end before the reading's moment
	poll  time.Duration
}

// hold is a partition in a member's hand.
type hold struct {
	since     time.Duration
	position  int64 // where it began; -1 unknown
	first     int64 // the first offset delivered since the last transaction ended; -1 none
	high      int64 // the last one delivered
	processed int64 // the highest processed; -1 none
	covered   int64 // a commit of this very member returned that covers all below
	aborted   int64 // the first input of an aborted transaction, until the next delivery; -1 none
	highest   int64 // the last input of that transaction
}

func newMember(l *ledger, g *groupBook, f *groupFindings, file string) *member {
	return &member{l: l, g: g, f: f, watch: l.polls.watch(file), holds: map[uint32]*hold{}}
}

func (m *member) hold(p uint32) *hold {
	h := m.holds[p]
	if h == nil {
		h = &hold{since: never, position: -1, first: -1, processed: -1, aborted: -1}
		m.holds[p] = h
	}
	return h
}

func (m *member) step(r *history.Record) {
	if r.Kind == history.Delivered {
		m.settle(r.At)
		m.delivered(r)
		return
	}
	if r.Kind != history.Group {
		return
	}
	if who := (actor{r.Producer, r.Session}); who != m.who {
		m.settle(never)
		m.who, m.ends, m.next = who, m.l.book.ends[who], 0
	}
	switch r.Step {
	case history.Assigned:
		m.holds[r.Partition] = &hold{since: r.At, position: -1, first: -1, processed: -1, aborted: -1}
		m.watch.reset(r.Partition)
	case history.Revoked, history.Lost:
		delete(m.holds, r.Partition)
		m.watch.reset(r.Partition)
	case history.Left, history.Crashed:
		clear(m.holds)
		m.watch.resetAll()
	case history.Position:
		m.told(r)
	case history.PollEnd:
		m.watch.end()
	case history.Processed:
		h := m.hold(r.Partition)
		h.processed = max(h.processed, r.Offset)
	case history.CommitAsked:
		m.asked(r)
	case history.CommitAnswered:
		if r.Result == history.OK {
			h := m.hold(r.Partition)
			h.covered = max(h.covered, r.Offset)
		}
	}
}

// settle lets the member's transactions end that had ended by then: one that was not committed takes the positions back.
func (m *member) settle(now time.Duration) {
	for ; m.next < len(m.ends); m.next++ {
		t := &m.l.book.txns[m.ends[m.next]]
		if t.ended > now {
			return
		}
		for p, h := range m.holds {
			if !t.mustShow() {
				m.watch.reset(p)
				if h.first >= 0 && t.state == history.Aborted {
					h.aborted, h.highest = h.first, h.high
				}
			}
			h.first = -1
		}
	}
}

// told is rule B8: a position that was told after a commit had returned does not lie before it.
func (m *member) told(r *history.Record) {
	h := m.hold(r.Partition)
	h.position, h.first = r.Offset, -1
	m.watch.reset(r.Partition)
	p := m.g.at(r.Partition)
	if h.since == never {
		return
	}
	m.f.b8.of++
	if c := p.committedBy(h.since); max(r.Offset, 0) < c {
		m.f.b8.add("", func() Example {
			return m.g.example(m.l, r.Partition, r.Offset, m.who, r.At, fmt.Sprintf("%d was committed before, and %d told", c, r.Offset))
		})
	}
}

// delivered is rules B5 and B11.
func (m *member) delivered(r *history.Record) {
	m.watch.delivered(r)
	m.l.totals.GroupReads++
	if a := m.l.find(r); a != nil && r.Flags == 0 && r.Sequence < a.sent {
		m.l.book.runs.judge(a, r)
	}
	h, p := m.hold(r.Partition), m.g.at(r.Partition)
	m.resumed(h, r)
	if h.first < 0 {
		h.first = r.Offset
	}
	h.high = r.Offset
	m.f.b5.of++
	p.level(&m.l.views[r.Partition], r.Offset)
	covered := h.covered
	if h.since != never {
		covered = max(covered, p.committedBy(h.since))
	}
	if r.Offset < covered {
		m.f.b5.add("after a commit", func() Example {
			return m.g.example(m.l, r.Partition, r.Offset, m.who, r.At, fmt.Sprintf("was delivered although %d had been committed before", covered))
		})
	}
}

// resumed is rule B11: behind an aborted transaction a member goes on at its first input.
func (m *member) resumed(h *hold, r *history.Record) {
	if h.aborted < 0 {
		return
	}
	shape, first, last := "rewind", h.aborted, h.highest
	h.aborted = -1
	m.f.b11.of++
	switch v := &m.l.views[r.Partition]; {
	case r.Offset > first && v.count(first, r.Offset, nil) > 0:
		shape = "advance"
	case r.Offset < first:
		shape = "over-rewind"
	}
	if shape == "rewind" {
		m.f.b11.shape(shape)
		return
	}
	m.f.b11.add(shape, func() Example {
		return m.g.example(m.l, r.Partition, r.Offset, m.who, r.At, fmt.Sprintf("%s: the aborted transaction read offsets %d to %d", shape, first, last))
	})
}

// asked is rule B7: a commit names nothing that the member has not processed.
func (m *member) asked(r *history.Record) {
	h, v := m.hold(r.Partition), &m.l.views[r.Partition]
	from := max(h.processed+1, h.position)
	if h.processed < 0 && h.position < 0 {
		from = h.first
	}
	if from < 0 || v.over {
		return
	}
	m.f.b7.of++
	if n := v.count(from, r.Offset, nil); n > 0 {
		m.f.b7.add("", func() Example {
			return m.g.example(m.l, r.Partition, r.Offset, m.who, r.At, fmt.Sprintf("%d was to be committed with %d messages not processed, from offset %d on", r.Offset, n, from))
		})
	}
}

// level notes a delivery: the first, the second, or a further one.
func (p *groupPartition) level(v *view, offset int64) {
	if !v.has(offset) {
		return
	}
	i := uint64(offset - v.base)
	for k := range p.delivered {
		if !p.delivered[k].has(i) {
			p.delivered[k].set(i)
			return
		}
	}
}

// judge is what can be said of a partition once all members' files are read: rules B6, B9, B10 and B12.
func (g *groupBook) judge(l *ledger, i uint32, f *groupFindings) {
	p, v := g.at(i), &l.views[i]
	for k, shape := range []string{"delivered twice", "delivered three times or more"} {
		if n := (&view{base: v.base, set: p.delivered[k+1]}).count(v.base, v.end, nil); n > 0 {
			f.b5.shapeBy(shape, n)
		}
	}
	if c := p.committed(); p.position > -2 {
		f.b8.of++
		if max(p.position, 0) < c {
			f.b8.add("in the end", func() Example {
				return g.example(l, i, p.position, actor{}, never, fmt.Sprintf("%d was committed, and in the end the group stands at %d", c, p.position))
			})
		}
	}
	g.skipped(l, i, f)
	g.zombies(l, i, f)
	g.shared(l, i, f)
	g.stuck(l, i, f)
}

// skipped is rule B6: everything below a committed position was delivered to some member.
func (g *groupBook) skipped(l *ledger, i uint32, f *groupFindings) {
	p, v := g.at(i), &l.views[i]
	to := p.committed()
	if to == 0 || v.over {
		return
	}
	from := max(p.start, 0)
	f.b6.of += v.count(from, to, nil)
	if l.holes {
		return
	}
	v.each(from, to, p.delivered[0], func(offset int64) bool {
		f.b6.add("", func() Example {
			return g.example(l, i, offset, actor{}, never, fmt.Sprintf("was delivered to nobody, and %d is committed", to))
		})
		return true
	})
}

// zombies is rule B9: a commit of a generation that was over when it was asked is refused.
func (g *groupBook) zombies(l *ledger, i uint32, f *groupFindings) {
	p := g.at(i)
	held := slices.Clone(p.holdings)
	slices.SortStableFunc(held, func(a, b holding) int { return int(a.from - b.from) })
	byAsked := slices.Clone(p.commits)
	slices.SortStableFunc(byAsked, func(a, b commit) int { return int(a.asked - b.asked) })
	newest, next := holding{generation: -1}, 0
	for _, c := range byAsked {
		for ; next < len(held) && held[next].from < c.asked; next++ {
			if held[next].generation > newest.generation {
				newest = held[next]
			}
		}
		if !c.ok {
			continue
		}
		f.b9.of++
		if c.generation >= 0 && c.generation < newest.generation {
			f.b9.add("", func() Example {
				return g.example(l, i, c.next, c.by, c.at, fmt.Sprintf("a commit of generation %d was accepted, asked after %s had the partition in generation %d", c.generation, newest.by, newest.generation))
			})
		}
	}
}

// shared is rule B10: one partition is held by one member of a generation at a time.
func (g *groupBook) shared(l *ledger, i uint32, f *groupFindings) {
	held := slices.Clone(g.at(i).holdings)
	f.b10.of += int64(len(held))
	slices.SortStableFunc(held, func(a, b holding) int { return int(a.from - b.from) })
	last := map[int32]holding{} // by generation: the holding that lasts longest
	for _, h := range held {
		before, ok := last[h.generation]
		if ok && before.by != h.by && h.from < before.to {
			f.b10.add("", func() Example {
				return g.example(l, i, -1, h.by, h.from, fmt.Sprintf("%s was given the partition in generation %d while %s held it", h.by, h.generation, before.by))
			})
		}
		if !ok || h.to > before.to {
			last[h.generation] = h
		}
	}
}

// stuck is rule B12: a group that is not at the end of a partition reads it until the end of the run.
func (g *groupBook) stuck(l *ledger, i uint32, f *groupFindings) {
	p, v := g.at(i), &l.views[i]
	if p.position == -2 || v.over || !p.any && len(p.holdings) == 0 {
		return
	}
	f.b12.missing = ""
	f.b12.of++
	left := v.count(max(p.position, 0), v.end, nil)
	if left == 0 {
		return
	}
	if idle := g.last - p.lastRead; idle > l.grace {
		f.b12.add("", func() Example {
			return g.example(l, i, p.position, actor{}, p.lastRead, fmt.Sprintf("%d messages were left, and nothing was delivered in the last %.1f s", left, seconds(idle)))
		})
		return
	}
	f.b12.shape("behind, and reading")
}
