package coordinator

import (
	"sync"
	"sync/atomic"

	"gopherlog/cluster/replica"
)

// shard is one partition of the topic on this node, led or not.
type shard struct {
	of     *shards
	number int32
	part   Partition
	table  kept
	late   *late // what the replica hands its batches to

	heard    atomic.Bool // part may be asked: it is open
	replaced atomic.Bool // the replica was opened anew

	mu  sync.Mutex // orders changes of cur
	cur atomic.Pointer[term]
}

// follow ends a term that is over and begins the one that is now. It does not block.
func (s *shard) follow() {
	if !s.heard.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, epoch, ready := s.part.Leader()
	if t := s.cur.Load(); t != nil {
		if ready && t.epoch == epoch && s.wanted() {
			return
		}
		s.cur.Store(nil)
		t.end()
	}
	if ready && s.wanted() {
		t := s.begin(epoch)
		s.cur.Store(t) // before it says anything: who answers finds it here
		s.of.wg.Go(t.run)
	}
}

// wanted is false once the replica was opened anew, or everything is closed.
func (s *shard) wanted() bool { return !s.of.over.Load() && !s.replaced.Load() }

// serves says that the replica leads and takes what a term appends.
func (s *shard) serves() bool {
	if !s.wanted() || !s.heard.Load() {
		return false
	}
	_, _, ready := s.part.Leader()
	return ready
}

// active returns the term that is led here, or why there is none.
func (s *shard) active() (*term, code) {
	if t := s.cur.Load(); t != nil {
		return t, codeNone
	}
	if s.serves() {
		s.follow() // asked in the moment before it is told
		if t := s.cur.Load(); t != nil {
			return t, codeNone
		}
	}
	if s.wanted() && s.heard.Load() && s.part.Status().Role == replica.Leader {
		return nil, codeLoading // elected, but what older terms left is not all applied yet
	}
	return nil, codeNotCoordinator
}
