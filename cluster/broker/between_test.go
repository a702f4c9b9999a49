package broker

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// held asks, and returns the answer's channel once the question waits at p.
func held(t *testing.T, c *client, p *fakePartition, req kmsg.Request) chan kmsg.Response {
	t.Helper()
	answer := make(chan kmsg.Response, 1)
	go func() { answer <- c.ask(req) }()
	eventually(t, "the question is held", func() bool { return p.parked() == 1 })
	select {
	case r := <-answer:
		t.Fatalf("answered while the partition is between leaders: %+v", r)
	default:
	}
	return answer
}

// change makes p another one and tells who waits there.
func (p *fakePartition) change(to func(p *fakePartition)) {
	p.mu.Lock()
	to(p)
	p.mu.Unlock()
	p.wake()
}

func epochQuestion(current, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version = 4
	topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
	topic.Topic = "t"
	part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	part.CurrentLeaderEpoch, part.LeaderEpoch = current, epoch
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

func endQuestion(current int32) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = 7
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "t"
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.CurrentLeaderEpoch, part.Timestamp = current, timestampLatest
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

func patientFetch(epoch int32) *kmsg.FetchRequest {
	req := fetch(fetchAPI.max, "t", 0)
	req.MaxWaitMillis, req.MinBytes = 60_000, 1
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
	return req
}

// Clients hear of a leader from its followers, before it serves. franz-go validates its offset there first, and rests for a second if it is
// refused.
func TestQuestionsAreHeldUntilTheElectedLeaderServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.create("t", 1)
		w.fill("t", 0, 3)
		p, c := w.part("t", 0), w.dial()
		unready := func(p *fakePartition) { p.elected, p.epoch = true, 2 }
		ready := func(p *fakePartition) { p.elected = false }

		p.change(unready)
		answer := held(t, c, p, epochQuestion(2, 1))
		p.change(ready)
		if r := (<-answer).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]; r.ErrorCode != codeNone || r.LeaderEpoch != 1 || r.EndOffset != 3 {
			t.Errorf("OffsetForLeaderEpoch: %+v", r)
		}
		p.change(unready)
		answer = held(t, c, p, endQuestion(2))
		p.change(ready)
		if r := (<-answer).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; r.ErrorCode != codeNone || r.Offset != 3 {
			t.Errorf("ListOffsets: %+v", r)
		}
		p.change(unready)
		answer = held(t, c, p, patientFetch(2))
		p.change(ready)
		if r := (<-answer).(*kmsg.FetchResponse).Topics[0].Partitions[0]; r.ErrorCode != codeNone || r.HighWatermark != 3 || len(r.RecordBatches) == 0 {
			t.Errorf("Fetch: code %d, high watermark %d", r.ErrorCode, r.HighWatermark)
		}
		if n := p.parked(); n != 0 {
			t.Errorf("%d wait for a leader that serves", n)
		}
	})
}

// A leader that stepped down knows the next one a moment later, and can say where it is.
func TestAFormerLeaderHoldsFetchesUntilItKnowsTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.register(2, "two.example", 19092)
		w.createOn("t", 1, 2)
		p, c := w.part("t", 0), w.dial()
		answer := make(chan kmsg.Response, 1)
		go func() { answer <- c.ask(patientFetch(1)) }()
		eventually(t, "the fetch is parked", func() bool { return p.parked() == 1 })
		p.change(func(p *fakePartition) { p.leads = false }) // in the midst of it
		eventually(t, "the fetch is held", func() bool { return p.parked() == 1 })
		p.change(func(p *fakePartition) { p.elsewhere, p.epoch = 2, 7 })
		r := (<-answer).(*kmsg.FetchResponse)
		if got := r.Topics[0].Partitions[0]; got.ErrorCode != codeNotLeaderOrFollower || got.CurrentLeader.LeaderID != 2 || got.CurrentLeader.LeaderEpoch != 7 || len(r.Brokers) != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// Who knows a newer epoch than this node is ahead of it, and asks no wrong question.
func TestQuestionsOfANewerEpochAreHeldUntilTheNodeKnowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.create("t", 1)
		w.fill("t", 0, 1)
		p, c := w.part("t", 0), w.dial()
		for i, req := range []kmsg.Request{epochQuestion(2, 1), endQuestion(3), patientFetch(4)} {
			answer := held(t, c, p, req)
			p.change(func(p *fakePartition) { p.epoch = int32(i) + 2 })
			switch r := (<-answer).(type) {
			case *kmsg.OffsetForLeaderEpochResponse:
				if code := r.Topics[0].Partitions[0].ErrorCode; code != codeNone {
					t.Errorf("OffsetForLeaderEpoch: code %d", code)
				}
			case *kmsg.ListOffsetsResponse:
				if code := r.Topics[0].Partitions[0].ErrorCode; code != codeNone {
					t.Errorf("ListOffsets: code %d", code)
				}
			case *kmsg.FetchResponse:
				if p := r.Topics[0].Partitions[0]; p.ErrorCode != codeNone || len(p.RecordBatches) == 0 {
					t.Errorf("Fetch: code %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
				}
			}
		}
	})
}

// A follower that knows the leader sends everybody there at once.
func TestFollowersThatKnowTheLeaderHoldNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.moved()
		c := w.dial()
		if code := c.ask(epochQuestion(7, 1)).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0].ErrorCode; code != codeNotLeaderOrFollower {
			t.Errorf("OffsetForLeaderEpoch: code %d", code)
		}
		if code := c.ask(endQuestion(7)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode; code != codeNotLeaderOrFollower {
			t.Errorf("ListOffsets: code %d", code)
		}
		if code := c.ask(patientFetch(7)).(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode; code != codeNotLeaderOrFollower {
			t.Errorf("Fetch: code %d", code)
		}
		p := w.part("t", 0)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.awaited > 0 {
			t.Errorf("%d questions were held", p.awaited)
		}
	})
}

// What nobody comes to lead is refused all the same, and records of other partitions do not wait for it.
func TestAPartitionWithoutALeaderHoldsQuestionsUpToTheLimitOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.create("t", 2)
		p := w.part("t", 0)
		p.change(func(p *fakePartition) { p.leads = false })
		c := w.dial()
		start := time.Now()
		if code := c.ask(epochQuestion(1, 1)).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0].ErrorCode; code != codeNotLeaderOrFollower {
			t.Errorf("OffsetForLeaderEpoch: code %d", code)
		}
		if got := c.ask(patientFetch(1)).(*kmsg.FetchResponse); got.Topics[0].Partitions[0].ErrorCode != codeNotLeaderOrFollower {
			t.Errorf("Fetch: code %d", got.Topics[0].Partitions[0].ErrorCode)
		}
		if took := time.Since(start); took != 2*settleLimit {
			t.Errorf("two questions were held for %v in all", took)
		}
		w.fill("t", 1, 1)
		req := fetch(fetchAPI.max, "t", 0, 0)
		req.MaxWaitMillis, req.MinBytes = 60_000, 1
		got := c.ask(req).(*kmsg.FetchResponse).Topics[0].Partitions
		if got[0].ErrorCode != codeNotLeaderOrFollower || got[1].ErrorCode != codeNone || len(got[1].RecordBatches) == 0 {
			t.Errorf("codes %d and %d, %d bytes", got[0].ErrorCode, got[1].ErrorCode, len(got[1].RecordBatches))
		}
	})
}

// Metadata of a node that was elected names it, so that clients ask there and not at its predecessor; it names itself in no hint.
func TestAnElectedLeaderIsNamedInMetadataBeforeItServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.create("t", 1)
		w.part("t", 0).change(func(p *fakePartition) { p.elected, p.epoch = true, 9 })
		c := w.dial()
		got := c.metadata(metadataOf(9, false, "t")).Topics[0].Partitions[0]
		if got.ErrorCode != codeNone || got.Leader != 1 || got.LeaderEpoch != 9 {
			t.Errorf("%+v", got)
		}
		resp := c.ask(produceByID(w.ctl.Image().Topic("t").ID, 1, 0, batch("a"))).(*kmsg.ProduceResponse)
		if p := resp.Topics[0].Partitions[0]; p.CurrentLeader.LeaderID != -1 || len(resp.Brokers) != 0 {
			t.Errorf("%+v", resp)
		}
	})
}

// Who makes a topic or asks for one, writes to it at once and takes a refusal for the end, finds a leader that serves, though it was elected before that.
func TestTopicsAreAnsweredWhenTheirLeadersServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		var starts sync.WaitGroup
		t.Cleanup(starts.Wait)
		w.shape = func(p *fakePartition) {
			p.elected = true
			starts.Go(func() {
				time.Sleep(20 * time.Millisecond)
				p.change(func(p *fakePartition) { p.elected = false })
			})
		}
		c := w.dial()
		c.metadata(metadataOf(9, true, "auto"))
		c.create("made", 1)
		p := w.part("made", 0)
		for _, topic := range []string{"auto", "made", "made"} {
			resp := c.ask(produceByID(w.ctl.Image().Topic(topic).ID, 1, 0, batch("a"))).(*kmsg.ProduceResponse)
			if code := resp.Topics[0].Partitions[0].ErrorCode; code != codeNone {
				t.Errorf("%s: code %d", topic, code)
			}
			p.change(func(p *fakePartition) { p.elected = true })
			starts.Go(func() {
				time.Sleep(20 * time.Millisecond)
				p.change(func(p *fakePartition) { p.elected = false })
			})
			c.metadata(metadataOf(9, false, "made"))
		}
	})
}
