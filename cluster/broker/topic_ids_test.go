package broker

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/engine/record"
)

// produceByID is a request that names its topic by id.
func produceByID(id meta.TopicID, acks int16, number int32, records []byte) *kmsg.ProduceRequest {
	req := produce(firstProduceByID, acks, "", number, records)
	req.Topics[0].TopicID = id
	return req
}

func fetchByID(version int16, id meta.TopicID, offsets ...int64) *kmsg.FetchRequest {
	req := fetch(version, "", offsets...)
	req.Topics[0].TopicID = id
	return req
}

func (w *world) delete(name string) {
	w.t.Helper()
	if res, err := w.ctl.DeleteTopics(timeout(w.t), []meta.TopicRef{{Name: name}}); err != nil || res[0].Err != nil {
		w.t.Fatal(err, res)
	}
}

func TestADeletedAndRecreatedTopicIsNeitherReadNorWrittenUnderItsOldID(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	old := w.idOf("t")
	w.fill("t", 0, 3)
	w.delete("t")
	w.create("t", 1)
	w.fill("t", 0, 1)
	c := w.dial()
	for v := int16(fetchNamesByID); v <= fetchAPI.max; v++ {
		resp := c.ask(fetchByID(v, old, 0)).(*kmsg.FetchResponse)
		if p := resp.Topics[0].Partitions[0]; resp.Topics[0].TopicID != old || p.ErrorCode != codeUnknownTopicID || len(p.RecordBatches) != 0 || p.HighWatermark != -1 {
			t.Errorf("Fetch %d by the old id: %+v", v, p)
		}
		if n := len(batches(t, c.fetch(fetch(v, "t", 0))[0].RecordBatches)); n != 1 {
			t.Errorf("Fetch %d by the new id: %d batches", v, n)
		}
	}
	if p := c.produce(produceByID(old, -1, 0, batch("late"))); p.ErrorCode != codeUnknownTopicID || p.BaseOffset != -1 {
		t.Errorf("Produce by the old id: %+v", p)
	}
	if end := w.part("t", 0).EndOffset(); end != 1 {
		t.Fatalf("the new topic ends at %d, one record was written to it", end)
	}
}

func TestAFetchParkedOnATopicThatIsDeletedSeesNothingOfTheNextOne(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	req := fetchByID(fetchAPI.max, w.idOf("t"), 0)
	req.MaxWaitMillis = 15_000
	c.send(req)
	p := w.part("t", 0)
	eventually(t, "the fetch is parked", func() bool { return p.parked() == 1 })
	w.delete("t")
	w.create("t", 1)
	w.fill("t", 0, 5)
	if p.parked() != 1 {
		t.Fatal("records of the next topic woke the fetch")
	}
	p.lead(false, 1) // the replica is dropped
	got := c.receive(req).(*kmsg.FetchResponse)
	if out := got.Topics[0].Partitions[0]; out.ErrorCode != codeNotLeaderOrFollower || len(out.RecordBatches) != 0 || out.CurrentLeader.LeaderID != -1 || len(got.Brokers) != 0 {
		t.Fatalf("%+v", out)
	}
}

// leftover hands out a replica of an older creation of a topic, as a node does that has yet to drop it.
type leftover struct{ p Partition }

func (l leftover) Get(string, int32) (Partition, error) { return l.p, nil }

func TestANodeThatStillCarriesAnotherCreationOfATopicServesNeither(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	old := w.idOf("t")
	w.fill("t", 0, 3)
	w.broker.cfg.Partitions = leftover{w.part("t", 0)}
	w.delete("t")
	w.create("t", 1)
	c := w.dial()
	for id, want := range map[meta.TopicID]int16{old: codeUnknownTopicID, w.idOf("t"): codeInconsistentTopicID} {
		if p := c.produce(produceByID(id, -1, 0, batch("a"))); p.ErrorCode != want {
			t.Errorf("Produce 13: code %d, want %d", p.ErrorCode, want)
		}
		if p := c.fetch(fetchByID(fetchAPI.max, id, 0))[0]; p.ErrorCode != want || len(p.RecordBatches) != 0 {
			t.Errorf("Fetch %d: code %d, want %d", fetchAPI.max, p.ErrorCode, want)
		}
	}
	if p := c.produce(produce(12, -1, "t", 0, batch("a"))); p.ErrorCode != codeNotLeaderOrFollower {
		t.Errorf("Produce 12: code %d", p.ErrorCode)
	}
	if p := c.fetch(fetch(12, "t", 0))[0]; p.ErrorCode != codeNotLeaderOrFollower {
		t.Errorf("Fetch 12: code %d", p.ErrorCode)
	}
}

func TestATopicIDThatWasNeverGivenIsUnknown(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	for _, id := range []meta.TopicID{{}, {1, 2, 3}} {
		if p := c.produce(produceByID(id, 1, 0, batch("a"))); p.ErrorCode != codeUnknownTopicID {
			t.Errorf("Produce to %x: code %d", id, p.ErrorCode)
		}
		if p := c.fetch(fetchByID(13, id, 0))[0]; p.ErrorCode != codeUnknownTopicID {
			t.Errorf("Fetch of %x: code %d", id, p.ErrorCode)
		}
	}
	for _, number := range []int32{-1, 1} {
		if p := c.produce(produce(13, 1, "t", number, batch("a"))); p.ErrorCode != codeUnknownTopicOrPartition {
			t.Errorf("Produce to partition %d: code %d", number, p.ErrorCode)
		}
	}
}

func TestWhatFollowersSayOfThemselvesIsIgnored(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 2)
	for v := int16(15); v <= fetchAPI.max; v++ {
		req := fetch(v, "t", 0)
		req.ReplicaState.ID, req.ReplicaState.Epoch = 2, 77
		p := &req.Topics[0].Partitions[0]
		p.ReplicaDirectoryID, p.HighWatermark = [16]byte{9}, 1
		if out := w.dial().fetch(req)[0]; out.ErrorCode != 0 || len(batches(t, out.RecordBatches)) != 1 {
			t.Errorf("version %d: %+v", v, out)
		}
	}
}

// creations writes to every topic id that a name ever had, and reads them, at all three nodes and all the time. A record says
// which id it was written under.
type creations struct {
	c    *trio
	stop chan struct{}
	wg   sync.WaitGroup

	written, read atomic.Int64
	refused       [3]atomic.Int64 // answers UNKNOWN_TOPIC_ID of each node to the newest creation but one
	last          atomic.Pointer[meta.TopicID]
}

func (x *creations) ask(n *trioNode, cl *client, id meta.TopicID) error {
	b := produceByID(id, -1, 0, batchOf(record.Builder{BaseTimestamp: 1}, string(id[:])))
	b.TimeoutMillis = 2000
	for _, req := range []kmsg.Request{b, fetchByID(fetchAPI.max, id, 0)} {
		cl.send(req)
		raw, err := cl.tryRaw()
		if err != nil {
			return err
		}
		resp := req.ResponseKind()
		resp.SetVersion(req.GetVersion())
		if err := resp.ReadFrom(raw[5:]); err != nil {
			return err
		}
		switch resp := resp.(type) {
		case *kmsg.ProduceResponse:
			switch resp.Topics[0].Partitions[0].ErrorCode {
			case codeNone:
				x.written.Add(1)
			case codeUnknownTopicID:
				if last := x.last.Load(); last != nil && *last == id {
					x.refused[n.id-1].Add(1)
				}
			}
		case *kmsg.FetchResponse:
			x.check(id, resp.Topics[0].Partitions[0].RecordBatches)
		}
	}
	return nil
}

// check holds what was read under an id against what is in it.
func (x *creations) check(id meta.TopicID, b []byte) {
	for len(b) > 0 {
		one, rest, err := record.Parse(b)
		if err != nil {
			return // the answer ends within a batch
		}
		if x.read.Add(1); !bytes.Contains(one, id[:]) {
			x.c.t.Errorf("a batch was read under the id %x that was written under another one: %q", id, one)
		}
		b = rest
	}
}

func (x *creations) start(id meta.TopicID) {
	for _, n := range x.c.nodes {
		cl := dialAddr(x.c.t, n.addr)
		x.wg.Go(func() {
			for {
				select {
				case <-x.stop:
					return
				default:
				}
				if err := x.ask(n, cl, id); err != nil {
					x.c.t.Errorf("node %d: %v", n.id, err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

func TestThreeNodesKeepTheCreationsOfATopicApart(t *testing.T) {
	c := newTrio(t)
	x := &creations{c: c, stop: make(chan struct{})}
	defer func() { close(x.stop); x.wg.Wait() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		ctl := c.nodes[round%3].ctl
		res, err := ctl.CreateTopics(ctx, []meta.TopicSpec{{Name: "t", Partitions: 1, ReplicationFactor: 3}}, false)
		if err != nil || res[0].Err != nil {
			t.Fatal(err, res)
		}
		id := res[0].ID
		x.start(id)
		want := x.written.Load() + 20
		eventually(t, fmt.Sprintf("creation %d takes records", round), func() bool { return x.written.Load() >= want })
		if old := x.last.Load(); old != nil {
			for i := range x.refused {
				eventually(t, fmt.Sprintf("node %d knows no more of creation %d", i+1, round-1), func() bool { return x.refused[i].Load() >= 3 })
				x.refused[i].Store(0)
			}
		}
		x.last.Store(&id)
		if round < rounds-1 {
			if res, err := ctl.DeleteTopics(ctx, []meta.TopicRef{{ID: id}}); err != nil || res[0].Err != nil {
				t.Fatal(err, res)
			}
		}
	}
	t.Logf("%d creations: %d records written, %d read", rounds, x.written.Load(), x.read.Load())
}
