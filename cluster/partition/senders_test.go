package partition

import (
	"sync"
	"testing"
	"time"
)

// TestConcurrentSendersLeaveNothingQueued appends from many goroutines at once: every batch is proposed once, and none waits for a
// later one to wake the proposer.
func TestConcurrentSendersLeaveNothingQueued(t *testing.T) {
	h := open(t)
	const senders, each = 8, 150
	var mu sync.Mutex
	taken := map[int64]bool{}
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range each {
				done := make(chan AppendResult, 1)
				h.Append(&AppendRequest{Batch: plain(1), Acks: AcksAll, Done: func(r AppendResult) { done <- r }})
				select {
				case r := <-done:
					mu.Lock()
					if r.Err != nil || taken[r.BaseOffset] {
						t.Errorf("%+v", r)
					}
					taken[r.BaseOffset] = true
					mu.Unlock()
				case <-time.After(time.Minute):
					t.Error("a batch was left in the queue")
					return
				}
			}
		})
	}
	wg.Wait()
	if end := h.EndOffset(); end != senders*each {
		t.Errorf("log end %d, want %d", end, senders*each)
	}
}
