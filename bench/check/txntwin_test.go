package check

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gopherlog/bench/history"
)

// The slow twin of the rules on transactions and pipelines: random damage to the committed final read, judged with maps.
func TestAgreesWithASlowTwinOnRandomTransactions(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for range rounds {
		seed := rand.Uint64()
		w := perfectTxns()
		damage(w, rand.New(rand.NewPCG(seed, 1)))
		v := w.judge(t, strictTxns())
		for id, want := range txnTwin(w) {
			if got := rule(t, v, id).Count; got != want {
				t.Errorf("seed %d: %s counts %d, the twin %d", seed, id, got, want)
			}
		}
	}
}

// damage drops messages from the committed final read and lets others into it, single ones and whole transactions.
func damage(w *txnWorld, rnd *rand.Rand) {
	inDrain := map[[2]int64]bool{}
	for _, r := range w.drain {
		inDrain[[2]int64{int64(r.Partition), r.Offset}] = true
	}
	type name struct {
		producer, session uint16
		txn               uint32
	}
	whole := map[name]bool{}
	for range 1 + rnd.IntN(4) {
		r := w.raw[rnd.IntN(len(w.raw))]
		whole[name{r.Producer, r.Session, r.Txn}] = true
	}
	share := rnd.IntN(30)
	var drain []history.Record
	for _, r := range w.raw {
		show := inDrain[[2]int64{int64(r.Partition), r.Offset}]
		if whole[name{r.Producer, r.Session, r.Txn}] || rnd.IntN(1000) < share {
			show = !show
		}
		if show {
			drain = append(drain, r)
		}
	}
	w.drain = drain
}

func txnTwin(w *txnWorld) map[string]int64 {
	type name struct {
		producer, session uint16
		txn               uint32
	}
	type message struct {
		name      name
		partition uint32
		sequence  uint64
	}
	of := func(r history.Record) message {
		return message{name{r.Producer, r.Session, r.Txn}, r.Partition, r.Sequence}
	}
	sent, shown := map[name]int64{}, map[name]int64{}
	state, asked := map[name]history.Step{}, map[name]bool{}
	readable, inputs := map[message]bool{}, map[[2]int64]int{}
	for _, list := range w.txns {
		for _, r := range list {
			n := name{r.Producer, r.Session, r.Txn}
			asked[n] = asked[n] || r.Step == history.AskCommit
			if r.Step >= history.Committed {
				state[n] = r.Step
			}
		}
	}
	for _, r := range w.drain {
		readable[of(r)] = true
		shown[of(r).name]++
		if r.Partition <= in1 && r.Offset < w.positions[r.Partition].Offset {
			inputs[[2]int64{int64(r.Partition), r.Offset}] = 0
		}
	}
	want := map[string]int64{"C1": 0, "C3": 0, "C7": 0, "C12": 0}
	for _, list := range w.sends {
		for i, r := range list {
			if r.Kind != history.Sent {
				continue
			}
			sent[of(r).name]++
			if i+1 < len(list) && list[i+1].Kind == history.Origin && readable[of(r)] {
				place := [2]int64{int64(list[i+1].Partition), list[i+1].Offset}
				if _, ok := inputs[place]; ok {
					inputs[place]++
				}
			}
		}
	}
	for _, outputs := range inputs {
		if outputs != 1 {
			want["C7"]++
		}
	}
	broken := map[uint16]bool{}
	for n, all := range sent {
		if state[n] == history.Aborted || !asked[n] {
			want["C1"] += shown[n]
		}
		if shown[n] != 0 && shown[n] != all || shown[n] == 0 && state[n] == history.Committed {
			want["C3"]++
			broken[n.producer] = true
		}
		if state[n] == history.Aborted && shown[n] > 0 {
			broken[n.producer] = true
		}
	}
	want["C12"] = int64(len(broken))
	for _, r := range w.reads {
		if n := of(r).name; r.Kind == history.Delivered && state[n] == history.Aborted {
			want["C1"]++
		}
	}
	return want
}

func TestTheTwinFindsNothingInAPerfectRun(t *testing.T) {
	w := perfectTxns()
	for id, n := range txnTwin(w) {
		if n != 0 {
			t.Errorf("%s: %d", id, n)
		}
	}
	if !slices.ContainsFunc(w.raw, func(r history.Record) bool { return r.Txn > 0 }) {
		t.Error("no transactions")
	}
}

func TestEveryMessageWeighsSomething(t *testing.T) {
	for lane := range uint32(200) {
		for sequence := range uint64(200) {
			if mark(0, lane, sequence) == 0 {
				t.Errorf("message %d of lane %d may come and go unseen", sequence, lane)
			}
		}
	}
}
