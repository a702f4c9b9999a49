package coordinator

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"gopherlog/engine/record"
	"gopherlog/txn/field"
	"gopherlog/txn/kafkatx"
)

// txnTable is what the committed records of a shard of __transaction_state say: the newest one of every transactional id. It changes only by
// committed batches in the order of the log.
type txnTable struct {
	mu      sync.Mutex
	metas   map[string]*kafkatx.Meta
	bytes   int64 // of all keys and values, about
	skipped int64 // records that nobody here can read
}

// txnRecordOverhead is what a record takes in the log besides its key and value, its batch header included.
const txnRecordOverhead = 80

func newTxnTable() *txnTable { return &txnTable{metas: map[string]*kafkatx.Meta{}} }

// Apply takes a committed batch.
func (t *txnTable) Apply(b record.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b.IsControl() {
		return
	}
	for rec, err := range record.Records(b) {
		if err != nil {
			t.skipped++ // all replicas skip it: the bytes are equal
			return
		}
		t.apply(rec.Key, rec.Value)
	}
}

// apply takes one record. What a newer version wrote is skipped, as Kafka does.
func (t *txnTable) apply(k, v []byte) {
	id, err := kafkatx.DecodeKey(k)
	if err != nil {
		t.skipped++
		return
	}
	m, err := kafkatx.DecodeValue(v)
	if err != nil {
		t.skipped++
		return
	}
	t.put(id, m)
}

func (t *txnTable) put(id string, m *kafkatx.Meta) {
	if old := t.metas[id]; old != nil {
		t.bytes -= txnSize(id, old)
	}
	if m == nil {
		delete(t.metas, id)
		return
	}
	t.bytes += txnSize(id, m)
	t.metas[id] = m
}

func txnSize(id string, m *kafkatx.Meta) int64 {
	size := int64(len(id)) + txnRecordOverhead
	for _, p := range m.Partitions {
		size += int64(len(p.Topic)) + 8
	}
	if m.Owed != nil {
		for _, p := range m.Owed.Partitions {
			size += int64(len(p.Topic)) + 8
		}
	}
	return size
}

// all are the newest records, by transactional id.
func (t *txnTable) all() map[string]*kafkatx.Meta {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.metas)
}

// meta is the newest record of an id; nil if there is none.
func (t *txnTable) meta(id string) *kafkatx.Meta {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.metas[id]
}

func (t *txnTable) size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes
}

// The snapshot, big endian: version u8 = 1 | records u32 | for each, ordered by id: key and value as in the log, each behind its length u32.
// It travels inside the partition's snapshot, which carries the checksum.
const txnTableVersion = 1

// Snapshot appends the table to dst. Equal tables give equal bytes.
func (t *txnTable) Snapshot(dst []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := field.Writer{Bytes: append(dst, txnTableVersion)}
	w.Int32(int32(len(t.metas)))
	for _, id := range slices.Sorted(maps.Keys(t.metas)) {
		w.Blob(kafkatx.EncodeKey(id))
		w.Blob(t.metas[id].EncodeValue())
	}
	return w.Bytes
}

// Restore replaces the table by what Snapshot wrote; nil is an empty one.
func (t *txnTable) Restore(state []byte) error {
	fresh := newTxnTable()
	if state != nil {
		if err := fresh.decode(state); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.metas, t.bytes = fresh.metas, fresh.bytes
	return nil
}

func (t *txnTable) decode(state []byte) error {
	if len(state) < 5 {
		return fmt.Errorf("%w: %d bytes", errTable, len(state))
	}
	if state[0] != txnTableVersion {
		return fmt.Errorf("coordinator: table of version %d is not supported, want %d", state[0], txnTableVersion)
	}
	count := binary.BigEndian.Uint32(state[1:])
	r := &field.Reader{Bytes: state[5:]}
	for range count {
		k, v := r.Blob(), r.Blob()
		if r.Err() != nil {
			return fmt.Errorf("%w: %w", errTable, r.Err())
		}
		id, err := kafkatx.DecodeKey(k)
		if err != nil {
			return fmt.Errorf("%w: %w", errTable, err)
		}
		m, err := kafkatx.DecodeValue(v)
		if err != nil || m == nil {
			return fmt.Errorf("%w: record of %q: %w", errTable, id, err)
		}
		t.put(id, m)
	}
	if err := r.End(); err != nil {
		return fmt.Errorf("%w: %w", errTable, err)
	}
	return nil
}
