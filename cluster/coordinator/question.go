package coordinator

import (
	"sync"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/txn/field"
)

// A partition's question about a transaction goes to the coordinator's node as
//
//	transactional id | producer id i64 | epoch i16 | topic | partition i32 | add i8 | patience i32, milliseconds

func writeQuestion(w *field.Writer, q partition.Question, patience time.Duration) {
	w.Text(q.TransactionalID)
	w.Int64(q.ProducerID)
	w.Int16(q.Epoch)
	w.Text(q.Topic)
	w.Int32(q.Number)
	add := int8(0)
	if q.Add {
		add = 1
	}
	w.Int8(add)
	w.Int32(int32(max(patience, 0).Milliseconds()))
}

// readQuestion takes what writeQuestion appended; the patience begins now.
func readQuestion(r *field.Reader, now time.Time) partition.Question {
	q := partition.Question{TransactionalID: r.Text(), ProducerID: r.Int64(), Epoch: r.Int16(), Topic: r.Text(), Number: r.Int32(), Add: r.Int8() == 1}
	q.Deadline = now.Add(time.Duration(r.Int32()) * time.Millisecond)
	return q
}

// Limits of questions that nobody could answer yet. Those above maxWaiting are told so, and their partitions come again.
const (
	maxWaiting = 1 << 12
	// A coordinator that was asked in vain, because a call broke or it does not know yet that it was deposed, is asked again after a pause
	// that doubles, unless another one or a later term is heard of before that: nothing tells that it has come to itself.
	firstAskAgain = 5 * time.Millisecond
	lastAskAgain  = 250 * time.Millisecond
)

// questions brings questions about transactions to the coordinators of their ids. One whose coordinator is not known waits until it is named,
// by the image or by what this node's replica of the shard hears; nothing polls. An answer of type A is in a coordinator's own words.
type questions[A any] struct {
	self  rpc.NodeID
	now   func() time.Time
	hold  time.Duration // how long a question waits at most
	alive func(rpc.NodeID) bool
	lead  func(id string) lead
	here  func(q partition.Question, done func(A))                // asks this node's machine
	there func(to rpc.NodeID, q partition.Question, done func(A)) // asks another node's
	vain  func(a A) bool                                          // whoever was asked does not coordinate
	most  int                                                     // that wait at a time
	none  A                                                       // what is said when nobody could tell

	stop chan struct{}
	kick chan struct{} // capacity 1
	wg   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	closed  bool
	waiting map[*inquiry[A]]struct{}
}

// inquiry is a question until it is answered. It is owned by whoever took it out of waiting.
type inquiry[A any] struct {
	partition.Question
	until time.Time
	local bool // another node asks: only this one is to answer
	done  func(A)

	tried lead
	tries int
	again time.Time // when to ask the tried one again
}

// start begins to answer; close ends it.
func (s *questions[A]) start() {
	s.stop, s.kick, s.waiting = make(chan struct{}), make(chan struct{}, 1), map[*inquiry[A]]struct{}{}
	s.wg.Go(s.run)
}

// close answers everybody who waits.
func (s *questions[A]) close() {
	s.mu.Lock()
	over := s.closed
	s.closed = true
	s.mu.Unlock()
	if !over {
		close(s.stop)
	}
	s.wg.Wait()
}

// ask has a question answered once, from any goroutine, no later than a little after its deadline; done must not block. A local one comes
// from another node: it waits only while this one is about to coordinate.
func (s *questions[A]) ask(q partition.Question, local bool, done func(A)) {
	i := &inquiry[A]{Question: q, until: s.now().Add(s.hold), local: local, done: done, tried: lead{node: meta.NoLeader}}
	if !q.Deadline.IsZero() && q.Deadline.Before(i.until) {
		i.until = q.Deadline
	}
	s.try(i)
}

// find is who is to be asked, which is nobody who is known to be deposed or down.
func (s *questions[A]) find(i *inquiry[A]) (l lead, down bool) {
	l = s.lead(i.TransactionalID)
	down = l.node != s.self && l.node != meta.NoLeader && !s.alive(l.node)
	if l.term < i.MinTerm || down {
		l.node = meta.NoLeader
	}
	return l, down
}

func (s *questions[A]) try(i *inquiry[A]) {
	to, _ := s.find(i)
	said := func(a A) { s.said(i, to, a) }
	switch {
	case to.node == meta.NoLeader:
		s.put(i)
	case to.node == s.self:
		s.here(i.Question, said)
	case i.local:
		i.done(s.none) // whoever asks here will hear of the other one
	default:
		s.there(to.node, i.Question, said)
	}
}

func (s *questions[A]) said(i *inquiry[A], to lead, a A) {
	if !s.vain(a) {
		i.done(a)
		return
	}
	i.tried, i.again = to, s.now().Add(min(firstAskAgain<<min(i.tries, 10), lastAskAgain))
	i.tries++
	s.put(i)
}

// put lets a question wait.
func (s *questions[A]) put(i *inquiry[A]) {
	s.mu.Lock()
	full := s.closed || len(s.waiting) >= s.most || !s.now().Before(i.until)
	if !full {
		s.waiting[i] = struct{}{}
	}
	s.mu.Unlock()
	if full {
		i.done(s.none)
		return
	}
	s.look() // it may have been named since
}

// look is called when somebody may lead a shard who did not. It does not block.
func (s *questions[A]) look() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *questions[A]) run() {
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		ready, over, next := s.due(s.now())
		for _, i := range over {
			i.done(s.none)
		}
		for _, i := range ready {
			s.try(i)
		}
		alarm.Reset(next)
		select {
		case <-s.kick:
		case <-alarm.C:
		case <-s.stop:
			s.mu.Lock()
			waiting := s.waiting
			s.waiting = nil
			s.mu.Unlock()
			for i := range waiting {
				i.done(s.none)
			}
			return
		}
	}
}

// due takes out what can be asked now and what has waited too long, and says when to look again.
func (s *questions[A]) due(now time.Time) (ready, over []*inquiry[A], next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = time.Hour
	for i := range s.waiting {
		to, down := s.find(i)
		switch {
		case !now.Before(i.until):
			over = append(over, i)
		case to.node != meta.NoLeader && (to != i.tried || !now.Before(i.again)):
			ready = append(ready, i)
		default:
			at := i.until
			if to.node != meta.NoLeader && i.again.Before(at) {
				at = i.again
			} else if back := now.Add(lastAskAgain); down && back.Before(at) {
				at = back // nothing tells that a node is up again
			}
			next = min(next, max(at.Sub(now), time.Millisecond))
			continue
		}
		delete(s.waiting, i)
	}
	return ready, over, next
}
