package check

import (
	"slices"
	"testing"
	"time"

	"gopherlog/bench/history"
)

// txnFault bends a perfect run with transactions in one way; the rules named must count exactly that much, all others nothing.
type txnFault struct {
	name   string
	bend   func(t *testing.T, w *txnWorld)
	counts map[string]int64
	shape  string
}

func poll(r history.Record) bool { return r.Kind == history.Group && r.Step == history.PollEnd }

// inPoll finds the first delivery of partition p behind which, in the same poll, two more of it follow; n polls are passed over.
func inPoll(t *testing.T, list []history.Record, p uint32, n int) int {
	t.Helper()
	for i := 0; i+2 < len(list); i++ {
		at := func(k int) bool { return list[i+k].Kind == history.Delivered && list[i+k].Partition == p }
		if at(0) && at(1) && at(2) && (i == 0 || list[i-1].Kind != history.Delivered) {
			if n == 0 {
				return i
			}
			n--
		}
	}
	t.Fatal("no such poll")
	return -1
}

func ofTxn(producer, session uint16, txn uint32) func(history.Record) bool {
	return func(r history.Record) bool {
		return r.Kind == history.Delivered && r.Producer == producer && r.Session == session && r.Txn == txn
	}
}

func stepOf(step history.Step, txn uint32) func(history.Record) bool {
	return func(r history.Record) bool { return r.Step == step && r.Txn == txn }
}

func of(step history.Step) func(history.Record) bool {
	return func(r history.Record) bool { return r.Kind == history.Group && r.Step == step }
}

// lastTxn is the number of the last transaction that an actor committed.
func lastTxn(t *testing.T, w *txnWorld, a uint16) uint32 {
	list := w.txns[a]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Step == history.Committed {
			return list[i].Txn
		}
	}
	t.Fatal("no transaction")
	return 0
}

// surplus appends a message at the end of a partition's log, in every final read.
func surplus(w *txnWorld, r history.Record, committed bool) {
	r.Kind, r.Result, r.At = history.Delivered, 0, w.tick()
	r.Offset = int64(len(w.log[r.Partition]))
	w.log[r.Partition] = append(w.log[r.Partition], txnEntry{})
	w.raw = append(w.raw, r)
	if committed {
		w.drain = append(w.drain, r)
	}
	slices.SortStableFunc(w.raw, func(a, b history.Record) int { return int(a.Partition) - int(b.Partition) })
	slices.SortStableFunc(w.drain, func(a, b history.Record) int { return int(a.Partition) - int(b.Partition) })
	w.tellEnds()
}

var txnFaults = []txnFault{
	{"a reader that skips a message within a poll", func(t *testing.T, w *txnWorld) {
		drop(&w.reads, inPoll(t, w.reads, in0, 2)+1)
	}, map[string]int64{"B1": 1}, ""},
	{"a reader that gets a message twice within a poll", func(t *testing.T, w *txnWorld) {
		i := inPoll(t, w.reads, in0, 2)
		w.reads = slices.Insert(w.reads, i, w.reads[i])
	}, map[string]int64{"B2": 1}, ""},
	{"a reader that skips a message between polls", func(t *testing.T, w *txnWorld) {
		drop(&w.reads, inPoll(t, w.reads, in0, 2))
	}, map[string]int64{"B3": 1}, ""},
	{"a reader that is thrown back between polls", func(t *testing.T, w *txnWorld) {
		i, j := inPoll(t, w.reads, in0, 1), inPoll(t, w.reads, in0, 2)
		w.reads = slices.Insert(w.reads, j, w.reads[i+1], w.reads[i+2])
	}, map[string]int64{"B1": 1, "B4": 1}, ""}, // it then goes on where it had been
	{"a message delivered again after its commit", func(t *testing.T, w *txnWorld) {
		list := w.group[memberB]
		i := spot(t, list, 1, of(history.Position)) // generation 2
		before := spot(t, w.drain, 0, func(r history.Record) bool { return r.Partition == in0 && r.Offset >= list[i].Offset-3 })
		r := w.drain[before]
		r.At = list[i].At
		w.group[memberB] = slices.Insert(list, i+1, r, history.Record{Kind: history.Group, Step: history.PollEnd, Producer: memberB, Asked: r.At, At: r.At},
			history.Record{Kind: history.Group, Step: history.Position, Producer: memberB, Partition: in0, Offset: list[i].Offset, At: r.At})
	}, map[string]int64{"B5": 1}, "after a commit"},
	{"a message that no member was given", func(t *testing.T, w *txnWorld) {
		list := w.group[memberA]
		drop(&list, spot(t, list, 0, func(r history.Record) bool { return r.Kind == history.Delivered }))
		w.group[memberA] = list
	}, map[string]int64{"B6": 1}, ""},
	{"a commit of what was not processed", func(t *testing.T, w *txnWorld) {
		list := w.group[memberA]
		list[spot(t, list, 6, of(history.Processed))].Offset -= 2
	}, map[string]int64{"B7": 1}, ""},
	{"a commit of what was processed before the partition was lost, polls later", func(_ *testing.T, w *txnWorld) { regained(w, 1) }, map[string]int64{"B7": 1}, ""},
	{"a position before the committed one", func(t *testing.T, w *txnWorld) {
		list := w.group[memberB]
		list[spot(t, list, 1, of(history.Position))].Offset -= 4
	}, map[string]int64{"B8": 1}, ""},
	{"a group that forgot where it stood", func(t *testing.T, w *txnWorld) {
		list := w.group[memberB]
		list[spot(t, list, 1, of(history.Position))].Offset = -1
	}, map[string]int64{"B8": 1}, ""},
	{"a commit of the generation before", func(t *testing.T, w *txnWorld) {
		at := w.group[memberA][len(w.group[memberA])-1].At
		next := w.group[memberA][spot(t, w.group[memberA], 0, of(history.CommitAsked))].Offset
		w.group[memberA] = append(w.group[memberA],
			history.Record{Kind: history.Group, Step: history.CommitAsked, Producer: memberA, Partition: in0, Offset: next, Epoch: 1, At: at + time.Millisecond},
			history.Record{Kind: history.Group, Step: history.CommitAnswered, Result: history.OK, Producer: memberA, Partition: in0, Offset: next, Epoch: 1, Asked: at + time.Millisecond, At: at + 2*time.Millisecond})
	}, map[string]int64{"B9": 1}, ""},
	{"two members of one generation with one partition", func(t *testing.T, w *txnWorld) {
		at := w.group[memberA][len(w.group[memberA])-1].At
		w.group[memberA] = append(w.group[memberA], history.Record{Kind: history.Group, Step: history.Assigned, Producer: memberA, Partition: in0, Epoch: 2, Offset: -1, At: at + time.Millisecond})
	}, map[string]int64{"B10": 1}, ""},
	{"a member that goes on behind an aborted transaction", func(t *testing.T, w *txnWorld) {
		list := w.group[memberA]
		abort := w.txns[memberA][spot(t, w.txns[memberA], 0, func(r history.Record) bool { return r.Step == history.Aborted })]
		drop(&list, spot(t, list, 0, func(r history.Record) bool { return r.Kind == history.Delivered && r.At > abort.At }))
		w.group[memberA] = list
	}, map[string]int64{"B11": 1}, "advance"},
	{"a group that stopped before the end", func(t *testing.T, w *txnWorld) {
		w.drain, w.raw = nil, nil
		w.produce(1, history.AskCommit, history.Committed, history.Committed)
		w.readOn()
		w.tellEnds()
		w.at += time.Minute
		w.member(memberA, history.PollEnd, history.Record{})
		w.readAll()
	}, map[string]int64{"B12": 2}, ""},

	{"an aborted message that is readable", func(t *testing.T, w *txnWorld) {
		abort := w.txns[memberA][spot(t, w.txns[memberA], 0, func(r history.Record) bool { return r.Step == history.Aborted })].Txn
		r := w.raw[spot(t, w.raw, 0, ofTxn(memberA, 0, abort))]
		at := spot(t, w.drain, 0, func(x history.Record) bool { return x.Partition == r.Partition && x.Offset > r.Offset })
		w.drain = slices.Insert(w.drain, at, r)
		i := spot(t, w.reads, 0, func(x history.Record) bool {
			return x.Kind == history.Delivered && x.Partition == r.Partition && x.Offset > r.Offset
		})
		r.At = w.reads[i].At
		w.reads = slices.Insert(w.reads, i, r)
	}, map[string]int64{"C1": 2, "C3": 1, "C7": 1, "C12": 1}, "in the final read"},
	{"messages read before their commit was asked", func(t *testing.T, w *txnWorld) {
		n := lastTxn(t, w, memberA)
		r := w.reads[spot(t, w.reads, 0, ofTxn(memberA, 0, n))]
		i := spot(t, w.txns[memberA], 0, stepOf(history.AskCommit, n))
		w.txns[memberA][i].At = r.At + time.Millisecond
	}, map[string]int64{"C2": 3}, "before"},
	{"a message of a transaction whose end was never asked", func(t *testing.T, w *txnWorld) {
		n := lastTxn(t, w, memberA)
		w.txns[memberA] = slices.DeleteFunc(w.txns[memberA], func(r history.Record) bool {
			return r.Txn == n && (r.Step == history.AskCommit || r.Step == history.Committed)
		})
		w.group[memberA] = slices.DeleteFunc(w.group[memberA], func(r history.Record) bool { return r.Step == history.CommitAsked && r.Txn == n })
	}, map[string]int64{"C1": 6, "C2": 6, "C12": 1}, "never asked"},
	{"a committed transaction that is torn", func(t *testing.T, w *txnWorld) {
		drop(&w.drain, spot(t, w.drain, 0, ofTxn(1, 0, 3)))
	}, map[string]int64{"C3": 1, "C12": 1}, "committed and torn"},
	{"a committed transaction that is gone", func(t *testing.T, w *txnWorld) {
		w.drain = slices.DeleteFunc(w.drain, ofTxn(1, 0, 3))
	}, map[string]int64{"C3": 1, "C12": 1}, "committed and gone"},
	{"a transaction in doubt that is torn", func(t *testing.T, w *txnWorld) {
		drop(&w.drain, spot(t, w.drain, 0, ofTxn(1, 0, 6)))
	}, map[string]int64{"C3": 1, "C12": 1}, "in doubt and torn"},
	{"a torn transaction behind one in doubt", func(t *testing.T, w *txnWorld) {
		drop(&w.drain, spot(t, w.drain, 0, ofTxn(1, 0, 7)))
	}, map[string]int64{"C3": 1, "C10": 1, "C12": 1}, ""},
	{"two transactions that read each from the other", func(t *testing.T, w *txnWorld) {
		first, second := lastTxn(t, w, memberA), lastTxn(t, w, memberB)
		place := func(m uint16, n uint32) history.Record { return w.drain[spot(t, w.drain, 0, ofTxn(m, 0, n))] }
		point := func(m uint16, n uint32, to history.Record) {
			i := spot(t, w.sends[m], 0, func(r history.Record) bool { return r.Kind == history.Sent && r.Txn == n })
			w.sends[m][i+1].Partition, w.sends[m][i+1].Offset = to.Partition, to.Offset
		}
		a, b := place(memberA, first), place(memberB, second)
		point(memberA, first, b)
		point(memberB, second, a)
	}, map[string]int64{"C5": 1, "C7": 2}, ""},
	{"an input made twice, and another not at all", func(t *testing.T, w *txnWorld) {
		n := lastTxn(t, w, memberA)
		i := spot(t, w.sends[memberA], 0, func(r history.Record) bool { return r.Kind == history.Sent && r.Txn == n })
		w.sends[memberA][i+1].Offset = w.sends[memberA][i+3].Offset
	}, map[string]int64{"C7": 2}, "doubled"},
	{"offsets that went ahead without their outputs", func(t *testing.T, w *txnWorld) {
		n := lastTxn(t, w, memberA)
		w.txns[memberA][spot(t, w.txns[memberA], 0, stepOf(history.Committed, n))].Step = history.Aborted
		w.drain = slices.DeleteFunc(w.drain, ofTxn(memberA, 0, n))
		w.reads = slices.DeleteFunc(w.reads, ofTxn(memberA, 0, n))
	}, map[string]int64{"C7": 6, "C8": 1}, "lost"},
	{"outputs that went ahead without their offsets", func(t *testing.T, w *txnWorld) {
		w.positions[in1].Offset = w.group[memberA][spot(t, w.group[memberA], 0, of(history.Position))+0].Offset
		list := w.group[memberA]
		last := spot(t, list, 0, func(r history.Record) bool { return r.Step == history.CommitAsked && r.Txn == lastTxn(t, w, memberA) })
		before := spot(t, list, 0, func(r history.Record) bool {
			return r.Step == history.CommitAsked && r.Txn == lastTxn(t, w, memberA)-1
		})
		list[last].Offset = list[before].Offset
		w.positions[in1].Offset = list[before].Offset
	}, map[string]int64{"C8": 1}, ""},
	{"a fenced session that commits", func(t *testing.T, w *txnWorld) {
		i := spot(t, w.txns[0], 0, func(r history.Record) bool { return r.Step == history.Inited && r.Session == 1 })
		ask := spot(t, w.txns[0][:i], 12, func(r history.Record) bool { return r.Step == history.AskCommit || r.Step == history.AskAbort })
		w.txns[0][i].At = w.txns[0][ask].At - time.Microsecond
	}, map[string]int64{"C9": 1}, "committed"},
	{"a transaction that hangs", func(t *testing.T, w *txnWorld) {
		end := int64(len(w.log[out1]))
		w.ends = slices.DeleteFunc(w.ends, func(r history.Record) bool { return r.Kind == history.StableAnswer && r.Partition == out1 })
		for range 30 {
			w.at += time.Second
			w.ends = append(w.ends, history.Record{Kind: history.StableAnswer, Partition: out1, Offset: end - 5, Epoch: 1, Asked: w.at, At: w.at})
		}
	}, map[string]int64{"C11": 1}, ""},
	{"a last stable offset that went back", func(t *testing.T, w *txnWorld) {
		r := w.ends[len(w.ends)-1]
		early := r
		early.Offset, early.Asked, early.At = r.Offset-3, w.tick(), w.tick()
		r.Asked, r.At = w.tick(), w.tick()
		w.ends = append(w.ends, early, r)
	}, map[string]int64{"A11": 1}, ""},
	{"a committed batch appended twice", func(t *testing.T, w *txnWorld) {
		surplus(w, w.raw[spot(t, w.raw, 0, ofTxn(memberB, 0, 3))], true)
	}, map[string]int64{"A2": 1, "C12": 1}, ""},
	{"an aborted batch appended twice", func(t *testing.T, w *txnWorld) {
		surplus(w, w.raw[spot(t, w.raw, 0, ofTxn(1, 0, 4))], false)
	}, map[string]int64{"A2": 1}, ""},
	{"an acknowledged message that the log lost, of an aborted transaction", func(t *testing.T, w *txnWorld) {
		drop(&w.raw, spot(t, w.raw, 0, ofTxn(1, 0, 4)))
	}, map[string]int64{"A4": 1, "A7": 1}, ""},
}
