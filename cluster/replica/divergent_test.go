package replica

import (
	"errors"
	"testing"

	"gopherlog/engine/log"
	"gopherlog/engine/record"
)

// alter replaces the last entry of a closed replica's log by a batch of three records.
func (x *rigNode) alter() {
	r := x.rig
	l, _, err := log.Open(log.Config{
		FS: x.fs, Dir: "topics/t-7", Sidecar: Sidecar(x.db, r.id), TopicID: r.id.Topic, Partition: r.id.Partition, SameBoot: true,
	})
	r.must(err)
	last, term := l.LastIndex(), l.LastTerm()
	r.must(l.TruncateSuffix(last))
	var b record.Builder
	for range 3 {
		b.Append(record.Record{Value: []byte("another")})
	}
	r.must(l.Append([]log.Entry{{Index: last, Term: term, Data: b.Finish()}}))
	r.must(l.Close())
}

func TestReplicaWhoseLogIsNotTheLeadersGoesOutOfServiceAndIsNotRetried(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.lead(r.nodes[0])
		l.produce(5, 1, "a")
		r.converge()
		x := r.nodes[1]
		x.closeGroup()
		x.alter()
		x.openGroup()
		l.produce(1, 1, "b")
		r.eventually("the replica is out of service", func() bool { return x.g.Status().Failed != nil })
		if err := x.g.Status().Failed; !errors.Is(err, ErrFailed) || !errors.Is(err, log.ErrDivergent) {
			t.Errorf("it says: %v", err)
		}
		if err := x.g.Campaign(); err == nil {
			t.Error("it campaigns")
		}
		before := x.log.LastIndex()
		l.produce(20, 1, "c")
		if got := x.log.LastIndex(); got != before {
			t.Errorf("it appends: %d entries, it had %d", got, before)
		}
		if s := l.g.Status(); !s.Ready || s.Failed != nil {
			t.Errorf("the leader: %+v", s)
		}
	})
}
