package broker

import (
	"net"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/wire"
)

// moved is a topic of one partition that node 2, at two.example:19092, leads in term 7.
func (w *world) moved() {
	w.t.Helper()
	w.register(2, "two.example", 19092)
	w.createOn("t", 1, 2)
	p := w.part("t", 0)
	p.mu.Lock()
	p.leads, p.elsewhere, p.epoch = false, 2, 7
	p.mu.Unlock()
}

func TestProduceToAFormerLeaderNamesTheNewOneFromVersionTenOn(t *testing.T) {
	w := newWorld(t)
	w.moved()
	c := w.dial()
	for v := int16(firstServedProduce); v <= produceAPI.max; v++ {
		resp := c.ask(produce(v, 1, "t", 0, batch("a"))).(*kmsg.ProduceResponse)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != codeNotLeaderOrFollower {
			t.Fatalf("version %d: code %d", v, p.ErrorCode)
		}
		if v < firstHintedProduce {
			if len(resp.Brokers) != 0 || p.CurrentLeader.LeaderID != -1 {
				t.Errorf("version %d: %+v", v, resp)
			}
			continue
		}
		if p.CurrentLeader.LeaderID != 2 || p.CurrentLeader.LeaderEpoch != 7 || len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 2 || resp.Brokers[0].Host != "two.example" || resp.Brokers[0].Port != 19092 {
			t.Errorf("version %d: %+v", v, resp)
		}
	}
}

func TestFetchFromAFormerLeaderNamesTheNewOneFromVersionSixteenOn(t *testing.T) {
	w := newWorld(t)
	w.moved()
	c := w.dial()
	for v := fetchAPI.min; v <= fetchAPI.max; v++ {
		req := fetch(v, "t", 0, 0) // there is no partition 1
		resp := c.ask(req).(*kmsg.FetchResponse)
		p, none := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1]
		if p.ErrorCode != codeNotLeaderOrFollower || none.ErrorCode != codeUnknownTopicOrPartition || none.CurrentLeader.LeaderID != -1 {
			t.Fatalf("version %d: codes %d, %d", v, p.ErrorCode, none.ErrorCode)
		}
		if v < fetchHasLeaderHint {
			if len(resp.Brokers) != 0 || p.CurrentLeader.LeaderID != -1 {
				t.Errorf("version %d: %+v", v, resp)
			}
			continue
		}
		if p.CurrentLeader.LeaderID != 2 || p.CurrentLeader.LeaderEpoch != 7 || len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 2 || resp.Brokers[0].Host != "two.example" || resp.Brokers[0].Port != 19092 {
			t.Errorf("version %d: %+v", v, resp)
		}
	}
}

func TestAFencedFetchIsToldTheNewerEpoch(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.part("t", 0).lead(true, 5)
	req := fetch(fetchAPI.max, "t", 0)
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 4
	resp := w.dial().ask(req).(*kmsg.FetchResponse)
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != codeFencedLeaderEpoch || p.CurrentLeader.LeaderID != 1 || p.CurrentLeader.LeaderEpoch != 5 || len(resp.Brokers) != 1 {
		t.Fatalf("%+v", resp)
	}
}

func TestNobodyIsNamedWhileNobodyIsKnownToLead(t *testing.T) {
	w := newWorld(t)
	w.moved()
	w.dead.Store(meta.NodeID(2), true)
	c := w.dial()
	resp := c.ask(produce(13, 1, "t", 0, batch("a"))).(*kmsg.ProduceResponse)
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != codeNotLeaderOrFollower || p.CurrentLeader.LeaderID != -1 || p.CurrentLeader.LeaderEpoch != -1 || len(resp.Brokers) != 0 {
		t.Errorf("%+v", resp)
	}
	got := c.ask(fetch(18, "t", 0)).(*kmsg.FetchResponse)
	if p := got.Topics[0].Partitions[0]; p.ErrorCode != codeNotLeaderOrFollower || p.CurrentLeader.LeaderID != -1 || p.CurrentLeader.LeaderEpoch != -1 || len(got.Brokers) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestAClientFollowsTheHintsToTheLeader asks three nodes in turn, and the one that each of them names.
func TestAClientFollowsTheHintsToTheLeader(t *testing.T) {
	c := newTrio(t)
	c.createTopic("t", 3)
	for _, n := range c.nodes {
		topic := n.ctl.Image().Topic("t")
		if topic == nil {
			eventually(t, "the node knows the topic", func() bool { topic = n.ctl.Image().Topic("t"); return topic != nil })
		}
		for number := range int32(3) {
			eventually(t, "the node's hint leads to the leader", func() bool { return c.follow(n, topic.ID, number) })
		}
	}
}

func (c *trio) follow(n *trioNode, id meta.TopicID, number int32) bool {
	ask := func(addr string) *kmsg.ProduceResponse {
		return dialAddr(c.t, addr).ask(produceByID(id, -1, number, batch("a"))).(*kmsg.ProduceResponse)
	}
	resp := ask(n.addr)
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode == codeNone {
		return true
	}
	if p.ErrorCode != codeNotLeaderOrFollower || p.CurrentLeader.LeaderID == -1 {
		return false
	}
	if p.CurrentLeader.LeaderID == int32(n.id) {
		c.t.Errorf("node %d does not lead and names itself", n.id)
	}
	b := resp.Brokers[0]
	return ask(net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))).Topics[0].Partitions[0].ErrorCode == codeNone
}

// TestAFetchAnswerIsBuiltOfFilesWithoutAllocating: what is sent of a batch is a range of a file, and naming topics by id costs
// nothing more than naming them by name.
func TestAFetchAnswerIsBuiltOfFilesWithoutAllocating(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 100, 100, 100)
	for _, version := range []int16{12, fetchAPI.max} {
		f := fetchOfWholeLog(t, w, version, 20)
		f.done = func() {}
		stored := f.parts[0].res.Slice.Bytes
		if n := testing.AllocsPerRun(200, func() { encodeFetch(f) }); n != 0 {
			t.Errorf("version %d: %v allocations an answer of 20 partitions with 3 batches each", version, n)
		}
		inFiles := 0
		for _, p := range encodeFetch(f).Pieces {
			if p.File != nil {
				inFiles += int(p.Len)
			}
		}
		if inFiles != 20*stored {
			t.Errorf("version %d: %d bytes come from files, %d are stored", version, inFiles, 20*stored)
		}
		for i := range f.parts {
			f.parts[i].res.Slice.Release()
		}
	}
}

// fetchOfWholeLog has read partition 0 of t n times.
func fetchOfWholeLog(t *testing.T, w *world, version int16, n int) *fetchCall {
	req := fetch(version, "t", make([]int64, n)...)
	w.dial().byID(req)
	f := w.broker.newFetch(&fetchAPI, &wire.Request{Key: 1, Version: version})
	f.msg = *req
	for j := range req.Topics[0].Partitions {
		res, err := w.part("t", 0).Read(partition.ReadRequest{MaxBytes: 1 << 20, CurrentEpoch: -1, LastFetchedEpoch: -1})
		if err != nil {
			t.Fatal(err)
		}
		f.parts = append(f.parts, fetchPart{in: &req.Topics[0].Partitions[j], res: res})
	}
	return f
}
