package check

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gopherlog/bench/history"
	"gopherlog/bench/replicas"
	"gopherlog/bench/scenario"
)

// world is a run as it should have been: three partitions, two producers, and what each witness tells. Tests bend it.
type world struct {
	sends, acks, reads, drain, ends []history.Record
	held                            *replicas.Report
}

const (
	worldPartitions = 3
	worldProducers  = 2
	perLane         = 300
)

// perfect is a run without any anomaly: everything sent was acknowledged at the offset at which it is read, twice.
func perfect() *world {
	w := &world{held: agreeing()}
	at := time.Duration(0)
	for seq := range uint64(perLane) {
		for p := range uint32(worldPartitions) {
			for producer := range uint16(worldProducers) {
				at += 100 * time.Microsecond
				offset := int64(seq)*worldProducers + int64(producer)
				r := history.Record{Kind: history.Sent, Producer: producer, Partition: p, Sequence: seq, At: at}
				w.sends = append(w.sends, r)
				r.Kind, r.Result, r.Offset, r.At = history.Outcome, history.OK, offset, at+time.Millisecond
				w.acks = append(w.acks, r)
				r.Kind, r.Result, r.At = history.Delivered, 0, at+2*time.Millisecond
				w.reads = append(w.reads, r)
				r.At = at + time.Minute
				w.drain = append(w.drain, r)
			}
			if seq%50 == 0 {
				w.ends = append(w.ends, history.Record{Kind: history.EndAnswer, Partition: p, Offset: int64(seq) * worldProducers, Epoch: 1, Asked: at, At: at + time.Microsecond})
			}
		}
	}
	for p := range uint32(worldPartitions) {
		w.ends = append(w.ends, history.Record{Kind: history.EndAnswer, Partition: p, Offset: perLane * worldProducers, Epoch: 1, Asked: at + time.Minute, At: at + time.Minute})
	}
	return w
}

// agreeing is what three nodes with the same bytes have on disk.
func agreeing() *replicas.Report {
	r := &replicas.Report{}
	for p := range int32(worldPartitions) {
		x := replicas.Partition{Topic: "in", Partition: p, To: 600, Batches: 100, Whole: 100}
		for node := 1; node <= 3; node++ {
			x.Copies = append(x.Copies, replicas.Copy{Node: node, End: 600})
		}
		r.Partitions = append(r.Partitions, x)
	}
	return r
}

// find is the index of the record of a message; the lane (producer 1, partition 1) is the one that tests bend.
func find(t *testing.T, list []history.Record, seq uint64) int {
	t.Helper()
	i := slices.IndexFunc(list, func(r history.Record) bool { return r.Producer == 1 && r.Partition == 1 && r.Sequence == seq })
	if i < 0 {
		t.Fatalf("no sequence %d", seq)
	}
	return i
}

func remove(t *testing.T, list *[]history.Record, seq uint64) {
	t.Helper()
	i := find(t, *list, seq)
	*list = slices.Delete(*list, i, i+1)
}

func (w *world) write(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "history")
	parts := make([]history.Partition, worldPartitions)
	for i := range parts {
		parts[i] = history.Partition{Topic: "in", Partition: int32(i)}
	}
	hw, err := history.Create(dir, 1, parts)
	if err != nil {
		t.Fatal(err)
	}
	for role, list := range map[string][]history.Record{history.RoleSends: w.sends, history.RoleAcks: w.acks, history.RoleReads: w.reads, history.RoleDrain: w.drain, history.RoleEnds: w.ends} {
		s, err := hw.Stream(role, role)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			s.Append(r)
		}
	}
	if err := hw.Close(); err != nil {
		t.Fatal(err)
	}
	if d := hw.Stats().Dropped; d > 0 {
		t.Fatalf("%d records dropped", d)
	}
	return dir
}

func (w *world) judge(t testing.TB, o Options) Verdict {
	t.Helper()
	if o.Replicas == nil {
		o.Replicas = w.held
	}
	v, err := Judge(w.write(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func rule(t testing.TB, v Verdict, id string) RuleResult {
	t.Helper()
	for _, r := range v.Rules {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("no rule %s in %+v", id, v)
	return RuleResult{}
}

func strict() Options {
	return Options{Guarantee: scenario.Idempotent, MinAcked: 1000, Drained: true}
}

// planted bends a perfect run in one way; the rules named must count exactly that much, all others nothing.
type planted struct {
	name   string
	bend   func(t *testing.T, w *world)
	counts map[string]int64
	shape  string
}

var faults = []planted{
	{"another message at an acknowledged offset", func(t *testing.T, w *world) {
		i := find(t, w.acks, 100)
		w.acks[i].Offset += 2
	}, map[string]int64{"A1": 1}, "changed"},
	{"a message read at an offset that later held another", func(t *testing.T, w *world) {
		i, j := find(t, w.reads, 100), find(t, w.reads, 101)
		w.reads[i].Sequence, w.reads[j].Sequence = 101, 100
	}, map[string]int64{"A1": 2}, "changed"},
	{"a message that was visible and vanished", func(t *testing.T, w *world) {
		w.sends = append(w.sends, history.Record{Kind: history.Sent, Producer: 1, Partition: 1, Sequence: perLane, At: time.Second})
		w.reads = append(w.reads, history.Record{Kind: history.Delivered, Producer: 1, Partition: 1, Sequence: perLane, Offset: perLane * worldProducers, At: time.Second})
	}, map[string]int64{"A1": 1}, "vanished"},
	{"a batch appended twice", func(t *testing.T, w *world) {
		for i := range uint64(5) {
			w.drain = append(w.drain, history.Record{Kind: history.Delivered, Producer: 1, Partition: 1, Sequence: 200 + i, Offset: perLane*worldProducers + int64(i), At: time.Minute})
		}
	}, map[string]int64{"A2": 5}, ""},
	{"a message that was never sent", func(t *testing.T, w *world) {
		w.drain = append(w.drain, history.Record{Kind: history.Delivered, Producer: 1, Partition: 1, Sequence: perLane, Offset: perLane * worldProducers, At: time.Minute})
	}, map[string]int64{"A3": 1}, "never sent"},
	{"a message of an unknown producer", func(t *testing.T, w *world) {
		w.drain = append(w.drain, history.Record{Kind: history.Delivered, Producer: 77, Partition: 1, Offset: perLane * worldProducers, At: time.Minute})
	}, map[string]int64{"A3": 1}, "never sent"},
	{"a flipped bit in a value", func(t *testing.T, w *world) {
		w.drain = append(w.drain, history.Record{Kind: history.Delivered, Flags: history.BadChecksum, Partition: 1, Offset: perLane * worldProducers, At: time.Minute})
	}, map[string]int64{"A3": 1}, "corrupt"},
	{"a message in the wrong partition", func(t *testing.T, w *world) {
		w.drain = append(w.drain, history.Record{Kind: history.Delivered, Flags: history.WrongPartition, Producer: 1, Partition: 1, Sequence: 7, Offset: perLane * worldProducers, At: time.Minute})
	}, map[string]int64{"A3": 1}, "wrong partition"},
	{"a stranger's message", func(t *testing.T, w *world) {
		w.drain = append(w.drain, history.Record{Kind: history.Delivered, Flags: history.Foreign, Partition: 1, Offset: perLane * worldProducers, At: time.Minute})
	}, map[string]int64{"A3": 1}, "foreign"},
	{"a message that had failed for certain", func(t *testing.T, w *world) {
		i := find(t, w.acks, 100)
		w.acks[i].Result, w.acks[i].Offset, w.acks[i].Class = history.Failed, -1, 1
	}, map[string]int64{"A3": 2}, "resurrected"}, // in the run and in the final read
	{"a lost message in the middle", func(t *testing.T, w *world) {
		remove(t, &w.drain, 100)
		remove(t, &w.reads, 100)
	}, map[string]int64{"A4": 1, "A7": 1}, "middle"},
	{"an acknowledgement that survived its message", func(t *testing.T, w *world) {
		remove(t, &w.drain, 100)
	}, map[string]int64{"A1": 1, "A4": 1, "A7": 1}, "middle"}, // it was visible, too
	{"a lost message whose offset is unknown", func(t *testing.T, w *world) {
		remove(t, &w.drain, 100)
		remove(t, &w.reads, 100)
		w.acks[find(t, w.acks, 100)].Offset = -1
	}, map[string]int64{"A4": 1, "A7": 1}, "middle"},
	{"the first messages of a lane lost", func(t *testing.T, w *world) {
		for seq := range uint64(3) {
			remove(t, &w.drain, seq)
			remove(t, &w.reads, seq)
		}
	}, map[string]int64{"A4": 3, "A7": 3}, "prefix"},
	{"a lost tail", func(t *testing.T, w *world) {
		for seq := uint64(perLane - 3); seq < perLane; seq++ {
			remove(t, &w.drain, seq)
			remove(t, &w.reads, seq)
		}
		shrink(w, 1, (perLane-3)*worldProducers)
	}, map[string]int64{"A6": 6, "A7": 6}, "suffix"},
	{"two messages swapped", func(t *testing.T, w *world) {
		for _, list := range [][]history.Record{w.drain, w.reads, w.acks} {
			i, j := find(t, list, 100), find(t, list, 101)
			if list[i].Kind == history.Outcome {
				list[i].Offset, list[j].Offset = list[j].Offset, list[i].Offset
				continue
			}
			list[i].Sequence, list[j].Sequence = 101, 100
		}
	}, map[string]int64{"A9": 1}, ""},
	{"a message that stands before one acknowledged when it was sent", func(t *testing.T, w *world) {
		for _, list := range [][]history.Record{w.drain, w.reads, w.acks} { // another lane's, so that each keeps its own order
			i, j := find(t, list, 100), slices.IndexFunc(list, func(r history.Record) bool { return r.Producer == 0 && r.Partition == 1 && r.Sequence == 100 })
			if list[i].Kind == history.Outcome {
				list[i].Offset, list[j].Offset = list[j].Offset, list[i].Offset
				continue
			}
			list[i].Producer, list[j].Producer = 0, 1
		}
		i, j := find(t, w.sends, 100), slices.IndexFunc(w.acks, func(r history.Record) bool { return r.Producer == 0 && r.Partition == 1 && r.Sequence == 100 })
		w.sends[i].At = w.acks[j].At + 5*time.Millisecond
		w.acks[find(t, w.acks, 100)].At = w.sends[i].At + time.Millisecond
		for k := range w.sends { // what follows in its lane was sent and acknowledged later
			if r := &w.sends[k]; r.Producer == 1 && r.Partition == 1 && r.Sequence > 100 {
				r.At += 10 * time.Millisecond
			}
		}
		for k := range w.acks {
			if r := &w.acks[k]; r.Partition == 1 && (r.Sequence > 100 || r.Sequence == 100 && r.Producer == 1) {
				r.At += 10 * time.Millisecond
			}
		}
	}, map[string]int64{"A10": 1}, ""},
	{"a replica that holds another batch", func(t *testing.T, w *world) {
		p := &w.held.Partitions[1]
		p.Different, p.Differences = 1, []replicas.Difference{{Node: 2, Offset: 17, Kind: replicas.Divergent, What: "epoch 3"}}
	}, map[string]int64{"A8": 1}, replicas.Divergent},
	{"a replica that stopped", func(t *testing.T, w *world) {
		w.held.Partitions[1].Copies[2].End = 400
	}, map[string]int64{"A12": 1}, ""},
	{"an end that went back", func(t *testing.T, w *world) {
		last := w.ends[len(w.ends)-1]
		last.Offset, last.Asked, last.At = 3, last.At+time.Second, last.At+2*time.Second
		again := w.ends[len(w.ends)-1]
		again.Asked, again.At = last.At+time.Second, last.At+2*time.Second
		w.ends = append(w.ends, last, again)
	}, map[string]int64{"A11": 1}, ""},
}

// shrink cuts a partition's log at an offset: nothing at or beyond it is read, and the last answer says so, in a newer epoch.
func shrink(w *world, partition uint32, end int64) {
	cut := func(r history.Record) bool { return r.Partition == partition && r.Offset >= end }
	w.drain = slices.DeleteFunc(w.drain, cut)
	w.reads = slices.DeleteFunc(w.reads, cut)
	for i := range w.ends {
		if r := &w.ends[i]; r.Partition == partition && r.Offset >= end {
			r.Offset = end
		}
	}
}
