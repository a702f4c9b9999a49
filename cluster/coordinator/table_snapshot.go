package coordinator

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"gopherlog/txn/field"
	"gopherlog/txn/group"
)

// The snapshot of a shard's table, big endian: version u8 = 1 | records u32 | for each, ordered by key: at i64 | key and value as in the log,
// each behind its length u32 | pending offsets (txn/group). It travels inside the partition's snapshot, which carries the checksum.
const tableVersion = 1

type snapped struct {
	key group.Key
	row row
	rec *group.Record
	at  int64
}

// Snapshot appends the table to dst. Equal tables give equal bytes.
func (t *table) Snapshot(dst []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.snapped()
	w := field.Writer{Bytes: append(dst, tableVersion)}
	w.Int32(int32(len(all)))
	for i := range all {
		s := &all[i]
		w.Int64(s.at)
		w.Blob(s.key.Encode())
		if s.rec != nil {
			w.Blob(s.rec.Encode())
		} else {
			w.Blob(s.row.Encode())
		}
	}
	return t.pending.Encode(w.Bytes)
}

func (t *table) snapped() (all []snapped) {
	for id, g := range t.groups {
		if g.record != nil {
			all = append(all, snapped{key: group.Key{Group: id}, rec: g.record, at: g.at})
		}
		for topic, parts := range g.offsets {
			for number, o := range parts {
				all = append(all, snapped{key: group.Key{Group: id, Topic: topic, Partition: number}, row: o, at: o.at})
			}
		}
	}
	slices.SortFunc(all, func(a, b snapped) int {
		return cmp.Or(cmp.Compare(a.key.Group, b.key.Group), cmp.Compare(a.key.Topic, b.key.Topic), cmp.Compare(a.key.Partition, b.key.Partition))
	})
	return all
}

// Restore replaces the table by what Snapshot wrote; nil is an empty one.
func (t *table) Restore(state []byte) error {
	fresh := newTable()
	if state != nil {
		if err := fresh.decode(state); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups, t.pending, t.bytes, t.offsets = fresh.groups, fresh.pending, fresh.bytes, fresh.offsets
	return nil
}

func (t *table) decode(state []byte) error {
	if len(state) < 5 {
		return fmt.Errorf("%w: %d bytes", errTable, len(state))
	}
	if state[0] != tableVersion {
		return fmt.Errorf("coordinator: table of version %d is not supported, want %d", state[0], tableVersion)
	}
	count := binary.BigEndian.Uint32(state[1:])
	r := &field.Reader{Bytes: state[5:]}
	for range count {
		at, k, v := r.Int64(), r.Blob(), r.Blob()
		if r.Err() != nil {
			return fmt.Errorf("%w: %w", errTable, r.Err())
		}
		if err := t.restore(at, k, v); err != nil {
			return fmt.Errorf("%w: %w", errTable, err)
		}
	}
	pending, rest, err := group.DecodePending(r.Bytes)
	if err != nil {
		return fmt.Errorf("%w: %w", errTable, err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d bytes follow", errTable, len(rest))
	}
	t.pending = pending
	return nil
}

func (t *table) restore(at int64, k, v []byte) error {
	key, err := group.DecodeKey(k)
	if err != nil {
		return err
	}
	if key.Topic == "" {
		if _, err := group.DecodeRecord(v); err != nil {
			return err
		}
		t.applyGroup(key.Group, v, at)
		return nil
	}
	o, err := group.DecodeOffset(v)
	if err == nil {
		t.put(key, row{o, at})
	}
	return err
}
