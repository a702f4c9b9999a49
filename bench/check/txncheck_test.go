package check

import (
	"slices"
	"strings"
	"testing"

	"gopherlog/bench/history"
)

func TestEveryPlantedFaultOfTransactionsAndGroupsIsCaughtByItsRules(t *testing.T) {
	caught := map[string]bool{}
	for _, f := range txnFaults {
		t.Run(f.name, func(t *testing.T) {
			w := perfectTxns()
			f.bend(t, w)
			v := w.judge(t, strictTxns())
			violated := false
			shapes := map[string]int64{}
			for _, r := range v.Rules {
				if r.Count != f.counts[r.ID] {
					t.Errorf("%s counts %d, not %d: %+v", r.ID, r.Count, f.counts[r.ID], r.Examples)
				}
				if r.Count > 0 {
					violated = violated || r.Demand == MustBeZero
					caught[r.ID] = true
					if len(r.Examples) == 0 || r.Examples[0].What == "" {
						t.Errorf("%s has no witness", r.ID)
					}
				}
				for s, n := range r.Shapes {
					shapes[s] += n
				}
			}
			if (v.Status == Violated) != violated || v.Status == Inconclusive {
				t.Errorf("status %s, %q", v.Status, v.Reasons)
			}
			if f.shape != "" && shapes[f.shape] == 0 {
				t.Errorf("no shape %q in %v", f.shape, shapes)
			}
		})
	}
	for _, id := range RuleIDs() {
		if id[0] != 'A' && id[0] != 'D' && !caught[id] {
			t.Errorf("no planted fault was caught by %s", id)
		}
	}
}

func TestCleanHistoriesOfTransactionsPass(t *testing.T) {
	for name, bend := range map[string]func(w *txnWorld){
		"perfect":                                               func(*txnWorld) {},
		"without the uncommitted final read":                    func(w *txnWorld) { w.noRaw = true },
		"without the group's last word":                         func(w *txnWorld) { w.silent = true },
		"without anything read during the run":                  func(w *txnWorld) { w.reads = nil },
		"a member that crashed":                                 crashed,
		"a zombie that reads on and whose commit is refused":    zombie,
		"a zombie in whose own place another incarnation works": replaced,
		"a member that lost what it worked on and got it back":  func(w *txnWorld) { regained(w, 0) },
		"a log that lost its head to retention":                 func(w *txnWorld) { w.noGroup = true; expire(w, out1, 40) },
		"a final read that was reset":                           func(w *txnWorld) { w.raw = append(w.raw, w.raw[:200]...) },
		"a transaction still open where the producer died": func(w *txnWorld) {
			w.drain, w.raw = nil, nil
			t := w.begin(1)
			w.send(t, out0, nil)
			w.end(t, history.AskCommit, history.Aborted, history.InDoubt)
			w.tellEnds()
			w.readAll()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, o := perfectTxns(), strictTxns()
			bend(w)
			if o.Expires = slices.ContainsFunc(w.ends, func(r history.Record) bool { return r.Kind == history.StartAnswer }); o.Expires {
				o.Transforms = nil
			}
			v := w.judge(t, o)
			if v.Status != Pass {
				t.Errorf("%s: %q", v.Status, v.Reasons)
			}
			for _, r := range v.Rules {
				if r.Count != 0 {
					t.Errorf("%s counts %d: %+v", r.ID, r.Count, r.Examples)
				}
			}
		})
	}
}

// expire lets retention delete the head of a partition.
func expire(w *txnWorld, partition uint32, below int64) {
	gone := func(r history.Record) bool { return r.Partition == partition && r.Offset < below }
	w.drain, w.raw = slices.DeleteFunc(w.drain, gone), slices.DeleteFunc(w.raw, gone)
	for p := range uint32(txnPartitions) {
		r := history.Record{Kind: history.StartAnswer, Partition: p, Epoch: 1, Asked: w.tick(), At: w.tick()}
		if p == partition {
			r.Offset = below
		}
		w.ends = append(w.ends, r)
	}
}

// crashed lets a member die in a transaction and begin anew, as another incarnation, at the committed position.
func crashed(w *txnWorld) {
	w.drain, w.raw = nil, nil
	w.produce(1, history.AskCommit, history.Committed, history.Committed)
	w.readOn()
	at := w.positions[in0].Offset
	w.work(memberB, in0, at, 2, history.AskAbort)
	list := w.txns[memberB]
	list[len(list)-2].Step, list[len(list)-1].Step = history.AskAbort, history.InDoubt
	w.member(memberB, history.Crashed, history.Record{})
	w.init(memberB, 1)
	w.assign(memberB, in0, 3, at)
	w.positions[in0].Offset = w.work(memberB, in0, at, 3, history.AskCommit)
	w.positions[in1].Offset = w.work(memberA, in1, w.positions[in1].Offset, 3, history.AskCommit)
	w.readOn()
	w.tellEnds()
	w.readAll()
}

// zombie lets a frozen member go on with what it had fetched after another one has taken over and committed, and its commit fail.
func zombie(w *txnWorld) {
	w.drain, w.raw = nil, nil
	w.produce(1, history.AskCommit, history.Committed, history.Committed)
	w.readOn()
	at := w.positions[in0].Offset
	w.member(memberB, history.Frozen, history.Record{})
	w.assign(memberA, in0, 3, at)
	w.positions[in0].Offset = w.work(memberA, in0, at, 3, history.AskCommit)
	w.positions[in1].Offset = w.work(memberA, in1, w.positions[in1].Offset, 3, history.AskCommit)
	w.member(memberB, history.Thawed, history.Record{})
	w.work(memberB, in0, at, 2, history.AskAbort)
	w.member(memberB, history.CommitAsked, history.Record{Partition: in0, Offset: w.positions[in0].Offset, Epoch: 2})
	w.member(memberB, history.CommitAnswered, history.Record{Partition: in0, Offset: w.positions[in0].Offset, Epoch: 2, Result: history.Failed, Class: 1, Asked: w.at})
	w.member(memberB, history.Lost, history.Record{Partition: in0, Epoch: 2})
	w.readOn()
	w.tellEnds()
	w.readAll()
}

// regained lets a member lose its partition and get it back between its work and the end of its transaction, which aborts; it
// asks for the commit after as many polls that bring nothing.
func regained(w *txnWorld, polls int) {
	w.drain, w.raw = nil, nil
	w.produce(1, history.AskCommit, history.Committed, history.Committed)
	w.readOn()
	at := w.positions[in0].Offset
	w.work(memberB, in0, at, 2, history.AskAbort)
	steps, work := w.txns[memberB], w.group[memberB]
	steps[len(steps)-2].Step = history.AskCommit
	w.member(memberB, history.Lost, history.Record{Partition: in0, Epoch: 2})
	w.assign(memberB, in0, 3, at)
	for range polls {
		w.member(memberB, history.PollEnd, history.Record{Asked: w.at})
	}
	w.member(memberB, history.CommitAsked, history.Record{Partition: in0, Offset: work[len(work)-1].Offset + 1, Epoch: 3, Txn: steps[len(steps)-1].Txn})
	w.positions[in0].Offset = w.work(memberB, in0, at, 3, history.AskCommit)
	w.positions[in1].Offset = w.work(memberA, in1, w.positions[in1].Offset, 3, history.AskCommit)
	w.readOn()
	w.tellEnds()
	w.readAll()
}

// replaced lets a frozen member's place be taken by its next incarnation, whose steps stand in the same file, before it wakes up.
func replaced(w *txnWorld) {
	w.drain, w.raw = nil, nil
	for range 3 {
		w.produce(1, history.AskCommit, history.Committed, history.Committed)
	}
	w.readOn()
	at := w.positions[in0].Offset
	w.work(memberB, in0, at, 2, history.AskAbort)
	w.member(memberB, history.Frozen, history.Record{})
	w.init(memberB, 1)
	w.assign(memberB, in0, 3, at)
	w.positions[in0].Offset = w.work(memberB, in0, at, 3, history.AskCommit)
	w.positions[in1].Offset = w.work(memberA, in1, w.positions[in1].Offset, 3, history.AskCommit)
	w.session[memberB] = 0
	w.member(memberB, history.Thawed, history.Record{})
	w.member(memberB, history.Processed, history.Record{Partition: in0, Offset: w.positions[in0].Offset - 1})
	w.member(memberB, history.CommitAsked, history.Record{Partition: in0, Offset: w.positions[in0].Offset, Epoch: 2})
	w.member(memberB, history.CommitAnswered, history.Record{Partition: in0, Offset: w.positions[in0].Offset, Epoch: 2, Result: history.Failed, Class: 1, Asked: w.at})
	w.member(memberB, history.Lost, history.Record{Partition: in0, Epoch: 2})
	w.member(memberB, history.Left, history.Record{})
	w.session[memberB] = 1
	w.produce(1, history.AskCommit, history.Committed, history.Committed)
	w.positions[in0].Offset = w.work(memberB, in0, w.positions[in0].Offset, 3, history.AskCommit)
	w.positions[in1].Offset = w.work(memberA, in1, w.positions[in1].Offset, 3, history.AskCommit)
	w.readOn()
	w.tellEnds()
	w.readAll()
}

func TestWhatHasNoEvidenceIsNotCheckedAndNeverPassed(t *testing.T) {
	checked := func(v Verdict) (ids []string) {
		for _, r := range v.Rules {
			if r.Status == Pass {
				ids = append(ids, r.ID)
				if r.Denominator == 0 || r.Upper95 == 1 {
					t.Errorf("a pass without a denominator: %+v", r)
				}
			} else if r.Status != NotChecked || r.Why == "" || r.Upper95 != 1 {
				t.Errorf("%+v", r)
			}
		}
		return ids
	}
	w := perfectTxns()
	all := checked(w.judge(t, strictTxns()))
	for _, id := range RuleIDs() {
		if DemandOf(transactional, id) != NotApplicable && id != "C10" && !slices.Contains(all, id) {
			t.Errorf("%s is not checked in a whole history", id)
		}
	}
	for name, c := range map[string]struct {
		bend func(w *txnWorld, o *Options)
		lack []string
	}{
		"replicas that nobody read":     {func(_ *txnWorld, o *Options) { o.Replicas = nil }, []string{"A8", "A12"}},
		"no group":                      {func(w *txnWorld, _ *Options) { w.noGroup = true }, []string{"B5", "B6", "B7", "B8", "B9", "B10", "B11", "B12"}},
		"no polls":                      {func(w *txnWorld, _ *Options) { w.noGroup = true; w.reads = slices.DeleteFunc(w.reads, poll) }, []string{"B1", "B2"}},
		"no last word":                  {func(w *txnWorld, _ *Options) { w.silent = true }, []string{"B12"}},
		"no reads in the run":           {func(w *txnWorld, _ *Options) { w.reads, w.noGroup = nil, true }, []string{"C2"}},
		"a final read that broke off":   {func(w *txnWorld, o *Options) { o.Drained = false; w.drain = w.drain[:10] }, []string{"B1", "B3", "B6", "B7", "B12", "C3", "C5", "C7", "C8", "C12"}},
		"no timeout":                    {func(_ *txnWorld, o *Options) { o.TxnTimeout = 0 }, []string{"C11"}},
		"retention that nobody told of": {func(_ *txnWorld, o *Options) { o.Expires = true }, []string{"C3", "C7", "C8", "C12"}},
		"a pipeline that retention cut": {func(w *txnWorld, o *Options) { o.Expires = true; expire(w, in0, 50) }, []string{"C7", "C8"}},
	} {
		w, o := perfectTxns(), strictTxns()
		c.bend(w, &o)
		got := checked(w.judge(t, o))
		for _, id := range c.lack {
			if slices.Contains(got, id) {
				t.Errorf("%s: %s passes", name, id)
			}
		}
	}
}

func TestATransactionalGuaranteeWithoutTransactionsIsInconclusive(t *testing.T) {
	o := strict()
	o.Guarantee = transactional
	if v := perfect().judge(t, o); v.Status != Inconclusive {
		t.Errorf("%s %q", v.Status, v.Reasons)
	}
	o.Require = []string{}
	if v := perfect().judge(t, o); v.Status != Pass {
		t.Errorf("%s %q", v.Status, v.Reasons)
	}
}

func TestAPipelineThatDidNothingIsInconclusive(t *testing.T) {
	w := perfectTxns()
	for _, m := range []uint16{memberA, memberB} {
		w.group[m] = w.group[m][:1]
		w.sends[m], w.acks[m], w.txns[m] = nil, nil, w.txns[m][:1]
	}
	out := func(r history.Record) bool { return r.Partition >= out0 }
	w.reads, w.drain, w.raw, w.ends = slices.DeleteFunc(w.reads, out), slices.DeleteFunc(w.drain, out), slices.DeleteFunc(w.raw, out), slices.DeleteFunc(w.ends, out)
	w.positions = nil
	v := w.judge(t, strictTxns())
	if v.Status != Inconclusive || !slices.ContainsFunc(v.Reasons, func(s string) bool { return strings.HasPrefix(s, "B6 was not checked") }) ||
		!slices.ContainsFunc(v.Reasons, func(s string) bool { return strings.HasPrefix(s, "C7 was not checked") }) {
		t.Errorf("%s %q", v.Status, v.Reasons)
	}
}
