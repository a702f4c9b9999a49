package broker

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
)

// coordinate makes this broker the coordinator of all groups.
func (w *world) coordinate() {
	w.t.Helper()
	topic, err := w.groups.Ensure(timeout(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	for n := range topic.Partitions {
		w.part(coordinator.OffsetsTopic, int32(n))
	}
}

func isGroupAPI(key int16) bool {
	return slices.Contains([]int16{8, 9, 11, 12, 13, 14, 15, 16, 42, 47}, key)
}

// groupQuestion is one request to an API of groups. Each version asks about a group of its own.
func groupQuestion(key, version int16) kmsg.Request {
	id := fmt.Sprint("g", version)
	instance := "i"
	switch key {
	case 8:
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group = id
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = "t"
		for i := range int32(3) { // the last one is not there
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch = i, 5, 2
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
		return req
	case 9:
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group, req.RequireStable = id, true
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = "t", []int32{0, 1}
		req.Topics = append(req.Topics, t)
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = id
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = "t", []int32{0, 1}
		g.Topics = append(g.Topics, gt)
		req.Groups = append(req.Groups, g)
		return req
	case 11:
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = id, 10_000, 10_000, "consumer"
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = "range", []byte("topics")
		req.Protocols = append(req.Protocols, p)
		if version >= 5 {
			req.InstanceID = &instance
		}
		return req
	case 12:
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID = id, "stranger"
		return req
	case 13:
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group, req.MemberID = id, "stranger"
		m := kmsg.NewLeaveGroupRequestMember()
		m.InstanceID = &instance
		req.Members = append(req.Members, m)
		return req
	case 14:
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.MemberID = id, "stranger"
		return req
	case 15:
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{id, "nope"}
		return req
	case 42:
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{id}
		return req
	case 47:
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = id
		return req
	}
	return kmsg.RequestForKey(key)
}

// withIDs adds the ids of the topics that a request about offsets names.
func (w *world) withIDs(req kmsg.Request) kmsg.Request {
	id := func(name string) (id meta.TopicID) {
		if t := w.ctl.Image().Topic(name); t != nil {
			id = t.ID
		}
		return id
	}
	switch r := req.(type) {
	case *kmsg.OffsetCommitRequest:
		for i := range r.Topics {
			r.Topics[i].TopicID = id(r.Topics[i].Topic)
		}
	case *kmsg.TxnOffsetCommitRequest:
		for i := range r.Topics {
			r.Topics[i].TopicID = id(r.Topics[i].Topic)
		}
	case *kmsg.OffsetFetchRequest:
		for i := range r.Groups {
			for j := range r.Groups[i].Topics {
				r.Groups[i].Topics[j].TopicID = id(r.Groups[i].Topics[j].Topic)
			}
		}
	}
	return req
}

func commitOf(id string, number int32, offset int64, metadata string) *kmsg.OffsetCommitRequest {
	req := groupQuestion(8, 8).(*kmsg.OffsetCommitRequest)
	req.Version, req.Group, req.Generation = 8, id, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = number, offset, &metadata
	req.Topics[0].Partitions = []kmsg.OffsetCommitRequestTopicPartition{p}
	return req
}

func TestOffsetsOfPartitionsThatDoNotExistAreRefusedAndTheOthersCommitted(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinate()
	c := w.dial()
	commit := commitOf("g", 0, 7, "here")
	for _, bad := range []*kmsg.OffsetCommitRequest{commitOf("g", 2, 7, ""), commitOf("g", 1, 7, strings.Repeat("x", coordinator.MaxMetadata+1))} {
		commit.Topics[0].Partitions = append(commit.Topics[0].Partitions, bad.Topics[0].Partitions...)
	}
	got := c.ask(commit).(*kmsg.OffsetCommitResponse).Topics[0].Partitions
	for i, want := range []int16{codeNone, codeUnknownTopicOrPartition, codeOffsetMetadataTooLarge} {
		if got[i].ErrorCode != want {
			t.Errorf("partition %d: code %d, want %d", got[i].Partition, got[i].ErrorCode, want)
		}
	}
	for v := offsetFetchAPI.min; v <= offsetFetchAPI.max; v++ {
		req := groupQuestion(9, v).(*kmsg.OffsetFetchRequest)
		req.Version, req.Group, req.Groups[0].Group = v, "g", "g"
		if v >= 2 {
			req.Topics, req.Groups[0].Topics = nil, nil // all that have one
		}
		resp := c.ask(req).(*kmsg.OffsetFetchResponse)
		if v >= firstOffsetFetchGroups {
			p := resp.Groups[0].Topics[0].Partitions
			if p[0].Offset != 7 || *p[0].Metadata != "here" || len(p) != 1 {
				t.Errorf("version %d: %+v", v, p)
			}
			continue
		}
		p := resp.Topics[0].Partitions
		if p[0].Offset != 7 || *p[0].Metadata != "here" || v >= 2 && len(p) != 1 || v < 2 && p[1].Offset != -1 {
			t.Errorf("version %d: %+v", v, p)
		}
	}
}

func TestClientsCannotTouchTheCoordinatorsTopic(t *testing.T) {
	w := newWorld(t)
	w.coordinate()
	c := w.dial()
	if p := c.produce(produce(9, 1, coordinator.OffsetsTopic, 0, batch("x"))); p.ErrorCode != codeInvalidTopic {
		t.Errorf("produce: code %d", p.ErrorCode)
	}
	results, err := w.ctl.DeleteTopics(timeout(t), []meta.TopicRef{{Name: coordinator.OffsetsTopic}})
	if err != nil || codeOf(results[0].Err) != codeInvalidTopic {
		t.Errorf("delete: %v %v", results, err)
	}
}

// consume reads n records as a member of a group, commits and leaves.
func consume(t *testing.T, ctx context.Context, addr, id, topic string, n int, opts ...kgo.Opt) map[string]int {
	t.Helper()
	opts = append([]kgo.Opt{kgo.SeedBrokers(strings.Split(addr, ",")...), kgo.ConsumerGroup(id), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(200 * time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, opts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	seen := map[string]int{}
	for total := 0; total < n; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++; total++ })
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	return seen
}

func fill(t *testing.T, ctx context.Context, addr, topic string, from, to int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addr, ",")...), kgo.DefaultProduceTopic(topic), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := from; i < to; i++ {
		cl.Produce(ctx, &kgo.Record{Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestFranzGoGroupsGoOnWhereTheyLeft(t *testing.T) {
	w := newWorld(t)
	w.create("t", 3)
	ctx := timeout(t)
	fill(t, ctx, w.addr, "t", 0, 300)
	if seen := consume(t, ctx, w.addr, "g", "t", 300); len(seen) != 300 {
		t.Fatalf("%d different records", len(seen))
	}
	fill(t, ctx, w.addr, "t", 300, 330)
	seen := consume(t, ctx, w.addr, "g", "t", 30, kgo.Balancers(kgo.RangeBalancer()))
	if seen["300"] != 1 || seen["0"] != 0 || len(seen) != 30 {
		t.Fatalf("%d different records", len(seen))
	}
	consume(t, ctx, w.addr, "static", "t", 330, kgo.InstanceID("one"))
	adm := kadm.NewClient(franz(t, w.addr))
	offsets, err := adm.FetchOffsets(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
	if sum != 330 {
		t.Fatalf("committed offsets add up to %d", sum)
	}
	described, err := adm.DescribeGroups(ctx, "g", "static", "nobody")
	if err != nil || described["g"].State != "Empty" || described["static"].State != "Stable" || described["nobody"].State != "Dead" {
		t.Fatalf("%v %v", described, err)
	}
	listed, err := adm.ListGroups(ctx)
	if err != nil || len(listed) != 2 {
		t.Fatalf("%v %v", listed, err)
	}
	deleted, err := adm.DeleteGroups(ctx, "g", "static")
	if err != nil || deleted["g"].Err != nil || deleted["static"].Err == nil {
		t.Fatalf("%v %v", deleted, err)
	}
}

func TestKcatConsumesAsAGroup(t *testing.T) {
	kc := kcat(t)
	w := newWorld(t)
	w.create("t", 2)
	fill(t, timeout(t), w.addr, "t", 0, 100)
	out := run(t, "", kc, "-b", w.addr, "-X", "auto.offset.reset=earliest", "-c", "100", "-q", "-G", "kc", "t")
	if n := strings.Count(out, "\n"); n != 100 {
		t.Fatalf("%d lines", n)
	}
}

const confluentGroupScript = `
import sys
from confluent_kafka import Consumer
addr, topic, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
c = Consumer({"bootstrap.servers": addr, "group.id": "py", "enable.auto.commit": False, "auto.offset.reset": "earliest"})
c.subscribe([topic])
for i in range(n):
    m = c.poll(15)
    assert m is not None and not m.error(), m and m.error()
c.commit(asynchronous=False)
c.close()
print("ok")
`

func TestConfluentPythonConsumesAsAGroup(t *testing.T) {
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "import confluent_kafka").CombinedOutput(); err != nil {
		t.Skipf("%s has no confluent_kafka (Debian package python3-confluent-kafka): %s", python, out)
	}
	w := newWorld(t)
	w.create("t", 2)
	fill(t, timeout(t), w.addr, "t", 0, 100)
	if out := run(t, "", python, "-c", confluentGroupScript, w.addr, "t", "60"); strings.TrimSpace(out) != "ok" {
		t.Fatal(out)
	}
	if out := run(t, "", python, "-c", confluentGroupScript, w.addr, "t", "40"); strings.TrimSpace(out) != "ok" {
		t.Fatal(out)
	}
}
