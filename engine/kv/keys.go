package kv

import (
	"encoding/binary"
	"fmt"
)

// A key begins with one byte that names its space.
const (
	spaceControlLog    = 'c' // index (8): an entry of the control group's log
	spaceControlStable = 'd' // name: stable state of the control group
	spaceMeta          = 'm' // name: facts of the node
	spaceSide          = 'e' // group (20), index (8): an entry of a partition's log that takes no offset
	spaceStable        = 's' // group (20), name: stable state of a partition's group
)

// GroupKey is a partition's group: topic id (16 bytes), partition (4, big endian).
type GroupKey [20]byte

// NewGroupKey builds the key of a topic's partition.
func NewGroupKey(topic [16]byte, partition int32) GroupKey {
	var g GroupKey
	copy(g[:], topic[:])
	binary.BigEndian.PutUint32(g[16:], uint32(partition))
	return g
}

func key(space byte, parts ...[]byte) []byte {
	k := append(make([]byte, 0, 32), space)
	for _, p := range parts {
		k = append(k, p...)
	}
	return k
}

func index8(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// StableKey names a value of a group's stable store.
func StableKey(g GroupKey, name string) []byte { return key(spaceStable, g[:], []byte(name)) }

// SideKey names a group's side entry.
func SideKey(g GroupKey, index uint64) []byte { return key(spaceSide, g[:], index8(index)) }

// SideRange bounds a group's side entries with index in [from, to).
func SideRange(g GroupKey, from, to uint64) (lo, hi []byte) { return SideKey(g, from), SideKey(g, to) }

// SideIndex returns the index that a SideKey holds.
func SideIndex(k []byte) (uint64, error) {
	if len(k) != 29 || k[0] != spaceSide {
		return 0, fmt.Errorf("%w: side key %x", ErrCorrupt, k)
	}
	return binary.BigEndian.Uint64(k[21:]), nil
}

// ControlLogKey names an entry of the control group's log.
func ControlLogKey(index uint64) []byte { return key(spaceControlLog, index8(index)) }

// ControlLogRange bounds the control group's entries with index in [from, to).
func ControlLogRange(from, to uint64) (lo, hi []byte) { return ControlLogKey(from), ControlLogKey(to) }

// ControlLogAll bounds all of the control group's entries.
func ControlLogAll() (lo, hi []byte) { return prefixRange([]byte{spaceControlLog}) }

// ControlLogIndex returns the index that a ControlLogKey holds.
func ControlLogIndex(k []byte) (uint64, error) {
	if len(k) != 9 || k[0] != spaceControlLog {
		return 0, fmt.Errorf("%w: control log key %x", ErrCorrupt, k)
	}
	return binary.BigEndian.Uint64(k[1:]), nil
}

// ControlStableKey names a value of the control group's stable store.
func ControlStableKey(name string) []byte { return key(spaceControlStable, []byte(name)) }

// MetaKey names a fact of the node.
func MetaKey(name string) []byte { return key(spaceMeta, []byte(name)) }

// StableGroupRange bounds everything in a group's stable store.
func StableGroupRange(g GroupKey) (lo, hi []byte) { return prefixRange(key(spaceStable, g[:])) }

// SideGroupRange bounds all side entries of a group.
func SideGroupRange(g GroupKey) (lo, hi []byte) { return prefixRange(key(spaceSide, g[:])) }

// StableGroups bounds the stable stores of all groups; GroupOf tells the group of a key in it.
func StableGroups() (lo, hi []byte) { return prefixRange([]byte{spaceStable}) }

// GroupOf returns the group of a StableKey or SideKey.
func GroupOf(k []byte) (GroupKey, error) {
	if len(k) < 21 || k[0] != spaceStable && k[0] != spaceSide {
		return GroupKey{}, fmt.Errorf("%w: group key %x", ErrCorrupt, k)
	}
	return GroupKey(k[1:21]), nil
}

// prefixRange bounds the keys that begin with prefix.
func prefixRange(prefix []byte) (lo, hi []byte) {
	hi = append([]byte(nil), prefix...)
	for i := len(hi) - 1; i >= 0; i-- {
		hi[i]++
		if hi[i] != 0 {
			return prefix, hi[:i+1]
		}
	}
	return prefix, nil
}

// DropGroup removes everything that is kept for a group; durable on return.
func (d *DB) DropGroup(g GroupKey) error {
	b := d.NewBatch()
	defer b.Close()
	b.DeleteRange(StableGroupRange(g))
	b.DeleteRange(SideGroupRange(g))
	return b.Commit(true)
}
