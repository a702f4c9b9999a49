package broker

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

// Some clients take a partition without a leader for an error for good, so a topic is there when it has leaders.
func TestNewTopicsAreAnsweredWithTheirLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		var elections sync.WaitGroup
		t.Cleanup(elections.Wait)
		w.shape = func(p *fakePartition) {
			p.leads = false
			elections.Go(func() {
				time.Sleep(20 * time.Millisecond)
				p.lead(true, 1)
			})
		}
		for _, p := range w.dial().metadata(metadataOf(9, true, "auto")).Topics[0].Partitions {
			if p.ErrorCode != codeNone || p.Leader != 1 {
				t.Errorf("auto-created: code %d, leader %d", p.ErrorCode, p.Leader)
			}
		}
		c := w.dial()
		if code := c.create("made", 3).ErrorCode; code != codeNone {
			t.Fatalf("code %d", code)
		}
		for _, p := range c.metadata(metadataOf(9, false, "made")).Topics[0].Partitions {
			if p.ErrorCode != codeNone || p.Leader != 1 {
				t.Errorf("created: code %d, leader %d", p.ErrorCode, p.Leader)
			}
		}
	})
}

// One whose replicas are down keeps nobody waiting for long.
func TestTopicsThatGetNoLeaderAreAnsweredAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.shape = func(p *fakePartition) { p.leads = false }
		if code := w.dial().create("t", 1).ErrorCode; code != codeNone {
			t.Errorf("code %d", code)
		}
		if p := w.dial().metadata(metadataOf(9, true, "u")).Topics[0].Partitions[0]; p.ErrorCode != codeLeaderNotAvailable {
			t.Errorf("code %d, want LEADER_NOT_AVAILABLE", p.ErrorCode)
		}
	})
}

// To some clients a partition without a leader is no pause but an end, so whoever asks while one is elected is told of it.
func TestAPartitionBetweenLeadersIsAnsweredWithTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.create("t", 2)
		for _, ask := range []*kmsg.MetadataRequest{metadataOf(9, false, "t"), metadataOf(12, false, "t")} {
			p := w.part("t", 1)
			p.lead(false, 3)
			var election sync.WaitGroup
			election.Go(func() {
				time.Sleep(20 * time.Millisecond)
				p.lead(true, 4)
			})
			got := w.dial().metadata(ask).Topics[0].Partitions[1]
			election.Wait()
			if got.ErrorCode != codeNone || got.Leader != 1 {
				t.Errorf("code %d, leader %d", got.ErrorCode, got.Leader)
			}
		}
	})
}

// Without most of its replicas nobody can be elected, so nobody is kept waiting.
func TestAPartitionThatCanElectNobodyIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.register(2, "b", 9)
		w.register(3, "c", 9)
		w.createOn("t", 1, 2, 3)
		w.part("t", 0).lead(false, 3)
		w.dead.Store(meta.NodeID(2), true)
		w.dead.Store(meta.NodeID(3), true)
		start := time.Now()
		if p := w.dial().metadata(metadataOf(9, false, "t")).Topics[0].Partitions[0]; p.ErrorCode != codeLeaderNotAvailable {
			t.Errorf("code %d, want LEADER_NOT_AVAILABLE", p.ErrorCode)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("answered after %v", took)
		}
	})
}

func (c *client) create(name string, partitions int32) kmsg.CreateTopicsResponseTopic {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 5, 10_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, topic)
	return c.ask(req).(*kmsg.CreateTopicsResponse).Topics[0]
}
