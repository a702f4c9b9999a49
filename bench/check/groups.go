package check

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"gopherlog/bench/history"
)

// maxCommits bounds the commits of one group that are judged: 64 bytes each.
const maxCommits = 1 << 22

// groups is what is known of consumer groups, read before their deliveries are.
type groups map[string]*groupBook

// groupBook is one group.
type groupBook struct {
	name       string
	files      []string
	partitions []groupPartition
	last       time.Duration // when a member was last heard of
	processed  bool          // members told what they processed
	over       bool          // more than maxCommits
	commits    int
}

// groupPartition is one partition as a group saw it.
type groupPartition struct {
	commits   []commit // in the order in which they returned
	holdings  []holding
	position  int64 // at the end: -1 none, -2 not told
	start     int64 // the lowest position that a member began from; -1 none told
	delivered [3]bitset
	lastRead  time.Duration
	any       bool
}

// commit is one offset commit.
type commit struct {
	asked, at  time.Duration
	next       int64
	generation int32
	by         actor
	ok         bool
}

// holding is a member's hold on a partition.
type holding struct {
	from, to   time.Duration // to: never while nothing ended it
	generation int32
	by         actor
}

func (g *groupBook) at(p uint32) *groupPartition { return &g.partitions[p] }

// readGroups reads what members of groups did, but not what they were given.
func readGroups(l *ledger) (groups, error) {
	gs := groups{}
	for _, role := range []string{history.RoleGroup, history.RolePositions} {
		for _, name := range l.files[role] {
			g, err := gs.open(l, name)
			if err != nil {
				return nil, err
			}
			if role == history.RolePositions {
				err = l.file(name, g.toldInTheEnd)
			} else {
				g.files = append(g.files, name)
				m := &memberSteps{l: l, g: g, held: map[memberPlace]int{}}
				err = l.file(name, m.step)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	for _, g := range gs {
		for i := range g.partitions {
			slices.SortStableFunc(g.partitions[i].commits, func(a, b commit) int { return cmp.Compare(a.at, b.at) })
		}
	}
	return gs, nil
}

func (gs groups) open(l *ledger, file string) (*groupBook, error) {
	r, err := history.OpenReader(file)
	if err != nil {
		return nil, err
	}
	name := r.Header().Group
	if err := r.Close(); err != nil {
		return nil, err
	}
	g := gs[name]
	if g == nil {
		g = &groupBook{name: name, partitions: make([]groupPartition, len(l.partitions))}
		for i := range g.partitions {
			g.partitions[i].position, g.partitions[i].start = -2, -1
		}
		gs[name] = g
	}
	return g, nil
}

func (g *groupBook) toldInTheEnd(r *history.Record) {
	if r.Kind == history.Group && r.Step == history.Position {
		g.at(r.Partition).position = r.Offset
	}
}

// memberSteps reads one member's file. A zombie's steps stand in it beside those of the incarnation that took its place.
type memberSteps struct {
	l     *ledger
	g     *groupBook
	held  map[memberPlace]int // index of the open holding
	asked []history.Record
}

// memberPlace is a partition in the hand of an incarnation.
type memberPlace struct {
	session   uint16
	partition uint32
}

func (m *memberSteps) step(r *history.Record) {
	if r.Kind == history.Delivered {
		p := m.g.at(r.Partition)
		p.any, p.lastRead = true, max(p.lastRead, r.At)
		return
	}
	if r.Kind != history.Group {
		return
	}
	m.g.last = max(m.g.last, r.At)
	at := memberPlace{r.Session, r.Partition}
	switch r.Step {
	case history.Assigned:
		m.release(at, r.At)
		p := m.g.at(r.Partition)
		m.held[at] = len(p.holdings)
		p.holdings = append(p.holdings, holding{from: r.At, to: never, generation: r.Epoch, by: actor{r.Producer, r.Session}})
	case history.Revoked, history.Lost:
		m.release(at, r.At)
	case history.Left, history.Crashed:
		for p := range m.held {
			if p.session == r.Session {
				m.release(p, r.At)
			}
		}
	case history.Position:
		p := m.g.at(r.Partition)
		if start := max(r.Offset, 0); p.start < 0 || start < p.start {
			p.start = start
		}
	case history.Processed:
		m.g.processed = true
	case history.CommitAsked:
		m.ask(r)
	case history.CommitAnswered:
		m.answer(r)
	}
}

func (m *memberSteps) release(p memberPlace, at time.Duration) {
	if i, ok := m.held[p]; ok {
		m.g.at(p.partition).holdings[i].to = at
		delete(m.held, p)
	}
}

// ask takes a commit. One inside a transaction returns with the transaction.
func (m *memberSteps) ask(r *history.Record) {
	if r.Txn == 0 {
		m.asked = append(m.asked, *r)
		return
	}
	c := commit{asked: r.At, next: r.Offset, generation: r.Epoch, by: actor{r.Producer, r.Session}, at: never}
	if t := m.l.book.get(c.by, r.Txn); t != nil {
		c.at, c.ok = t.ended, t.mustShow()
	}
	m.g.commit(r.Partition, c)
}

// answer ends the oldest commit of that place that was not answered.
func (m *memberSteps) answer(r *history.Record) {
	i := slices.IndexFunc(m.asked, func(q history.Record) bool {
		return q.Session == r.Session && q.Partition == r.Partition && q.Offset == r.Offset
	})
	c := commit{asked: r.Asked, at: r.At, next: r.Offset, generation: r.Epoch, by: actor{r.Producer, r.Session}, ok: r.Result == history.OK}
	if i >= 0 {
		c.asked, c.generation = m.asked[i].At, m.asked[i].Epoch
		m.asked = slices.Delete(m.asked, i, i+1)
	}
	m.g.commit(r.Partition, c)
}

func (g *groupBook) commit(p uint32, c commit) {
	if g.commits++; g.commits > maxCommits {
		g.over = true
		return
	}
	g.at(p).commits = append(g.at(p).commits, c)
}

// committedBy is the greatest position of which the commit had returned before a moment; 0 where there was none.
func (p *groupPartition) committedBy(at time.Duration) (next int64) {
	n := sort.Search(len(p.commits), func(i int) bool { return p.commits[i].at >= at })
	for _, c := range p.commits[:n] {
		if c.ok {
			next = max(next, c.next)
		}
	}
	return next
}

// committed is the greatest position of which a commit returned.
func (p *groupPartition) committed() int64 { return p.committedBy(never) }

// position is where the group that reads a partition stands in the end: what it told, or what was committed; -1 where neither is known.
func (gs groups) position(partition uint32, ts []Transform) int64 {
	at := int64(-1)
	for _, g := range gs {
		if len(ts) > 0 && !slices.ContainsFunc(ts, func(t Transform) bool { return t.Group == g.name }) {
			continue
		}
		switch p := g.at(partition); {
		case p.position >= 0:
			at = max(at, p.position)
		case p.position == -2 && len(p.commits) > 0:
			at = max(at, p.committed())
		}
	}
	return at
}

// example is a witness that is a place of a group.
func (g *groupBook) example(l *ledger, p uint32, offset int64, by actor, at time.Duration, what string) Example {
	e := Example{Topic: l.partitions[p].Topic, Partition: l.partitions[p].Partition, Offset: offset, Producer: int(by.producer), Session: int(by.session),
		What: "group " + g.name + ": " + what, Seconds: -1}
	if at != never {
		e.Seconds = seconds(at)
	}
	return e
}

func (a actor) String() string {
	return fmt.Sprintf("member %d, incarnation %d", a.producer, a.session)
}
