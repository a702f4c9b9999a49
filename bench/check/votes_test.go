package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// ballot is what three nodes wrote down of voted transactions: every participant's facts at all replicas. Tests bend it.
type ballot struct {
	facts []Fact
	index int64
}

func (b *ballot) tell(id, txn, what, topic string, partition int32) {
	b.index++
	b.facts = append(b.facts, Fact{ID: id, Txn: txn, What: what, Topic: topic, Partition: partition, Index: b.index})
}

// vote is one transaction over three participants.
func (b *ballot) vote(txn string, commit bool) {
	const id = "2pc.t"
	for p := range int32(3) {
		b.tell(id, txn, "opened", "in", p)
	}
	outcome := "abort-marker"
	for p := range int32(3) {
		if commit || p == 0 { // an abort after one yes
			b.tell(id, txn, "promised", "in", p)
		}
	}
	if commit {
		b.tell(id, txn, "committed", "__two_phase_commit", 4)
		outcome = "commit-marker"
	}
	for p := range int32(3) {
		b.tell(id, txn, outcome, "in", p)
	}
}

func fairVote() *ballot {
	b := &ballot{facts: []Fact{{ID: "2pc.t", What: "raised", Topic: "__two_phase_commit", Partition: 4}}}
	for i := range 20 {
		b.vote(fmt.Sprintf("t5.0/7:%d", i), i%4 != 0)
	}
	return b
}

func (b *ballot) find(t *testing.T, txn, what string) int {
	t.Helper()
	i := slices.IndexFunc(b.facts, func(f Fact) bool { return f.Txn == txn && f.What == what })
	if i < 0 {
		t.Fatalf("no %s of %s", what, txn)
	}
	return i
}

func (b *ballot) votes(t *testing.T) *Votes {
	v := &Votes{}
	for node := range 3 {
		body, err := json.Marshal(map[string]any{"node": node, "dropped": 0, "facts": b.facts})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Add(body); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func TestEveryPlantedFaultOfAVoteIsCaughtByItsRule(t *testing.T) {
	const txn = "t5.0/7:5" // a committed one
	for _, c := range []struct {
		name   string
		bend   func(b *ballot)
		counts map[string]int64
	}{
		{"a fair vote", func(*ballot) {}, nil},
		{"one participant aborts what the others commit", func(b *ballot) {
			b.facts[b.find(t, txn, "commit-marker")].What = "abort-marker"
		}, map[string]int64{"D1": 1}},
		{"a promise that nobody redeems", func(b *ballot) {
			i := b.find(t, txn, "commit-marker")
			b.facts = slices.Delete(b.facts, i, i+1)
		}, map[string]int64{"D2": 1}},
		{"an outcome applied twice", func(b *ballot) {
			b.tell("2pc.t", txn, "commit-marker", "in", 1)
		}, map[string]int64{"D3": 1}},
		{"a participant that ends both ways", func(b *ballot) {
			b.tell("2pc.t", txn, "abort-marker", "in", 1)
		}, map[string]int64{"D4": 1}},
		{"a decision that everybody breaks", func(b *ballot) {
			for i := range b.facts {
				if b.facts[i].Txn == txn && b.facts[i].What == "commit-marker" {
					b.facts[i].What = "abort-marker"
				}
			}
		}, map[string]int64{"D4": 1}},
		{"a commit without a promise", func(b *ballot) {
			i := b.find(t, txn, "promised")
			b.facts = slices.Delete(b.facts, i, i+1)
		}, map[string]int64{"D5": 1}},
		{"a commit that nobody decided", func(b *ballot) {
			i := b.find(t, txn, "committed")
			b.facts = slices.Delete(b.facts, i, i+1)
		}, map[string]int64{"D6": 3}},
	} {
		b := fairVote()
		c.bend(b)
		o := strictTxns()
		o.Guarantee, o.Votes = twoPhaseCommit, b.votes(t)
		v := perfectTxns().judge(t, o)
		for _, r := range v.Rules {
			if r.ID[0] != 'D' {
				continue
			}
			if r.Count != c.counts[r.ID] || r.Status == NotChecked || r.Denominator == 0 || int64(len(r.Examples)) != r.Count {
				t.Errorf("%s: %s counts %d, not %d: %+v", c.name, r.ID, r.Count, c.counts[r.ID], r)
			}
		}
		if want := map[bool]Status{true: Pass, false: Violated}[len(c.counts) == 0]; v.Status != want {
			t.Errorf("%s: %s %q", c.name, v.Status, v.Reasons)
		}
	}
}

func TestAVoteThatIsNotWholeProvesNoAbsence(t *testing.T) {
	silent := &Votes{}
	silent.Silent(2)
	for name, votes := range map[string]*Votes{"never read": nil, "nothing written down": {}, "silent nodes": silent} {
		o := strictTxns()
		o.Guarantee, o.Votes = twoPhaseCommit, votes
		v := perfectTxns().judge(t, o)
		if want := map[bool]Status{true: Pass, false: Inconclusive}[votes == nil]; v.Status != want {
			t.Errorf("%s: %s %q", name, v.Status, v.Reasons)
		}
		for _, r := range v.Rules {
			if r.ID[0] == 'D' && (r.Status != NotChecked || r.Why == "") {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}

	b := fairVote()
	const txn = "t5.0/7:5"
	b.facts = slices.DeleteFunc(b.facts, func(f Fact) bool { // every node began to keep facts after these
		return f.Txn == txn && (f.What == "opened" || f.What == "promised")
	})
	o := strictTxns()
	o.Guarantee, o.Votes = twoPhaseCommit, b.votes(t)
	if v := perfectTxns().judge(t, o); v.Status != Pass || rule(t, v, "D5").Denominator == rule(t, v, "D6").Denominator {
		t.Errorf("%s %q", v.Status, v.Reasons)
	}

	b = fairVote()
	b.facts = slices.DeleteFunc(b.facts, func(f Fact) bool { return f.What == "committed" })
	b.facts[0].Index = 700 // the head of the coordinator's log is trimmed
	o.Votes = b.votes(t)
	if v := perfectTxns().judge(t, o); v.Status != Pass || rule(t, v, "D6").Status != NotChecked {
		t.Errorf("%s %q", v.Status, v.Reasons)
	}

	b.tell("2pc.t", txn, "abort-marker", "in", 1) // what is seen is seen
	o.Votes = b.votes(t)
	o.Votes.Silent(2)
	if r := rule(t, perfectTxns().judge(t, o), "D4"); r.Status != Violated {
		t.Errorf("%+v", r)
	}
	if err := (&Votes{}).Add([]byte("<html>")); err == nil {
		t.Error("no error for what is no record of votes")
	}
}

// A node that lags behind has a promise and no outcome yet: the outcome may be with the node that does not answer.
func TestAPromiseIsNoFaultWhileANodeIsSilent(t *testing.T) {
	b := fairVote()
	i := b.find(t, "t5.0/7:5", "commit-marker")
	b.facts = slices.Delete(b.facts, i, i+1)
	o := strictTxns()
	o.Guarantee, o.Votes = twoPhaseCommit, b.votes(t)
	o.Votes.Silent(3)
	r := rule(t, perfectTxns().judge(t, o), "D2")
	if r.Status != NotChecked || !strings.Contains(r.Why, "node 3 did not tell") {
		t.Errorf("%+v", r)
	}
}
