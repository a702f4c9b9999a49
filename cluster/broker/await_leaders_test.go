package broker

import (
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Some clients take a partition without a leader for an error for good, so a topic is there when it has leaders.
func TestNewTopicsAreAnsweredWithTheirLeaders(t *testing.T) {
	w := newWorld(t)
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
}

// One whose replicas are down keeps nobody waiting for long.
func TestTopicsThatGetNoLeaderAreAnsweredAllTheSame(t *testing.T) {
	w := newWorld(t)
	w.shape = func(p *fakePartition) { p.leads = false }
	if code := w.dial().create("t", 1).ErrorCode; code != codeNone {
		t.Errorf("code %d", code)
	}
	if p := w.dial().metadata(metadataOf(9, true, "u")).Topics[0].Partitions[0]; p.ErrorCode != codeLeaderNotAvailable {
		t.Errorf("code %d, want LEADER_NOT_AVAILABLE", p.ErrorCode)
	}
}

func (c *client) create(name string, partitions int32) kmsg.CreateTopicsResponseTopic {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 5, 10_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, topic)
	return c.ask(req).(*kmsg.CreateTopicsResponse).Topics[0]
}
