package check

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gopherlog/bench/history"
)

// txnWorld is a run with transactions as it should have been: two producers fill the topic in, a group of two members makes one message in
// the topic out of each, in transactions, and a reader reads it all. Tests bend it.
type txnWorld struct {
	sends, acks, txns      map[uint16][]history.Record // by producer
	group                  map[uint16][]history.Record // by member
	reads, drain, raw      []history.Record
	ends, positions        []history.Record
	at                     time.Duration
	log                    [txnPartitions][]txnEntry
	lane                   map[laneKey]uint64
	number                 map[actor]uint32
	session                map[uint16]uint16
	read                   [txnPartitions]int // entries that the reader has looked at
	noRaw, noGroup, silent bool
}

const (
	in0, in1, out0, out1 = 0, 1, 2, 3
	txnPartitions        = 4
	memberA, memberB     = 2, 3
)

var txnTopics = []history.Partition{{Topic: "in"}, {Topic: "in", Partition: 1}, {Topic: "out"}, {Topic: "out", Partition: 1}}

// txnEntry is one offset of a partition: a message, or a marker.
type txnEntry struct {
	rec   history.Record // Kind 0: a marker
	state *history.Step
}

type openTxn struct {
	actor
	number uint32
	state  history.Step
	places map[uint32]bool
}

func (w *txnWorld) tick() time.Duration { w.at += time.Millisecond; return w.at }

func (w *txnWorld) begin(producer uint16) *openTxn {
	a := actor{producer, w.session[producer]}
	w.number[a]++
	t := &openTxn{actor: a, number: w.number[a], state: history.Begun, places: map[uint32]bool{}}
	w.step(t, history.Begun)
	return t
}

func (w *txnWorld) step(t *openTxn, s history.Step) {
	w.txns[t.producer] = append(w.txns[t.producer], history.Record{Kind: history.Transaction, Step: s, Producer: t.producer, Session: t.session, Txn: t.number, At: w.tick()})
}

func (w *txnWorld) send(t *openTxn, partition uint32, origin *history.Record) {
	k := laneKey{t.producer, t.session, partition}
	r := history.Record{Kind: history.Sent, Producer: t.producer, Session: t.session, Partition: partition, Sequence: w.lane[k], Txn: t.number, At: w.tick()}
	w.lane[k]++
	w.sends[t.producer] = append(w.sends[t.producer], r)
	if origin != nil {
		w.sends[t.producer] = append(w.sends[t.producer], history.Record{Kind: history.Origin, Partition: origin.Partition, Offset: origin.Offset})
	}
	r.Kind, r.Result, r.Offset, r.At = history.Outcome, history.OK, int64(len(w.log[partition])), w.tick()
	w.acks[t.producer] = append(w.acks[t.producer], r)
	r.Kind, r.Result = history.Delivered, 0
	w.log[partition] = append(w.log[partition], txnEntry{rec: r, state: &t.state})
	t.places[partition] = true
}

// end writes the markers; said is what the client learned.
func (w *txnWorld) end(t *openTxn, ask, truth, said history.Step) {
	w.step(t, ask)
	t.state = truth
	for p := range uint32(txnPartitions) {
		if t.places[p] {
			w.log[p] = append(w.log[p], txnEntry{})
		}
	}
	w.step(t, said)
}

func (w *txnWorld) produce(producer uint16, ask, truth, said history.Step) {
	t := w.begin(producer)
	for i := range 6 {
		w.send(t, uint32(i%2), nil)
	}
	w.end(t, ask, truth, said)
}

// readOn lets the reader read what became readable, one poll a partition.
func (w *txnWorld) readOn() {
	for p := range txnPartitions {
		asked := w.tick()
		for ; w.read[p] < len(w.log[p]); w.read[p]++ {
			if e := w.log[p][w.read[p]]; e.rec.Kind != 0 && *e.state == history.Committed {
				e.rec.At = w.at + time.Microsecond
				w.reads = append(w.reads, e.rec)
			}
		}
		w.reads = append(w.reads, history.Record{Kind: history.Group, Step: history.PollEnd, Asked: asked, At: w.tick()})
	}
}

func (w *txnWorld) member(m uint16, step history.Step, r history.Record) {
	r.Kind, r.Step, r.Producer, r.Session, r.At = history.Group, step, m, w.session[m], w.tick()
	w.group[m] = append(w.group[m], r)
}

// work lets a member poll its partition from a position, make outputs, and end its transaction; it returns the position after it.
func (w *txnWorld) work(m uint16, p uint32, from int64, generation int32, ask history.Step) int64 {
	var got []history.Record
	asked := w.tick()
	next := from
	for ; next < int64(len(w.log[p])); next++ {
		if e := w.log[p][next]; e.rec.Kind != 0 && *e.state == history.Committed {
			e.rec.At = w.tick()
			got = append(got, e.rec)
		}
	}
	w.group[m] = append(w.group[m], got...)
	w.group[m] = append(w.group[m], history.Record{Kind: history.Group, Step: history.PollEnd, Producer: m, Session: w.session[m], Asked: asked, At: w.tick()})
	if len(got) == 0 {
		return from
	}
	t := w.begin(m)
	for i := range got {
		w.send(t, out0+uint32(i%2), &got[i])
	}
	last := got[len(got)-1].Offset
	w.member(m, history.Processed, history.Record{Partition: p, Offset: last})
	if ask == history.AskAbort {
		w.end(t, ask, history.Aborted, history.Aborted)
		return from
	}
	w.member(m, history.CommitAsked, history.Record{Partition: p, Offset: last + 1, Epoch: generation, Txn: t.number})
	w.end(t, ask, history.Committed, history.Committed)
	return last + 1
}

func (w *txnWorld) init(producer, session uint16) {
	w.session[producer] = session
	w.txns[producer] = append(w.txns[producer], history.Record{Kind: history.Transaction, Step: history.Inited, Producer: producer, Session: session, Epoch: int32(session), At: w.tick()})
}

func (w *txnWorld) assign(m uint16, p uint32, generation int32, position int64) {
	w.member(m, history.Assigned, history.Record{Partition: p, Epoch: generation, Offset: -1})
	w.member(m, history.Position, history.Record{Partition: p, Offset: position})
}

func (w *txnWorld) tellEnds() {
	for p := range uint32(txnPartitions) {
		for _, kind := range []history.Kind{history.EndAnswer, history.StableAnswer} {
			w.ends = append(w.ends, history.Record{Kind: kind, Partition: p, Offset: int64(len(w.log[p])), Epoch: 1, Asked: w.tick(), At: w.tick()})
		}
	}
}

const txnRounds = 24

// perfectTxns is a run without any anomaly. Producer 0 is taken over half way; the members swap their partitions there; some transactions
// abort, and of two the producer does not learn the end.
func perfectTxns() *txnWorld {
	w := &txnWorld{sends: map[uint16][]history.Record{}, acks: map[uint16][]history.Record{}, txns: map[uint16][]history.Record{}, group: map[uint16][]history.Record{},
		lane: map[laneKey]uint64{}, number: map[actor]uint32{}, session: map[uint16]uint16{}}
	for _, a := range []uint16{0, 1, memberA, memberB} {
		w.init(a, 0)
	}
	at := map[uint32]int64{}
	generation := int32(1)
	hold := map[uint32]uint16{in0: memberA, in1: memberB}
	w.assign(memberA, in0, 1, -1)
	w.assign(memberB, in1, 1, -1)
	for round := range txnRounds {
		ask, truth, said := history.AskCommit, history.Committed, history.Committed
		switch round {
		case 3, 9, 15:
			ask, truth, said = history.AskAbort, history.Aborted, history.Aborted
		case 5:
			said = history.InDoubt
		case 7:
			truth, said = history.Aborted, history.InDoubt
		}
		for producer := range uint16(2) {
			w.produce(producer, ask, truth, said)
		}
		w.readOn()
		workers := history.AskCommit
		if round == 4 || round == 13 {
			workers = history.AskAbort
		}
		for p := range uint32(2) {
			at[p] = w.work(hold[p], p, at[p], generation, workers)
		}
		w.readOn()
		w.tellEnds()
		if round == txnRounds/2 {
			w.init(0, 1)
			for p := range uint32(2) {
				w.member(hold[p], history.Revoked, history.Record{Partition: p, Epoch: 1})
			}
			generation = 2
			hold[in0], hold[in1] = memberB, memberA
			for p := range uint32(2) {
				w.assign(hold[p], p, 2, at[p])
			}
		}
	}
	for p := range uint32(2) {
		w.positions = append(w.positions, history.Record{Kind: history.Group, Step: history.Position, Partition: p, Offset: at[p], At: w.tick()})
	}
	w.readAll()
	return w
}

// readAll is both final reads.
func (w *txnWorld) readAll() {
	for p := range txnPartitions {
		for _, e := range w.log[p] {
			if e.rec.Kind == 0 {
				continue
			}
			e.rec.At = w.tick()
			w.raw = append(w.raw, e.rec)
			if *e.state == history.Committed {
				w.drain = append(w.drain, e.rec)
			}
		}
	}
}

func (w *txnWorld) write(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "history")
	hw, err := history.Create(dir, 1, txnTopics)
	if err != nil {
		t.Fatal(err)
	}
	put := func(role, name string, list []history.Record, stream func(role, name string) (*history.Stream, error)) {
		s, err := stream(role, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			s.Append(r)
		}
	}
	group := func(role, name string) (*history.Stream, error) { return hw.GroupStream(role, name, "g") }
	for _, p := range []uint16{0, 1, memberA, memberB} {
		n := string(rune('0' + p))
		put(history.RoleSends, "sends-"+n, w.sends[p], hw.Stream)
		put(history.RoleAcks, "acks-"+n, w.acks[p], hw.Stream)
		put(history.RoleTxns, "txns-"+n, w.txns[p], hw.Stream)
		if len(w.group[p]) > 0 && !w.noGroup {
			put(history.RoleGroup, "group-"+n, w.group[p], group)
		}
	}
	if !w.noGroup && !w.silent {
		put(history.RolePositions, "positions", w.positions, group)
	}
	put(history.RoleReads, "reads", w.reads, hw.Stream)
	put(history.RoleDrain, "drain", w.drain, hw.Stream)
	if !w.noRaw {
		put(history.RoleUncommitted, "uncommitted", w.raw, hw.Stream)
	}
	put(history.RoleEnds, "ends", w.ends, hw.Stream)
	if err := hw.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (w *txnWorld) judge(t testing.TB, o Options) Verdict {
	t.Helper()
	v, err := Judge(w.write(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func strictTxns() Options {
	return Options{Guarantee: transactional, MinAcked: 100, Drained: true, RawDrained: true, TxnTimeout: 10 * time.Second, Grace: 5 * time.Second,
		Transforms: []Transform{{"g", "in", "out"}}, Replicas: agreeing()}
}

// spot finds the n-th record of a list that fits.
func spot(t *testing.T, list []history.Record, n int, fits func(r history.Record) bool) int {
	t.Helper()
	for i, r := range list {
		if fits(r) {
			if n == 0 {
				return i
			}
			n--
		}
	}
	t.Fatalf("no such record among %d", len(list))
	return -1
}

func drop(list *[]history.Record, i int) { *list = slices.Delete(*list, i, i+1) }
