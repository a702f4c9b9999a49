package coordinator

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"

	"gopherlog/cluster/meta"
	"gopherlog/engine/record"
	"gopherlog/txn/group"
)

// table is what the committed records of a shard say: the newest record of every group, its offsets, and the offsets that open transactions
// would commit. It changes only by committed batches in the order of the log, so it is equal on every replica, and a new leader has nothing
// to load once everything committed is applied.
type table struct {
	mu      sync.Mutex
	groups  map[string]*rows
	pending *group.Pending
	bytes   int64 // of all keys and values, about
	offsets int64 // how many are committed
	skipped int64 // records that nobody here can read
}

// rows are what is known of one group.
type rows struct {
	record  *group.Record // nil: only offsets
	size    int64         // of the record
	at      int64         // where the record is in the log
	offsets map[string]map[int32]row
}

// row is a committed offset and where its record is in the log.
type row struct {
	group.Offset
	at int64
}

func (o row) size(groupID, topic string) int64 {
	return int64(len(groupID)+len(topic)+len(o.Metadata)) + rowOverhead
}

// rowOverhead is what a record takes in the log besides its strings, its batch header included.
const rowOverhead = 120

func newTable() *table { return &table{groups: map[string]*rows{}, pending: group.NewPending()} }

// Apply takes a committed batch.
func (t *table) Apply(b record.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b.IsControl() {
		t.end(b)
		return
	}
	base := b.BaseOffset()
	for rec, err := range record.Records(b) {
		if err != nil {
			t.skipped++ // all replicas skip it: the bytes are equal
			return
		}
		t.apply(b, rec, base+int64(rec.OffsetDelta))
	}
}

// end is the marker of a transaction.
func (t *table) end(b record.Batch) {
	kind, _, err := record.ParseControl(b)
	if err != nil {
		t.skipped++
		return
	}
	for _, s := range t.pending.End(b.ProducerID(), kind == record.Commit) {
		if old, there := t.row(s.Key); !there || s.At > old.at {
			t.put(s.Key, row{s.Offset, s.At})
		}
	}
}

// apply takes one record. A tombstone ends an offset also where an open transaction holds one, which does not come back with the commit: so
// it is in Kafka. What a newer version wrote is skipped, as Kafka's tools and older brokers do.
func (t *table) apply(b record.Batch, rec record.Record, at int64) {
	key, err := group.DecodeKey(rec.Key)
	switch {
	case err != nil:
		t.skipped++
	case key.Topic == "":
		t.applyGroup(key.Group, rec.Value, at)
	case rec.Value == nil:
		t.pending.Remove(key)
		t.remove(key)
	default:
		offset, err := group.DecodeOffset(rec.Value)
		switch {
		case err != nil:
			t.skipped++
		case b.IsTransactional():
			t.pending.Hold(b.ProducerID(), key, offset, at)
		default:
			t.put(key, row{offset, at})
		}
	}
}

// applyGroup takes a group's record. A tombstone ends the group with everything that was committed for it, also by who had not heard of the
// end yet.
func (t *table) applyGroup(id string, value []byte, at int64) {
	if value == nil {
		t.pending.Forget(id)
		t.drop(id)
		return
	}
	r, err := group.DecodeRecord(append([]byte(nil), value...)) // it refers to its bytes
	if err != nil {
		t.skipped++
		return
	}
	g := t.group(id)
	t.bytes += int64(len(value)) - g.size
	g.record, g.size, g.at = r, int64(len(value)), at
}

func (t *table) group(id string) *rows {
	g := t.groups[id]
	if g == nil {
		g = &rows{offsets: map[string]map[int32]row{}}
		t.groups[id] = g
		t.bytes += int64(len(id))
	}
	return g
}

func (t *table) row(k group.Key) (row, bool) {
	g := t.groups[k.Group]
	if g == nil {
		return row{}, false
	}
	o, ok := g.offsets[k.Topic][k.Partition]
	return o, ok
}

func (t *table) put(k group.Key, o row) {
	g := t.group(k.Group)
	parts := g.offsets[k.Topic]
	if parts == nil {
		parts = map[int32]row{}
		g.offsets[k.Topic] = parts
	}
	if old, there := parts[k.Partition]; there {
		t.bytes -= old.size(k.Group, k.Topic)
	} else {
		t.offsets++
	}
	t.bytes += o.size(k.Group, k.Topic)
	parts[k.Partition] = o
}

func (t *table) remove(k group.Key) {
	old, there := t.row(k)
	if !there {
		return
	}
	t.bytes -= old.size(k.Group, k.Topic)
	t.offsets--
	g := t.groups[k.Group]
	delete(g.offsets[k.Topic], k.Partition)
	if len(g.offsets[k.Topic]) == 0 {
		delete(g.offsets, k.Topic)
	}
	if len(g.offsets) == 0 && g.record == nil {
		t.drop(k.Group)
	}
}

func (t *table) drop(id string) {
	g := t.groups[id]
	if g == nil {
		return
	}
	t.bytes -= g.size + int64(len(id))
	for topic, parts := range g.offsets {
		t.offsets -= int64(len(parts))
		for _, o := range parts {
			t.bytes -= o.size(id, topic)
		}
	}
	delete(t.groups, id)
}

// record is the newest record of a group; nil if there is none. known says that anything is kept of it, be it an offset that a transaction
// has yet to commit.
func (t *table) record(id string) (r *group.Record, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[id]
	if g == nil {
		return nil, t.pending.Holds(id)
	}
	return g.record, true
}

// recorded are the groups that have a record, with it.
func (t *table) recorded() map[string]*group.Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]*group.Record)
	for id, g := range t.groups {
		if g.record != nil {
			all[id] = g.record
		}
	}
	return all
}

// ids are all groups that anything is kept of.
func (t *table) ids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.AppendSeq(make([]string, 0, len(t.groups)), maps.Keys(t.groups))
	for id := range t.pending.Groups() {
		if t.groups[id] == nil {
			all = append(all, id)
		}
	}
	return all
}

// size is about how many bytes the table's records take.
func (t *table) size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes
}

// count is how many offsets are committed.
func (t *table) count() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offsets
}

// Wanted is a partition whose offset is asked for. With a TopicID it is that topic's, else that of whichever topic has the name.
type Wanted struct {
	Topic     string
	TopicID   meta.TopicID
	Partition int32
}

// Committed is an offset of a group. Unstable says that an open transaction may change it.
type Committed struct {
	Topic     string
	Partition int32
	Offset    int64 // -1: none was committed
	Epoch     int32
	Metadata  string
	Unstable  bool
	TopicID   meta.TopicID // zero: unknown
}

func nothing(w Wanted) Committed {
	return Committed{Topic: w.Topic, Partition: w.Partition, Offset: -1, Epoch: -1}
}

// lookup returns what is committed for each of the partitions in want; with a nil want for all that have an offset.
func (t *table) lookup(id string, want []Wanted) []Committed {
	t.mu.Lock()
	defer t.mu.Unlock()
	if want == nil {
		for topic, number := range t.all(id) {
			want = append(want, Wanted{Topic: topic, Partition: number})
		}
	}
	out := make([]Committed, len(want))
	for i, w := range want {
		k, c := group.Key{Group: id, Topic: w.Topic, Partition: w.Partition}, nothing(w)
		if o, there := t.row(k); there {
			c.Offset, c.Epoch, c.Metadata, c.TopicID = o.Offset.Offset, o.LeaderEpoch, o.Metadata, o.TopicID
		}
		c.Unstable = t.pending.Unstable(k)
		out[i] = c
	}
	return out
}

func (t *table) all(id string) iter.Seq2[string, int32] {
	return func(yield func(string, int32) bool) {
		g := t.groups[id]
		if g == nil {
			return
		}
		for topic, parts := range g.offsets {
			for number := range parts {
				if !yield(topic, number) {
					return
				}
			}
		}
	}
}

// which are the offsets of a group that fit; left says whether others remain, or will if an open transaction commits. Offsets that an open
// transaction may change do not fit.
func (t *table) which(id string, fits func(group.Key, group.Offset) bool) (keys []group.Key, left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic, number := range t.all(id) {
		k := group.Key{Group: id, Topic: topic, Partition: number}
		o, _ := t.row(k)
		if fits(k, o.Offset) && !t.pending.Unstable(k) {
			keys = append(keys, k)
		} else {
			left = true
		}
	}
	return keys, left || t.pending.Holds(id)
}

var errTable = errors.New("coordinator: malformed table")
