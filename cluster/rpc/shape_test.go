package rpc

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

// listLog is a GroupLog whose entry i is list[i-1].
type listLog []*raft.Log

func (l listLog) Entries(lo, hi uint64, maxBytes int) (out []*raft.Log, err error) {
	if lo < 1 || lo > uint64(len(l)) {
		return nil, errors.New("not held")
	}
	for _, e := range l[lo-1 : hi-1] {
		if maxBytes -= len(e.Data); len(out) > 0 && maxBytes < 0 {
			break
		}
		out = append(out, e)
	}
	return out, nil
}
func (l listLog) Term(i uint64) (uint64, error) { return l[i-1].Term, nil }
func (l listLog) LastIndex() uint64             { return uint64(len(l)) }
func (l listLog) EndOffset() int64              { return 0 }
func (l listLog) Contains(i, term uint64) bool  { return false }

func TestShape(t *testing.T) {
	log := make(listLog, 10)
	for i := range log {
		log[i] = &raft.Log{Index: uint64(i + 1), Term: 3, Data: make([]byte, 10)}
	}
	log[9].Term = 4 // appended by a later leader
	for _, c := range []struct {
		name       string
		prev, has  uint64 // the library asks for entries (prev, prev+has]
		budget     int
		want       uint64 // last index sent
		wantBehind bool
		noLog      bool
	}{
		{name: "fills an empty request up to the end of the term", prev: 4, has: 0, budget: 1000, want: 9},
		{name: "fills a request that the library cut by count", prev: 0, has: 2, budget: 1000, want: 9},
		{name: "cuts to the budget", prev: 0, has: 8, budget: 45, want: 4, wantBehind: true},
		{name: "fills to the budget and says that more is left", prev: 0, has: 2, budget: 45, want: 4, wantBehind: true},
		{name: "keeps one entry above the budget", prev: 0, has: 3, budget: 5, want: 1, wantBehind: true},
		{name: "stops at an entry of a higher term", prev: 8, has: 0, budget: 1000, want: 9},
		{name: "nothing to add at the end", prev: 10, has: 0, budget: 1000, want: 10},
		{name: "without a log only cuts", prev: 0, has: 2, budget: 1000, want: 2, noLog: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: c.prev, PrevLogTerm: 3, Entries: log[c.prev : c.prev+c.has]}
			var l GroupLog = log
			if c.noLog {
				l = nil
			}
			behind, _ := shape(args, l, c.budget)
			if got := c.prev + uint64(len(args.Entries)); got != c.want || behind != c.wantBehind {
				t.Errorf("last index %d, behind %v; want %d, %v", got, behind, c.want, c.wantBehind)
			}
			for i, e := range args.Entries {
				if e.Index != c.prev+uint64(i)+1 {
					t.Errorf("entry %d at place %d", e.Index, i)
				}
			}
		})
	}
}

func TestEntriesWithoutTheirDataAreReadAgain(t *testing.T) {
	whole := listLog{{Index: 1, Term: 1, Data: []byte("whole one")}, {Index: 2, Term: 1, Data: []byte("whole two")}}
	n, err := New(Config{Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	g := newGroup(n, GroupID{Partition: 1}, "1.a", whole, GroupOptions{Partial: func(l *raft.Log) bool { return len(l.Data) < 9 }})
	args := &raft.AppendEntriesRequest{Term: 1, Entries: []*raft.Log{{Index: 1, Term: 1, Data: []byte("wh")}, {Index: 2, Term: 1, Data: []byte("wh")}}}
	g.shapeFor("2.a", args)
	if diff := cmp.Diff([]*raft.Log(whole), args.Entries); diff != "" {
		t.Error(diff)
	}
}

// A leader that was deposed may have had its log cut and refilled while a
// request was put together; such a request must not leave.
func TestRequestOfADeposedLeaderDoesNotLeave(t *testing.T) {
	n, err := New(Config{Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	g := newGroup(n, GroupID{Partition: 1}, "1.a", nil, GroupOptions{})
	if err := g.mayLead(5); err != nil {
		t.Fatal(err)
	}
	g.followed(6) // a request of the leader of term 6 is about to reach the group
	if err := g.mayLead(5); !errors.Is(err, ErrStaleTerm) {
		t.Errorf("request of term 5: %v, want %v", err, ErrStaleTerm)
	}
	if err := g.mayLead(6); err != nil {
		t.Errorf("request of term 6: %v", err)
	}
}
