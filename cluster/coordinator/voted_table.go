package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
	"gopherlog/txn/field"
	"gopherlog/txn/twopc"
)

// votedTable is what the committed records of a shard of VotedTopic come to: a ledger for every transactional id. The key of a record is the
// id, its value as in txn/twopc; no value forgets the id. The table changes only by committed batches in the order of the log.
type votedTable struct {
	facts  *partition.Facts
	topic  string
	number int32

	mu      sync.Mutex
	rows    map[string]votedRow
	bytes   int64 // of all ids and ledgers, about
	skipped int64 // records that nobody here can read
}

type votedRow struct {
	twopc.Ledger
	at int64 // timestamp of the newest record, in milliseconds
}

// votedOverhead is what a ledger takes in the log besides names, batch headers included: an epoch, a decision, its end.
const votedOverhead = 400

func newVotedTable() *votedTable { return &votedTable{rows: map[string]votedRow{}} }

func (r votedRow) size(id string) int64 {
	n := int64(len(id)) + votedOverhead
	for _, m := range r.Last.Members {
		n += int64(len(m))
	}
	return n
}

// Apply takes a committed batch.
func (t *votedTable) Apply(b record.Batch) {
	if b.IsControl() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for rec, err := range record.Records(b) {
		if err != nil {
			t.skipped++ // all replicas skip it: the bytes are equal
			return
		}
		t.apply(string(rec.Key), rec.Value, b.BaseTimestamp()+rec.TimestampDelta, b.BaseOffset()+int64(rec.OffsetDelta))
	}
}

// apply takes one record. What a newer version wrote is skipped.
func (t *votedTable) apply(id string, value []byte, at, offset int64) {
	row, known := t.rows[id]
	if known {
		t.bytes -= row.size(id)
	} else {
		row.Ledger = twopc.NewLedger()
	}
	if value == nil {
		delete(t.rows, id)
		return
	}
	r, err := twopc.Decode(value)
	if err != nil {
		t.skipped++
		if known {
			t.bytes += row.size(id)
		}
		return
	}
	row.Ledger, row.at = row.Ledger.Apply(r), at
	t.rows[id] = row
	t.bytes += row.size(id)
	t.note(id, r, offset)
}

// note keeps the step for tests.
func (t *votedTable) note(id string, r twopc.Record, offset int64) {
	if t.facts.Keeps() {
		t.facts.Add(factOf(id, r, t.topic, t.number, offset))
	}
}

// ledger is what is known of a transactional id.
func (t *votedTable) ledger(id string) twopc.Ledger {
	t.mu.Lock()
	defer t.mu.Unlock()
	if row, known := t.rows[id]; known {
		return row.Ledger
	}
	return twopc.NewLedger()
}

// written is when the newest record of an id was, in milliseconds since 1970 on the clock of the node that led then: of an id with an
// unfinished decision, the decision.
func (t *votedTable) written(id string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[id].at
}

// unfinished are the ids whose decision not every participant has acknowledged.
func (t *votedTable) unfinished() map[string]twopc.Ledger {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]twopc.Ledger{}
	for id, row := range t.rows {
		if !row.Finished {
			all[id] = row.Ledger
		}
	}
	return all
}

// ids are all transactional ids.
func (t *votedTable) ids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.rows))
}

// before are the ids that did not change since.
func (t *votedTable) before(since time.Time) (ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, row := range t.rows {
		if row.at < since.UnixMilli() && row.Finished {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (t *votedTable) size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes
}

// votedTableVersion begins the snapshot: version i8 = 1 | count | count × { id | timestamp i64 | ledger (txn/twopc) }, ascending by id, in the
// flexible encoding. It travels inside the partition's snapshot, which carries the checksum.
const votedTableVersion = 1

// Snapshot appends the table to dst. Equal tables give equal bytes.
func (t *votedTable) Snapshot(dst []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := field.Writer{Flexible: true, Bytes: dst}
	w.Int8(votedTableVersion)
	w.Length(len(t.rows))
	for _, id := range slices.Sorted(maps.Keys(t.rows)) {
		row := t.rows[id]
		w.Text(id)
		w.Int64(row.at)
		row.Write(&w)
	}
	return w.Bytes
}

// Restore replaces the table by what Snapshot wrote; nil is an empty one.
func (t *votedTable) Restore(state []byte) error {
	rows, bytes := map[string]votedRow{}, int64(0)
	if state != nil {
		r := &field.Reader{Flexible: true, Bytes: state}
		if v := r.Int8(); r.Err() == nil && v != votedTableVersion {
			return fmt.Errorf("coordinator: table of voted transactions of version %d is not supported, want %d", v, votedTableVersion)
		}
		for range max(r.Length(1), 0) {
			id, at := r.Text(), r.Int64()
			l, err := twopc.ReadLedger(r)
			if err != nil {
				return fmt.Errorf("%w: %w", errTable, err)
			}
			row := votedRow{l, at}
			rows[id] = row
			bytes += row.size(id)
		}
		if err := r.End(); err != nil {
			return fmt.Errorf("%w: %w", errTable, err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows, t.bytes = rows, bytes
	return nil
}
