package group

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"

	"gopherlog/txn/field"
)

// Pending keeps the offsets of one shard that were committed in transactions which are still open (KIP-447). Like a partition's producers it
// changes only in log order, by the records and markers that were committed, so it is equal on every replica; the owner orders its methods.
// The zero value is not usable: use NewPending.
type Pending struct {
	producers map[int64]map[Key]held
	keys      map[Key]int    // in how many open transactions
	groups    map[string]int // how many of its keys are in any
}

type held struct {
	offset Offset
	at     int64
}

// Settled is an offset that a transaction committed. At is the log offset of its record: it counts only if the group's table holds nothing
// that was written behind it, so a table keeps At beside each offset.
type Settled struct {
	Key
	Offset Offset
	At     int64
}

// NewPending is what an empty log says.
func NewPending() *Pending {
	return &Pending{producers: map[int64]map[Key]held{}, keys: map[Key]int{}, groups: map[string]int{}}
}

// Hold takes an offset from a transactional record at log offset at.
func (p *Pending) Hold(producerID int64, key Key, offset Offset, at int64) {
	of := p.producers[producerID]
	if of == nil {
		of = map[Key]held{}
		p.producers[producerID] = of
	}
	if _, again := of[key]; !again {
		p.claim(key)
	}
	of[key] = held{offset, at}
}

// End is the marker of a producer: what its transaction committed, in the order of the log; nothing after an abort.
func (p *Pending) End(producerID int64, commit bool) []Settled {
	of := p.producers[producerID]
	delete(p.producers, producerID)
	for key := range of {
		p.release(key)
	}
	if !commit {
		return nil
	}
	return settled(of)
}

func (p *Pending) claim(key Key) {
	if p.keys[key]++; p.keys[key] == 1 {
		p.groups[key.Group]++
	}
}

func (p *Pending) release(key Key) {
	if p.keys[key]--; p.keys[key] > 0 {
		return
	}
	delete(p.keys, key)
	if p.groups[key.Group]--; p.groups[key.Group] == 0 {
		delete(p.groups, key.Group)
	}
}

func settled(of map[Key]held) []Settled {
	out := make([]Settled, 0, len(of))
	for key, h := range of {
		out = append(out, Settled{key, h.offset, h.at})
	}
	slices.SortFunc(out, func(a, b Settled) int { return cmp.Or(cmp.Compare(a.At, b.At), compareKeys(a.Key, b.Key)) })
	return out
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// Unstable says that an open transaction may change the offset: who asks for stable offsets is to come again.
func (p *Pending) Unstable(key Key) bool { return p.keys[key] > 0 }

// Holds says that an open transaction may commit offsets of the group.
func (p *Pending) Holds(group string) bool { return p.groups[group] > 0 }

// Groups are those that an open transaction may commit offsets of, in no order.
func (p *Pending) Groups() iter.Seq[string] { return maps.Keys(p.groups) }

// Forget drops what is pending of a group that is deleted: its transactions commit nothing of what they held for it until now.
func (p *Pending) Forget(group string) {
	if p.Holds(group) {
		p.drop(func(k Key) bool { return k.Group == group })
	}
}

// Remove drops what is pending of an offset that is deleted, in all transactions.
func (p *Pending) Remove(key Key) {
	if p.Unstable(key) {
		p.drop(func(k Key) bool { return k == key })
	}
}

func (p *Pending) drop(is func(Key) bool) {
	for id, of := range p.producers {
		for key := range of {
			if is(key) {
				delete(of, key)
				p.release(key)
			}
		}
		if len(of) == 0 {
			delete(p.producers, id)
		}
	}
}

// The encoding, big endian: version u8 = 1 | count u32 | per offset, by producer id, then by log offset: producer id i64 | at i64 | key and
// value as in the log, each behind its length u32. It travels inside the shard's snapshot, which carries the checksum.
const pendingVersion = 1

// Encode appends the state to dst. Equal states give equal bytes.
func (p *Pending) Encode(dst []byte) []byte {
	count := 0
	for _, of := range p.producers {
		count += len(of)
	}
	w := field.Writer{Bytes: append(dst, pendingVersion)}
	w.Int32(int32(count))
	for _, id := range slices.Sorted(maps.Keys(p.producers)) {
		for _, s := range settled(p.producers[id]) {
			w.Int64(id)
			w.Int64(s.At)
			w.Blob(s.Key.Encode())
			w.Blob(s.Offset.Encode())
		}
	}
	return w.Bytes
}

// DecodePending reads what Encode wrote from the front of src and returns the rest. An unknown version is ErrVersion, damage is
// field.ErrMalformed. It never allocates more than src can describe.
func DecodePending(src []byte) (*Pending, []byte, error) {
	if len(src) < 5 {
		return nil, nil, fmt.Errorf("%w: pending offsets of %d bytes", field.ErrMalformed, len(src))
	}
	if src[0] != pendingVersion {
		return nil, nil, fmt.Errorf("%w: pending offsets of version %d, want %d", ErrVersion, src[0], pendingVersion)
	}
	p := NewPending()
	count := binary.BigEndian.Uint32(src[1:])
	r := &field.Reader{Bytes: src[5:]}
	for range count {
		id, at, k, v := r.Int64(), r.Int64(), r.Blob(), r.Blob()
		if r.Err() != nil {
			return nil, nil, r.Err()
		}
		key, err := DecodeKey(k)
		if err != nil {
			return nil, nil, err
		}
		offset, err := DecodeOffset(v)
		if err != nil {
			return nil, nil, err
		}
		p.Hold(id, key, offset, at)
	}
	return p, r.Bytes, nil
}
