package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

// lateMeta is a control group whose image stays behind until it is caught up.
type lateMeta struct {
	*meta.Controller
	behind atomic.Pointer[meta.Image] // nil: it is not
	asked  atomic.Int32
	deaf   bool // nothing catches it up
}

func (m *lateMeta) Image() *meta.Image {
	if old := m.behind.Load(); old != nil {
		return old
	}
	return m.Controller.Image()
}

func (m *lateMeta) CatchUp(ctx context.Context) error {
	m.asked.Add(1)
	if m.deaf {
		<-ctx.Done()
		return ctx.Err()
	}
	m.behind.Store(nil)
	return m.Controller.CatchUp(ctx)
}

func newLate(t *testing.T) (*world, *lateMeta, *meta.Image) {
	t.Helper()
	late := &lateMeta{}
	w := newVirtual(t, func(c *Config) {
		late.Controller = c.Meta.(*meta.Controller)
		c.Meta = late
	})
	w.coordinate()
	before := w.ctl.Image()
	w.create("t", 2)
	return w, late, before
}

// Another node made the topic a moment ago, and the client heard of it there.
func TestACommitForATopicThatThisNodeLearnsOfInAMomentIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, late, before := newLate(t)
		id, c := w.ctl.Image().Topic("t").ID, w.dial()
		for v := offsetCommitAPI.min; v <= offsetCommitAPI.max; v++ {
			late.behind.Store(before)
			if codes := c.commitAt(v, "g", int64(v), topicNamed("t", id)); codes[0] != codeNone {
				t.Errorf("OffsetCommit %d: code %d", v, codes[0])
			}
		}
		late.behind.Store(before)
		if offset, code := c.fetchAt(10, "g", "t", id); code != codeNone || offset != 10 {
			t.Errorf("OffsetFetch 10: offset %d, code %d", offset, code)
		}
		for v := txnOffsetCommitAPI.min; v <= txnOffsetCommitAPI.max; v++ {
			late.behind.Store(before)
			req := kmsg.NewPtrTxnOffsetCommitRequest()
			topic, part := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
			topic.Topic, topic.TopicID, topic.Partitions = "t", id, append(topic.Partitions, part)
			req.Version, req.TransactionalID, req.Group, req.Topics = v, "x", "g", append(req.Topics, topic)
			code := c.ask(req).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
			if code == codeUnknownTopicID || code == codeUnknownTopicOrPartition {
				t.Errorf("TxnOffsetCommit %d: code %d", v, code)
			}
		}
		asked := late.asked.Load()
		if codes := c.commitAt(10, "g", 1, topicNamed("", id)); codes[0] != codeNone || late.asked.Load() != asked {
			t.Errorf("a commit for a topic that is known: code %d, and the control group was asked", codes[0])
		}
	})
}

func TestACommitForATopicThatIsNowhereIsRefusedAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, late, before := newLate(t)
		id, c := w.ctl.Image().Topic("t").ID, w.dial()
		late.deaf = true
		late.behind.Store(before)
		if codes := c.commitAt(10, "g", 1, topicNamed("", id)); codes[0] != codeUnknownTopicID {
			t.Errorf("code %d", codes[0])
		}
	})
}

func TestWhoAsksForACurrentImageSharesARoundThatBeginsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		var rounds, answered atomic.Int32
		slow := func(context.Context) error {
			rounds.Add(1)
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		var wg sync.WaitGroup
		ask := func() {
			wg.Go(func() { h.catchUp(t.Context(), slow); answered.Add(1) })
		}
		ask()
		time.Sleep(50 * time.Millisecond)
		for range 100 { // the round that is under way may have missed what they heard of
			ask()
		}
		time.Sleep(100 * time.Millisecond)
		if rounds.Load() != 2 || answered.Load() != 1 {
			t.Errorf("%d rounds, %d answered; want the second round under way", rounds.Load(), answered.Load())
		}
		wg.Wait()
		if rounds.Load() != 2 || answered.Load() != 101 {
			t.Errorf("%d rounds, %d answered", rounds.Load(), answered.Load())
		}
	})
}

func TestRoundsOfCatchingUpKeepADistanceAndALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		start, rounds := time.Now(), 0
		for range 10 {
			h.catchUp(t.Context(), func(context.Context) error { rounds++; return nil })
		}
		if took := time.Since(start); rounds != 10 || took != 9*hearPause {
			t.Errorf("%d rounds in %s", rounds, took)
		}
		start = time.Now()
		h.catchUp(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if took := time.Since(start); took != hearLimit {
			t.Errorf("without a control group: %s", took)
		}
	})
}
