package coordinator

import (
	"context"
	"slices"
	"time"
)

// fetchIDTimeout bounds how long requests wait for a producer id.
const fetchIDTimeout = 10 * time.Second

// ids are the producer ids of a term's machines: those that nobody took yet, and who waits for one. They belong to the term's goroutine.
type ids struct {
	t        *term
	next     func(context.Context) (int64, error)
	fresh    []int64
	waiting  []waitsForID
	fetching bool
}

// waitsForID is a request of a transactional id.
type waitsForID struct {
	id   string
	done func(err error) // nil: there is one, hand the request in again
}

// peek returns an unused producer id.
func (s *ids) peek() (int64, bool) {
	n := len(s.fresh)
	if n == 0 {
		return 0, false
	}
	return s.fresh[n-1], true
}

// take makes a producer id a used one. One that is not used after all is missed by nobody.
func (s *ids) take(id int64) {
	s.fresh = slices.DeleteFunc(s.fresh, func(f int64) bool { return f == id })
}

// await calls done, on the term's goroutine, when there is one, or with why not. It is not called when the term ends: see abandon.
func (s *ids) await(id string, done func(error)) {
	s.waiting = append(s.waiting, waitsForID{id, done})
	s.fetch()
}

// awaits says that a request of the transactional id waits.
func (s *ids) awaits(id string) bool {
	return slices.ContainsFunc(s.waiting, func(w waitsForID) bool { return w.id == id })
}

// abandon tells everybody who waits why in vain.
func (s *ids) abandon(why error) {
	waiting := s.waiting
	s.waiting = nil
	for _, w := range waiting {
		w.done(why)
	}
}

// fetch gets one producer id, if none is being got.
func (s *ids) fetch() {
	if s.fetching || len(s.waiting) == 0 {
		return
	}
	s.fetching = true
	of := s.t.s.of
	of.wg.Go(func() {
		ctx, cancel := context.WithTimeout(of.ctx, fetchIDTimeout)
		defer cancel()
		id, err := s.next(ctx)
		s.t.post(func() { s.fetched(id, err) })
	})
}

func (s *ids) fetched(id int64, err error) {
	s.fetching = false
	if err != nil {
		s.t.s.of.logger.Warn("no producer id", "topic", s.t.s.of.kind.topic, "shard", s.t.s.number, "error", err)
	} else {
		s.fresh = append(s.fresh, id)
	}
	s.abandon(err)
	s.fetch()
}
