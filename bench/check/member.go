package check

import (
	"fmt"
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
	first := true
	for _, g := range l.groups {
		if len(g.files) == 0 {
			continue
		}
		if first {
			for _, x := range all {
				x.missing = ""
			}
			f.b7.missing, f.b12.missing = "no member told what it processed", "no position of the group was told in the end"
			first = false
		}
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

// A member is followed through its file. Of a zombie and the incarnation that took its place, the newer one reads.
type member struct {
	l     *ledger
	g     *groupBook
	f     *groupFindings
	watch *watch
	lives map[uint16]*life
	now   *life // the newest incarnation
}

// life is one incarnation.
type life struct {
	who    actor
	holds  map[uint32]*hold
	worked map[uint32]int64 // the highest processed of the poll at hand, whoever holds the partition by now
	ends   []int32          // its transactions, in order
	next   int              // the first of them that did not end before the reading's moment
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
	return &member{l: l, g: g, f: f, watch: l.polls.watch(file), lives: map[uint16]*life{}}
}

// life is the incarnation of a record.
func (m *member) life(r *history.Record) *life {
	v := m.lives[r.Session]
	if v == nil {
		who := actor{r.Producer, r.Session}
		v = &life{who: who, holds: map[uint32]*hold{}, worked: map[uint32]int64{}, ends: m.l.book.inOrder(who)}
		m.lives[r.Session] = v
		if m.now == nil || r.Session > m.now.who.session {
			m.now = v
			m.watch.resetAll()
		}
	}
	return v
}

func newHold(since time.Duration) *hold {
	return &hold{since: since, position: -1, first: -1, processed: -1, aborted: -1}
}

func (v *life) hold(p uint32) *hold {
	h := v.holds[p]
	if h == nil {
		h = newHold(never)
		v.holds[p] = h
	}
	return h
}

func (m *member) step(r *history.Record) {
	if r.Kind == history.Delivered {
		if m.now == nil {
			m.life(&history.Record{})
		}
		m.settle(r.At)
		m.delivered(m.now, r)
		return
	}
	if r.Kind != history.Group {
		return
	}
	v := m.life(r)
	switch r.Step {
	case history.Assigned:
		v.holds[r.Partition] = newHold(r.At)
		m.reset(v, r.Partition)
	case history.Revoked, history.Lost:
		delete(v.holds, r.Partition)
		m.reset(v, r.Partition)
	case history.Left, history.Crashed:
		for p := range v.holds {
			m.reset(v, p)
		}
		clear(v.holds)
	case history.Position:
		m.told(v, r)
	case history.PollEnd:
		m.watch.end()
		clear(v.worked)
	case history.Processed:
		h := v.hold(r.Partition)
		h.processed = max(h.processed, r.Offset)
		v.worked[r.Partition] = r.Offset
	case history.CommitAsked:
		m.asked(v, r)
	case history.CommitAnswered:
		if r.Result == history.OK {
			h := v.hold(r.Partition)
			h.covered = max(h.covered, r.Offset)
		}
	}
}

// reset says that an incarnation's position in a partition was set anew.
func (m *member) reset(v *life, partition uint32) {
	if v == m.now {
		m.watch.reset(partition)
	}
}

// settle lets the reading incarnation's transactions end that had ended by then: one that was not committed takes the positions back.
func (m *member) settle(now time.Duration) {
	v := m.now
	for ; v.next < len(v.ends); v.next++ {
		t := &m.l.book.txns[v.ends[v.next]]
		if t.ended > now {
			return
		}
		for p, h := range v.holds {
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
