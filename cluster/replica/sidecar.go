package replica

import (
	"errors"
	"fmt"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/kv"
	"gopherlog/engine/log"
)

func groupKey(id rpc.GroupID) kv.GroupKey { return kv.NewGroupKey(id.Topic, id.Partition) }

// sidecar keeps a partition's side entries in the node's key-value store.
type sidecar struct{ side *kv.Side }

// Sidecar returns the store of side entries that a partition's log is opened
// with. What it is given is copied.
func Sidecar(db *kv.DB, id rpc.GroupID) log.Sidecar { return sidecar{db.Side(groupKey(id))} }

// Put makes the entries durable.
func (s sidecar) Put(entries []log.Entry) error {
	out := make([]kv.SideEntry, len(entries))
	for i, e := range entries {
		out[i] = kv.SideEntry{Index: e.Index, Term: e.Term, Type: e.Type, Data: e.Data, Ext: e.Ext}
	}
	return s.side.Put(out)
}

// Get returns the entry at index, log.ErrNotFound if there is none.
func (s sidecar) Get(index uint64) (log.Entry, error) {
	e, err := s.side.Get(index)
	if errors.Is(err, kv.ErrNotFound) {
		err = fmt.Errorf("side entry %d: %w", index, log.ErrNotFound)
	}
	return fromSide(e), err
}

// Scan calls fn for the entries of [from, to) in order.
func (s sidecar) Scan(from, to uint64, fn func(log.Entry) error) error {
	return s.side.Scan(from, to, func(e kv.SideEntry) error { return fn(fromSide(e)) })
}

func fromSide(e kv.SideEntry) log.Entry {
	return log.Entry{Index: e.Index, Term: e.Term, Type: e.Type, Data: e.Data, Ext: e.Ext}
}

// DeleteFrom removes the entries at index and above; durable on return.
func (s sidecar) DeleteFrom(index uint64) error { return s.side.DeleteFrom(index) }

// DeleteBelow removes the entries below index.
func (s sidecar) DeleteBelow(index uint64) error { return s.side.DeleteBelow(index) }

// Forget removes everything that the key-value store holds of a deleted group;
// durable on return.
func Forget(db *kv.DB, id rpc.GroupID) error { return db.DropGroup(groupKey(id)) }

// Names of a group's values beside the library's.
const (
	nameRun     = "run"     // how the replica ran last
	nameRestart = "restart" // the newest restart copy
)

const (
	runVersion = 1

	runClean    = 1 << 0 // closed after everything was synced
	runSuspect  = 1 << 1 // may have lost its tail and has not caught up since
	runVolatile = 1 << 2 // appends were not synced
)

// run says under which kernel a replica ran last and how that ended.
type run struct {
	bootID string
	flags  byte
}

func loadRun(db *kv.DB, id rpc.GroupID) (r run, found bool, err error) {
	b, err := db.Get(kv.StableKey(groupKey(id), nameRun))
	if errors.Is(err, kv.ErrNotFound) {
		return run{}, false, nil
	}
	if err != nil {
		return run{}, false, fmt.Errorf("read run record of %v: %w", id, err)
	}
	if len(b) < 3 || len(b) != 3+int(b[2]) {
		return run{}, false, fmt.Errorf("run record of %v: %d bytes", id, len(b))
	}
	if b[0] != runVersion {
		return run{}, false, fmt.Errorf("run record of %v: format version %d, this program reads %d", id, b[0], runVersion)
	}
	return run{flags: b[1], bootID: string(b[3:])}, true, nil
}

func saveRun(db *kv.DB, id rpc.GroupID, r run) error {
	if len(r.bootID) > 255 {
		return fmt.Errorf("boot id has %d bytes, at most 255", len(r.bootID))
	}
	v := append([]byte{runVersion, r.flags, byte(len(r.bootID))}, r.bootID...)
	if err := db.Set(kv.StableKey(groupKey(id), nameRun), v, true); err != nil {
		return fmt.Errorf("write run record of %v: %w", id, err)
	}
	return nil
}

// SameBoot reports whether the page cache that this replica's log was written
// through has survived: it ran last under the same kernel, or ended cleanly, or
// never ran.
func SameBoot(db *kv.DB, id rpc.GroupID, bootID string) (bool, error) {
	r, found, err := loadRun(db, id)
	return !found || r.bootID == bootID || r.flags&runClean != 0, err
}
