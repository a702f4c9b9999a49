package groups

import (
	"fmt"
	"strings"

	"gopherlog/txn/explore"
	"gopherlog/txn/group"
)

// member joins, takes the position of each partition that it gets, and works: one step of work moves the positions on by one and commits
// them. It leaves when it has committed often enough. It does what real clients do: it repeats what is not answered, joins again when it is
// told that the group changes, and as somebody new when it is told that nobody knows it.
type member struct {
	Setting
	i int
}

// stage is what the member waits for.
type stage uint8

const (
	joining stage = iota
	syncing
	fetching
	working
	idle // it has no partition
	committing
	finished
	gone // it has joined as often as it may
)

var stages = [...]string{"joining", "syncing", "fetching", "working", "idle", "committing", "finished", "gone"}

// claim is what the member was given in a generation, and where it started.
type claim struct {
	Generation int32
	Parts      string
	Start      offsets
}

// memberLocal is what the member knows and what it was told.
type memberLocal struct {
	Stage      stage
	Try        int
	ID         string
	Generation int32
	Roster     string
	Position   offsets
	Done       int
	Claims     []claim
	Acked      []entry // commits that were acknowledged
}

func (l memberLocal) String() string {
	s := fmt.Sprintf("%s, try %d, %q generation %d, done %d", stages[l.Stage], l.Try, l.ID, l.Generation, l.Done)
	if l.Roster != "" {
		s += " leads " + l.Roster
	}
	if l.Stage == working || l.Stage == committing {
		s += fmt.Sprintf(" at %v", l.Position)
	}
	for _, c := range l.Claims {
		s += fmt.Sprintf(" | had %q of %d from %v", c.Parts, c.Generation, c.Start)
	}
	for _, a := range l.Acked {
		s += " | acknowledged " + a.String()
	}
	return s
}

// parts are the partitions that the member has now.
func (l memberLocal) parts() string {
	if n := len(l.Claims); n > 0 {
		return l.Claims[n-1].Parts
	}
	return ""
}

func (m member) Name() string { return fmt.Sprintf("m%d", m.i) }

func (m member) Boot(int, []explore.Record) (explore.Local, []explore.Effect) {
	return m.join(memberLocal{})
}

// join begins the next try: with the id that the member has, or as somebody new.
func (m member) join(l memberLocal) (explore.Local, []explore.Effect) {
	l.Generation, l.Roster, l.Position = 0, "", nowhere
	if l.Try++; l.Try > m.Tries {
		l.Stage, l.ID = gone, ""
		return l, nil
	}
	l.Stage = joining
	return l, m.ask(l)
}

// waits is the request that the member waits for the answer of.
func (m member) waits(l memberLocal) (request, bool) {
	r := request{Member: m.i, Try: l.Try}
	switch l.Stage {
	case joining:
		if r.Kind = joinNew; l.ID != "" {
			r.Kind = joinAgain
		}
	case syncing:
		r.Kind = sync
	case fetching:
		r.Kind = fetch
	case committing:
		r.Kind, r.Number = commit, l.Done
	default:
		return r, false
	}
	return r, true
}

// ask sends what the member waits for the answer of; who is in a generation lets itself be heard beside.
func (m member) ask(l memberLocal) (out []explore.Effect) {
	if r, ok := m.waits(l); ok {
		a := ask{request: r, ID: l.ID, Generation: l.Generation}
		switch r.Kind {
		case sync:
			a.Assign = m.assignment(l.Roster)
		case commit:
			a.Offsets = l.Position
		}
		out = append(out, explore.Send{To: coordinatorID, Body: a})
	}
	if l.inGeneration() {
		a := ask{request: request{Member: m.i, Try: l.Try, Kind: beat}, ID: l.ID, Generation: l.Generation}
		out = append(out, explore.Send{To: coordinatorID, Body: a})
	}
	return out
}

func (l memberLocal) inGeneration() bool {
	return l.Stage == fetching || l.Stage == working || l.Stage == idle || l.Stage == committing
}

// assignment divides the partitions among the members in turn.
func (m member) assignment(roster string) string {
	if roster == "" {
		return ""
	}
	ids := strings.Split(roster, ",")
	var out []string
	for i := range m.Partitions {
		out = append(out, fmt.Sprintf("%s:%d", ids[i%len(ids)], i))
	}
	return strings.Join(out, ",")
}

func (m member) Own(local explore.Local) []explore.Event {
	switch l := local.(memberLocal); l.Stage {
	case finished, gone:
		return nil
	case working:
		return []explore.Event{own("works and commits"), again("is heard again")}
	case idle:
		return []explore.Event{again("is heard again")}
	}
	return []explore.Event{again("repeats its request")}
}

func (m member) Handle(local explore.Local, e explore.Event) (explore.Local, []explore.Effect) {
	l := local.(memberLocal)
	switch e := e.(type) {
	case again:
		return l, m.ask(l)
	case own:
		for _, p := range l.parts() {
			l.Position[p-'0']++
		}
		l.Stage = committing
		return l, m.ask(l)[:1] // it is heard of already
	case explore.Message:
		a := e.Body.(answer)
		if a.Kind == beat && a.Try == l.Try && l.inGeneration() {
			return m.refused(l, a.Code)
		}
		if r, ok := m.waits(l); ok && r == a.request {
			return m.told(l, a)
		}
	}
	return l, nil
}

func (m member) told(l memberLocal, a answer) (explore.Local, []explore.Effect) {
	switch {
	case a.Code == group.MemberIDRequired:
		l.ID = a.ID
		return l, m.ask(l)
	case l.Stage == joining && a.Code == group.RebalanceInProgress: // a repeat took its place
		return l, nil
	case a.Code != group.OK:
		return m.refused(l, a.Code)
	}
	switch l.Stage {
	case joining:
		l.Stage, l.ID, l.Generation, l.Roster = syncing, a.ID, a.Generation, a.Roster
	case syncing:
		l.Claims = append(append([]claim(nil), l.Claims...), claim{l.Generation, a.Parts, nowhere})
		if l.Stage = fetching; a.Parts == "" {
			l.Stage = idle
		}
		l.Roster = ""
	case fetching:
		l.Stage, l.Position = working, m.start(l, a.Offsets)
		claims := append([]claim(nil), l.Claims...)
		claims[len(claims)-1].Start = l.Position
		l.Claims = claims
		return l, nil
	case committing:
		l.Acked = append(append([]entry(nil), l.Acked...), entry{Request: a.number(), Generation: l.Generation, Offsets: l.Position})
		if l.Done++; l.Done == m.Commits {
			return m.leave(l)
		}
		l.Stage = working
		return l, nil
	}
	return l, m.ask(l)
}

// start is where the member begins to read its partitions: at the position that was committed, or at the beginning.
func (m member) start(l memberLocal, committed offsets) offsets {
	out := nowhere
	for _, p := range l.parts() {
		out[p-'0'] = max(committed[p-'0'], 0)
	}
	return out
}

// refused: the group changes, or goes on without the member.
func (m member) refused(l memberLocal, code group.Code) (explore.Local, []explore.Effect) {
	if code != group.RebalanceInProgress {
		l.ID = ""
	}
	return m.join(l)
}

func (m member) leave(l memberLocal) (explore.Local, []explore.Effect) {
	a := ask{request: request{Member: m.i, Try: l.Try, Kind: leave}, ID: l.ID, Generation: l.Generation}
	l.Stage, l.ID, l.Generation, l.Position = finished, "", 0, nowhere
	return l, []explore.Effect{explore.Send{To: coordinatorID, Body: a}}
}
