package twopc

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the tables in docs/TWO-PHASE-COMMIT.md")

const document = "../../docs/TWO-PHASE-COMMIT.md"

var (
	now    = Identity{Producer: 7, Epoch: 4}
	before = Identity{Producer: 7, Epoch: 3}
	txn    = Txn{Term: 2, Number: 5, Owner: now}
	past   = Txn{Term: 2, Number: 4, Owner: before}
	other  = Txn{Term: 2, Number: 6, Owner: now}
	forgot = Txn{Term: 1, Number: 9, Owner: before}
	newest = Txn{Term: 3, Number: 1, Owner: Identity{Producer: 7, Epoch: 9}}
	both   = []Member{"a", "b"}
)

// ledgerOf is a ledger whose client was given its epoch in term 2 and committed one transaction under the epoch before.
func ledgerOf() Ledger {
	l := NewLedger()
	l = l.Apply(Raised{Term: 2, Owner: before, Prev: Nobody, Timeout: time.Minute})
	l = l.Apply(Committed{Txn: past, Next: now, Members: both})
	return l.Apply(Finished{past})
}

type namedState struct {
	name, about string
	Coordinator
}

// coordinators are one state of every kind.
func coordinators() []namedState {
	base := Coordinator{Phase: Ready, Term: 2, Ledger: ledgerOf(), Number: 5}
	in := func(p Phase, missing ...Member) Coordinator {
		s := base
		s.Phase, s.Txn, s.Members, s.Missing = p, txn, both, missing
		return s
	}
	doomed := func(s Coordinator) Coordinator { s.Doomed = true; return s }
	waiting := func(s Coordinator) Coordinator { s.Request = 9; return s }
	stale := base
	stale.Term, stale.Number = 3, 0
	same := base // version 0: the newest commit and the client have the same epoch
	same.Ledger.Last.Txn.Owner, same.Ledger.Prev = now, Nobody
	raising := waiting(base)
	raising.Phase = Raising
	voting := waiting(in(Voting, "a", "b"))
	voting.Next = Identity{7, 5}
	last := waiting(in(Voting, "a"))
	last.Next = Identity{7, 5}
	deciding := waiting(in(Deciding))
	deciding.Next = Identity{7, 5}
	committing := in(Committing, "a")
	committing.Ledger = committing.Ledger.Apply(Committed{Txn: txn, Next: Identity{7, 5}, Members: both})
	committing0 := in(Committing, "a")
	committing0.Ledger = committing0.Ledger.Apply(Committed{Txn: txn, Next: now, Members: both})
	return []namedState{
		{"Fresh", "nobody was given an epoch", Coordinator{Phase: Fresh, Term: 2, Ledger: NewLedger()}},
		{"Raising", "an epoch waits to be replicated", raising},
		{"Ready", "no transaction", base},
		{"Ready, stale", "the epoch was given in an older term", stale},
		{"Ready, doomed", "the last transaction failed under its client", doomed(base)},
		{"Ready, same epoch", "version 0: the newest commit was made under the current epoch", same},
		{"Beginning", "version 0: the record of the epoch's next transaction waits to be replicated; its client goes on, nothing is let in yet", in(Beginning)},
		{"Beginning, asked", "the same, begun by a partition's leader, which waits", waiting(in(Beginning))},
		{"Open", "participants may be added", in(Open)},
		{"Voting", "two votes are missing", voting},
		{"Voting, last", "the vote of a is missing", last},
		{"Deciding", "the decision waits to be replicated", deciding},
		{"Committing", "decided under version 2; a has not ended", committing},
		{"Committing, same epoch", "decided under version 0; a has not ended", committing0},
		{"Aborting", "given up by its client; a has not ended", in(Aborting, "a")},
		{"Aborting, doomed", "failed; a has not ended", doomed(in(Aborting, "a"))},
		{"AbortRaising", "given up at version 2; the next epoch waits to be replicated", waiting(in(AbortRaising, "a"))},
		{"Silent", "does not lead any more", Coordinator{Phase: Silent, Term: 2, Ledger: ledgerOf()}},
	}
}

type namedEvent struct {
	name string
	Event
}

// coordinatorEvents are one of every kind, unexpected ones included.
func coordinatorEvents() []namedEvent {
	return []namedEvent{
		{"Init, new instance", Init{Request: 1, Claim: Nobody, Timeout: time.Minute, Fresh: 8}},
		{"Init, current epoch", Init{Request: 1, Claim: now, Timeout: time.Minute, Fresh: 8}},
		{"Init, older epoch", Init{Request: 1, Claim: Identity{7, 1}, Timeout: time.Minute, Fresh: 8}},
		{"Add c, version 0", Add{Request: 1, Owner: now, Members: []Member{"c"}, Version: 0}},
		{"Add c, version 2", Add{Request: 1, Owner: now, Members: []Member{"c"}, Version: 2}},
		{"Add c, epoch before", Add{Request: 1, Owner: before, Members: []Member{"c"}, Version: 2}},
		{"Add c, unknown producer", Add{Request: 1, Owner: Identity{6, 0}, Members: []Member{"c"}, Version: 2}},
		{"Verify a", Verify{Request: 1, Owner: now, Member: "a"}},
		{"Verify c", Verify{Request: 1, Owner: now, Member: "c"}},
		{"End commit, version 0", End{Request: 1, Owner: now, Commit: true, Version: 0}},
		{"End abort, version 0", End{Request: 1, Owner: now, Version: 0}},
		{"End commit, version 2", End{Request: 1, Owner: now, Commit: true, Version: 2}},
		{"End abort, version 2", End{Request: 1, Owner: now, Version: 2}},
		{"End commit, epoch before", End{Request: 1, Owner: before, Commit: true, Version: 2}},
		{"End abort, epoch before", End{Request: 1, Owner: before, Version: 2}},
		{"YES of a", Vote{Txn: txn, From: "a", Yes: true}},
		{"NO of a", Vote{Txn: txn, From: "a"}},
		{"NO of a, other transaction", Vote{Txn: other, From: "a"}},
		{"ENDED by a", Ended{Txn: txn, From: "a"}},
		{"ENDED by a, other transaction", Ended{Txn: other, From: "a"}},
		{"QUERY by a", Query{Txn: txn, From: "a"}},
		{"QUERY by a, committed before", Query{Txn: past, From: "a"}},
		{"QUERY by a, of an older term", Query{Txn: forgot, From: "a"}},
		{"QUERY by a, of a newer term", Query{Txn: newest, From: "a"}},
		{"a is deleted", Gone{"a"}},
		{"raised is durable", Durable{Raised{Term: 2, Owner: Identity{7, 5}, Prev: now, Timeout: time.Minute}}},
		{"begun is durable", Durable{Begun{txn}}},
		{"committed is durable", Durable{Committed{Txn: txn, Next: Identity{7, 5}, Members: both}}},
		{"transaction timeout", Timer{TimerTransaction}},
		{"vote timeout", Timer{TimerVotes}},
		{"resend", Timer{TimerResend}},
		{"leadership lost", Lost{}},
	}
}

// participants are one state of every kind.
func participants() []struct {
	name, about string
	Participant
} {
	in := func(s Stage) Participant { return Participant{Stage: s, Self: "a", Txn: txn, Ended: past} }
	marking := in(Marking)
	marking.Commit, marking.Told = true, true
	return []struct {
		name, about string
		Participant
	}{
		{"Idle", "nothing is open", Participant{Self: "a", Ended: past}},
		{"Working", "the transaction is open", in(Working)},
		{"Promising", "the promise waits to be replicated", in(Promising)},
		{"Prepared", "promised", in(Prepared)},
		{"Marking", "the marker waits to be replicated", marking},
		{"Skipping", "the word that nothing is here waits to be replicated", in(Skipping)},
		{"Deposed", "does not lead any more", Participant{Stage: Deposed, Self: "a", Ended: past}},
	}
}

func participantEvents() []namedEvent {
	orphaned := Txn{Term: 3, Number: 1, Owner: Identity{7, 5}}
	return []namedEvent{
		{"batch", Batch{Request: 1, Owner: now}},
		{"batch, verified", Batch{Request: 1, Owner: now, Verified: txn, Timeout: time.Minute}},
		{"batch, verified as what is over", Batch{Request: 1, Owner: before, Verified: past}},
		{"batch, older epoch", Batch{Request: 1, Owner: before}},
		{"batch, newer epoch", Batch{Request: 1, Owner: Identity{7, 5}}},
		{"batch, newer epoch, verified", Batch{Request: 1, Owner: Identity{7, 5}, Verified: orphaned, Timeout: time.Minute}},
		{"PREPARE", Prepare{txn}},
		{"PREPARE of what is over", Prepare{past}},
		{"PREPARE of the next one of the same epoch", Prepare{other}},
		{"PREPARE of a newer term", Prepare{newest}},
		{"COMMIT", Outcome{Txn: txn, Commit: true, Epoch: 5}},
		{"ABORT", Outcome{Txn: txn, Epoch: 5}},
		{"COMMIT of what is over", Outcome{Txn: past, Commit: true, Epoch: 4}},
		{"ABORT of a newer one", Outcome{Txn: newest, Epoch: 9}},
		{"operator: abort", Decree{Owner: now}},
		{"operator: abort of another epoch", Decree{Owner: before}},
		{"promised is durable", Durable{Promised{Txn: txn}}},
		{"marker is durable", Durable{Marked{Txn: txn, Commit: true}}},
		{"skipped is durable", Durable{Skipped{txn}}},
		{"transaction timeout", Timer{TimerTransaction}},
		{"ask", Timer{TimerAsk}},
		{"leadership lost", Lost{}},
	}
}

// The whole of both machines, as tables that the document shows: a change of any decision is a change of the document.
func TestEveryStateAndEventIsAsTheDocumentSays(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	want := replace(t, replace(t, string(text), "coordinator", coordinatorTable()), "participant", participantTable())
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("the tables of %s are not what the machines do; see the difference after: go test ./txn/twopc -run %s -update", document, t.Name())
	}
	if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replace puts the table between the marks of the document.
func replace(t *testing.T, text, name, table string) string {
	t.Helper()
	open, end := "<!-- "+name+" -->\n", "<!-- end -->"
	_, rest, ok := strings.Cut(text, open)
	head := strings.TrimSuffix(text, rest)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks for %s", document, name)
	}
	return head + table + end + tail
}

func coordinatorTable() string {
	var b strings.Builder
	for _, s := range coordinators() {
		fmt.Fprintf(&b, "\n**%s**: %s\n\n| Event | Next | Does |\n|---|---|---|\n", s.name, s.about)
		for _, e := range coordinatorEvents() {
			after, fx := Defaults().Coordinate(s.Coordinator, e.Event, time.Time{})
			if _, durable := e.Event.(Durable); len(fx) == 0 && (after.String() == s.String() || durable && after.Phase == s.Phase) {
				continue // a record that nothing waits for only becomes part of the ledger
			}
			next := after.Phase.String()
			if after.Doomed {
				next += ", doomed"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", e.name, next, says(fx))
		}
	}
	return b.String() + "\n"
}

func participantTable() string {
	var b strings.Builder
	for _, s := range participants() {
		fmt.Fprintf(&b, "\n**%s**: %s\n\n| Event | Next | Does |\n|---|---|---|\n", s.name, s.about)
		for _, e := range participantEvents() {
			after, fx := Defaults().Participate(s.Participant, e.Event, time.Time{})
			if after.String() == s.Participant.String() && len(fx) == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", e.name, after.Stage, says(fx))
		}
	}
	return b.String() + "\n"
}

// says writes effects as the document does.
func says(fx []Effect) string {
	out := make([]string, 0, len(fx))
	for _, f := range fx {
		switch f := f.(type) {
		case Append:
			out = append(out, "append "+f.Record.String())
		case Tell:
			out = append(out, fmt.Sprintf("%s to %s", f.Message, f.To))
		case Report:
			out = append(out, f.Message.String())
		case Answer:
			out = append(out, answerText(f))
		case SetTimer:
			out = append(out, "set "+f.Kind.String())
		case ClearTimer:
			out = append(out, "clear "+f.Kind.String())
		}
	}
	return strings.Join(out, "; ")
}

func answerText(a Answer) string {
	s := fmt.Sprintf("answer %d %s", a.Request, a.Result)
	if a.Owner != (Identity{}) {
		s += " " + a.Owner.String()
	}
	if a.Confirm {
		s += " if still leading"
	}
	return s
}

// Bad input never panics: every event of both machines in every state of both, one after the other.
func TestNoEventPanicsInAnyState(t *testing.T) {
	c := Defaults()
	events := append(coordinatorEvents(), participantEvents()...)
	for _, s := range coordinators() {
		for _, e := range events {
			after, _ := c.Coordinate(s.Coordinator, e.Event, time.Time{})
			for _, f := range events {
				c.Coordinate(after, f.Event, time.Time{})
			}
		}
	}
	for _, s := range participants() {
		for _, e := range events {
			after, _ := c.Participate(s.Participant, e.Event, time.Time{})
			for _, f := range events {
				c.Participate(after, f.Event, time.Time{})
			}
		}
	}
}
