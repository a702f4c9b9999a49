package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/kv"
)

// Names of the stable values, as the library writes them.
const (
	nameCurrentTerm  = "CurrentTerm"
	nameLastVoteTerm = "LastVoteTerm"
	nameLastVoteCand = "LastVoteCand"
)

// stableStore keeps a group's term and vote in the node's key-value store. Its
// owner is raft's main goroutine (before that, whoever opens the group).
//
// A vote is two calls of the library, term then candidate; the term waits in
// memory and both are written and synced as one. Unchanged values are not
// written again, except a candidate that a waiting term belongs to.
//
// The current term is written at once but synced only with the vote that
// follows it, or before anything is stored in it. Safety needs no more: those
// who elected the leader of a term remember it by their votes, and no leader of
// an older term finds a majority without one of them. So an election costs one
// sync on each side.
type stableStore struct {
	db  *kv.DB
	key func(name string) []byte
	// mute, while it returns an error, refuses votes, the replica's own too.
	mute func() error
	// fail ends the calling goroutine; the library would panic on the error.
	fail   func(error)
	points *failpoint.Set

	cache    map[string][]byte
	voteTerm []byte // set by SetUint64(LastVoteTerm), written with the candidate
	unsynced bool   // the current term may not be durable
}

func newStableStore(db *kv.DB, key func(name string) []byte, mute func() error, fail func(error)) *stableStore {
	return &stableStore{db: db, key: key, mute: mute, fail: fail, cache: make(map[string][]byte)}
}

// Get returns the value, nil if there is none.
func (s *stableStore) Get(key []byte) ([]byte, error) {
	name := string(key)
	if name == nameLastVoteTerm && s.voteTerm != nil {
		return s.voteTerm, nil
	}
	if v, ok := s.cache[name]; ok {
		return v, nil
	}
	v, err := s.db.Get(s.key(name))
	if errors.Is(err, kv.ErrNotFound) {
		v, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read stable value %s: %w", name, err)
	}
	s.cache[name] = v
	return v, nil
}

// Set makes the value durable, except the current term: see settle.
func (s *stableStore) Set(key, val []byte) error {
	name := string(key)
	if name == nameLastVoteCand {
		return s.setVote(val)
	}
	if old, err := s.Get(key); err == nil && old != nil && bytes.Equal(old, val) {
		return nil
	}
	val = bytes.Clone(val)
	if err := s.write(name, val, nil, name != nameCurrentTerm); err != nil {
		s.fail(err)
		return err
	}
	return nil
}

// setVote writes the candidate together with the term that was set before it.
func (s *stableStore) setVote(cand []byte) error {
	if err := s.mute(); err != nil {
		s.voteTerm = nil
		return err
	}
	cand = bytes.Clone(cand)
	if err := s.points.Hit(failVote); err != nil {
		s.voteTerm = nil
		return err
	}
	if err := s.write(nameLastVoteCand, cand, s.voteTerm, true); err != nil {
		s.voteTerm = nil
		s.fail(err)
		return err
	}
	if s.voteTerm != nil {
		s.cache[nameLastVoteTerm], s.voteTerm = s.voteTerm, nil
	}
	return nil
}

// settle makes the current term durable if it may not be.
func (s *stableStore) settle() error {
	if !s.unsynced {
		return nil
	}
	return s.write(nameCurrentTerm, s.cache[nameCurrentTerm], nil, true)
}

func (s *stableStore) write(name string, val, voteTerm []byte, sync bool) error {
	b := s.db.NewBatch()
	defer b.Close()
	if voteTerm != nil {
		b.Set(s.key(nameLastVoteTerm), voteTerm)
	}
	b.Set(s.key(name), val)
	if err := b.Commit(sync); err != nil {
		return fmt.Errorf("write stable value %s: %w", name, err)
	}
	s.unsynced = !sync // a synced write covers all before it
	s.cache[name] = val
	return nil
}

// SetUint64 makes the value durable, except the term of a vote, which becomes
// durable with its candidate, and the current term.
func (s *stableStore) SetUint64(key []byte, val uint64) error {
	b := binary.BigEndian.AppendUint64(nil, val)
	if string(key) != nameLastVoteTerm {
		return s.Set(key, b)
	}
	if err := s.mute(); err != nil {
		return err
	}
	s.voteTerm = b
	return nil
}

// GetUint64 returns the value, 0 if there is none.
func (s *stableStore) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	if err != nil || len(b) == 0 {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("stable value %s has %d bytes, want 8", key, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}
