package coordinator

import (
	"container/heap"
	"time"
)

// timers are those of all machines of a shard. Setting one that is set already, as each heartbeat does, or was taken back, as each transaction
// does, costs a map access: its place in the heap is looked at again only when it comes up. So a timer has one place in the heap, however often
// it is set and taken back before it would be due.
type timers struct {
	set  map[timerKey]setTimer
	heap timerHeap
}

// timerKey names a timer of a machine; the zero one is the shard's own.
type timerKey struct {
	id     string // the machine's
	kind   uint8
	member string // of a group
}

type setTimer struct {
	due    time.Time
	queued time.Time // its valid place in the heap, not after due
	off    bool      // taken back
}

type queuedTimer struct {
	at  time.Time
	key timerKey
}

func newTimers() *timers { return &timers{set: map[timerKey]setTimer{}} }

// start sets or replaces a timer.
func (t *timers) start(k timerKey, due time.Time) {
	s, there := t.set[k]
	if !there || due.Before(s.queued) {
		s.queued = due
		heap.Push(&t.heap, queuedTimer{due, k})
	}
	s.due, s.off = due, false
	t.set[k] = s
}

// stop takes a timer back.
func (t *timers) stop(k timerKey) {
	if s, there := t.set[k]; there && !s.off {
		s.off = true
		t.set[k] = s
	}
}

// pop removes and returns a timer that is due.
func (t *timers) pop(now time.Time) (timerKey, bool) {
	for len(t.heap) > 0 && !t.heap[0].at.After(now) {
		q := heap.Pop(&t.heap).(queuedTimer)
		s, there := t.set[q.key]
		switch {
		case !there || !s.queued.Equal(q.at): // queued anew
		case s.off:
			delete(t.set, q.key)
		case s.due.After(now):
			s.queued = s.due
			t.set[q.key] = s
			heap.Push(&t.heap, queuedTimer{s.due, q.key})
		default:
			delete(t.set, q.key)
			return q.key, true
		}
	}
	return timerKey{}, false
}

// next is when pop should be called again.
func (t *timers) next() (time.Time, bool) {
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].at, true
}

type timerHeap []queuedTimer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)        { *h = append(*h, x.(queuedTimer)) }
func (h *timerHeap) Pop() any {
	old := *h
	n := len(old) - 1
	x := old[n]
	*h = old[:n]
	return x
}
