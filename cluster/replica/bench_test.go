package replica

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"gopherlog/engine/record"
)

// BenchmarkCommit measures batches through three replicas in one process, on
// memory file systems, with a bounded number in flight.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{100, 16 << 10} {
		for _, inflight := range []int{1, 64} {
			b.Run(fmt.Sprintf("bytes=%d/inflight=%d", size, inflight), func(b *testing.B) {
				benchmarkCommit(b, size, inflight)
			})
		}
	}
}

func benchmarkCommit(b *testing.B, size, inflight int) {
	r := newRig(b, 3, func(o *rigOptions) {
		o.segmentBytes = 64 << 20
		o.timers = Timers{Heartbeat: 3 * time.Second, Election: 3 * time.Second, Lease: 2 * time.Second, Commit: 250 * time.Millisecond}
	})
	r.lead(r.nodes[0])
	l := r.leader()
	var rec record.Builder
	rec.Append(record.Record{Value: make([]byte, size)})
	plain := rec.Finish()
	plain.SetBaseOffset(-1)
	term := l.g.Status().Term
	slots := make(chan struct{}, inflight)
	var failed atomic.Int64
	done := func(_ int64, err error) {
		if err != nil {
			failed.Add(1)
		}
		<-slots
	}
	b.SetBytes(int64(len(plain)))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		slots <- struct{}{}
		data := append([]byte(nil), plain...)
		if err := l.g.Propose(&Proposal{Data: data, Term: term, Done: done}); err != nil {
			b.Fatal(err)
		}
	}
	for range inflight {
		slots <- struct{}{}
	}
	b.StopTimer()
	if n := failed.Load(); n > 0 {
		b.Fatalf("%d of %d proposals failed", n, b.N)
	}
}
