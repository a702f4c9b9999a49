package broker

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
)

func TestErrorCodesAreThoseOfKafka(t *testing.T) {
	for code, name := range codeNames {
		if code == codeNone || code == codeNotLeaderOrFollower { // renamed by Kafka after followers could be read
			continue
		}
		if e := kerr.TypedErrorForCode(code); e == nil || e.Message != name {
			t.Errorf("code %d is called %s here, %v elsewhere", code, name, e)
		}
	}
}

func listOffsetsOf(version int16, topic string, timestamp int64, epoch int32) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = version
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = timestamp, epoch
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (c *client) offset(req *kmsg.ListOffsetsRequest) kmsg.ListOffsetsResponseTopicPartition {
	c.t.Helper()
	return c.ask(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
}

func TestOffsetsAreListedByPlaceAndByTime(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	for i, ts := range []int64{1000, 3000, 2000} {
		b := record.Builder{BaseTimestamp: ts}
		c.produce(produce(9, -1, "t", 0, batchOf(b, "a", "b")))
		_ = i
	}
	w.part("t", 0).lead(true, 4)
	w.part("t", 0).start = 1
	for v := listOffsetsAPI.min; v <= listOffsetsAPI.max; v++ {
		for _, tc := range []struct {
			timestamp    int64
			offset, time int64
			epoch        int32
		}{
			{timestampLatest, 6, -1, 1},
			{timestampEarliest, 1, -1, -1},
			{1001, 1, 1001, 1},
			{2500, 2, 3000, 1},
			{3001, 3, 3001, 1},
			{4000, -1, -1, -1},
		} {
			out := c.offset(listOffsetsOf(v, "t", tc.timestamp, -1))
			if v < 4 {
				tc.epoch = -1
			}
			if out.ErrorCode != 0 || out.Offset != tc.offset || out.Timestamp != tc.time || out.LeaderEpoch != tc.epoch {
				t.Errorf("version %d timestamp %d: code %d offset %d time %d epoch %d, want %d %d %d", v, tc.timestamp, out.ErrorCode, out.Offset, out.Timestamp, out.LeaderEpoch, tc.offset, tc.time, tc.epoch)
			}
		}
	}
}

func TestLargestTimestampExistsFromVersionSevenOn(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	if out := c.offset(listOffsetsOf(7, "t", timestampMax, -1)); out.ErrorCode != 0 || out.Offset != -1 {
		t.Errorf("empty log: %+v", out)
	}
	c.produce(produce(9, -1, "t", 0, batchOf(record.Builder{BaseTimestamp: 5000}, "a", "b")))
	c.produce(produce(9, -1, "t", 0, batch("c")))
	if out := c.offset(listOffsetsOf(7, "t", timestampMax, -1)); out.ErrorCode != 0 || out.Offset != 1 || out.Timestamp != 5001 {
		t.Errorf("version 7: %+v", out)
	}
	if out := c.offset(listOffsetsOf(6, "t", timestampMax, -1)); out.ErrorCode != codeUnsupportedVersion {
		t.Errorf("version 6: code %d", out.ErrorCode)
	}
	if out := c.offset(listOffsetsOf(7, "t", -9, -1)); out.ErrorCode != codeUnsupportedVersion {
		t.Errorf("timestamp -9: code %d", out.ErrorCode)
	}
}

// TestNothingIsTiered: all of a log is on its brokers' disks, which newer clients may ask about.
func TestNothingIsTiered(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 3)
	w.part("t", 0).start = 2
	c := w.dial()
	for v := int16(1); v <= listOffsetsAPI.max; v++ {
		want := map[int64]int16{timestampLocal: codeNone, timestampTiered: codeNone, -6: codeUnsupportedVersion}
		if v < firstLocalTimestamp {
			want[timestampLocal] = codeUnsupportedVersion
		}
		if v < firstTieredTimestamp {
			want[timestampTiered] = codeUnsupportedVersion
		}
		for timestamp, code := range want {
			out := c.offset(listOffsetsOf(v, "t", timestamp, -1))
			if out.ErrorCode != code || code == codeNone && timestamp == timestampLocal && out.Offset != 2 || timestamp == timestampTiered && out.Offset != -1 {
				t.Errorf("version %d timestamp %d: %+v", v, timestamp, out)
			}
		}
	}
}

func TestListOffsetsChecksLeaderEpochsFromVersionFourOn(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.part("t", 0).lead(true, 5)
	for epoch, want := range map[int32]int16{5: 0, -1: 0, 4: codeFencedLeaderEpoch, 6: codeUnknownLeaderEpoch} {
		if out := w.dial().offset(listOffsetsOf(4, "t", timestampLatest, epoch)); out.ErrorCode != want {
			t.Errorf("epoch %d: code %d, want %d", epoch, out.ErrorCode, want)
		}
	}
}

func TestElectedLeaderWithoutACommitAnswersOffsetNotAvailable(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.part("t", 0).elected = true
	for v, want := range map[int16]int16{5: codeOffsetNotAvailable, 7: codeOffsetNotAvailable, 4: codeLeaderNotAvailable, 1: codeLeaderNotAvailable} {
		if out := w.dial().offset(listOffsetsOf(v, "t", timestampLatest, -1)); out.ErrorCode != want {
			t.Errorf("version %d: code %d, want %d", v, out.ErrorCode, want)
		}
	}
	w.part("t", 0).lead(false, 2)
	if out := w.dial().offset(listOffsetsOf(7, "t", timestampLatest, -1)); out.ErrorCode != codeNotLeaderOrFollower {
		t.Errorf("a follower: code %d", out.ErrorCode)
	}
}

// TestLatestOffsetCarriesTheEpochOfTheLogsLastTerm, and not that of the leadership, in which nothing may have been written.
func TestLatestOffsetCarriesTheEpochOfTheLogsLastTerm(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 2)
	w.part("t", 0).lead(true, 9)
	if out := w.dial().offset(listOffsetsOf(7, "t", timestampLatest, 9)); out.Offset != 2 || out.LeaderEpoch != 1 {
		t.Fatalf("%+v", out)
	}
}

func TestOffsetForLeaderEpochAnswersFromTheEpochTable(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 3)
	p := w.part("t", 0)
	if err := p.log.Append([]log.Entry{{Index: p.log.LastIndex() + 1, Term: 4, Type: 1}}); err != nil { // an epoch without records
		t.Fatal(err)
	}
	p.lead(true, 6)
	w.fill("t", 0, 2)
	for v := offsetForLeaderEpochAPI.min; v <= offsetForLeaderEpochAPI.max; v++ {
		for _, tc := range []struct {
			ask   int32
			epoch int32
			end   int64
		}{{1, 1, 3}, {3, 1, 3}, {4, 4, 3}, {5, 4, 3}, {6, 6, 5}} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.Version, req.ReplicaID = v, -1
			part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			part.LeaderEpoch = tc.ask
			topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
			topic.Topic = "t"
			topic.Partitions = append(topic.Partitions, part)
			req.Topics = append(req.Topics, topic)
			out := w.dial().ask(req).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
			if out.ErrorCode != 0 || out.LeaderEpoch != tc.epoch || out.EndOffset != tc.end {
				t.Errorf("version %d epoch %d: code %d epoch %d end %d, want %d %d", v, tc.ask, out.ErrorCode, out.LeaderEpoch, out.EndOffset, tc.epoch, tc.end)
			}
		}
	}
}

func createOf(version int16, names ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = version, 10_000
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 3, 1
		req.Topics = append(req.Topics, t)
	}
	return req
}

func TestTopicsAreCreatedDescribedGrownAndDeleted(t *testing.T) {
	w := newWorld(t)
	c := w.dial()
	value := "7777"
	req := createOf(7, "a", "b")
	cfg := kmsg.NewCreateTopicsRequestTopicConfig()
	cfg.Name, cfg.Value = "retention.ms", &value
	req.Topics[0].Configs = append(req.Topics[0].Configs, cfg)
	made := c.ask(req).(*kmsg.CreateTopicsResponse).Topics
	if made[0].ErrorCode != 0 || made[0].NumPartitions != 3 || made[0].ReplicationFactor != 1 || made[0].TopicID == (meta.TopicID{}) || len(made[0].Configs) == 0 {
		t.Fatalf("%+v", made[0])
	}
	if again := c.ask(createOf(7, "a")).(*kmsg.CreateTopicsResponse).Topics[0]; again.ErrorCode != codeTopicAlreadyExists || again.Configs == nil {
		t.Fatalf("%+v", again)
	}
	if twice := c.ask(createOf(7, "c", "c")).(*kmsg.CreateTopicsResponse).Topics; twice[0].ErrorCode != codeInvalidRequest {
		t.Fatalf("named twice: code %d", twice[0].ErrorCode)
	}
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Version, grow.TimeoutMillis = 3, 10_000
	g := kmsg.NewCreatePartitionsRequestTopic()
	g.Topic, g.Count = "a", 5
	grow.Topics = append(grow.Topics, g)
	if out := c.ask(grow).(*kmsg.CreatePartitionsResponse).Topics[0]; out.ErrorCode != 0 {
		t.Fatalf("%+v", out)
	}
	if n := len(w.ctl.Image().Topic("a").Partitions); n != 5 {
		t.Fatalf("%d partitions", n)
	}
	grow.Topics[0].Count = 2
	if out := c.ask(grow).(*kmsg.CreatePartitionsResponse).Topics[0]; out.ErrorCode != codeInvalidPartitions {
		t.Fatalf("shrinking: code %d", out.ErrorCode)
	}
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.Version, del.TimeoutMillis = 6, 10_000
	d := kmsg.NewDeleteTopicsRequestTopic()
	d.TopicID = made[0].TopicID
	del.Topics = append(del.Topics, d)
	if out := c.ask(del).(*kmsg.DeleteTopicsResponse).Topics[0]; out.ErrorCode != 0 || out.Topic == nil || *out.Topic != "a" {
		t.Fatalf("by id: %+v", out)
	}
	del.Version, del.TopicNames = 3, []string{"b", "nope"}
	out := c.ask(del).(*kmsg.DeleteTopicsResponse).Topics
	if out[0].ErrorCode != 0 || out[1].ErrorCode != codeUnknownTopicOrPartition || *out[1].Topic != "nope" {
		t.Fatalf("by name: %+v", out)
	}
}

func TestRefusedTopicConfigsSayWhy(t *testing.T) {
	w := newWorld(t)
	for key, value := range map[string]string{
		"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime", "compression.type": "gzip",
		"unclean.leader.election.enable": "true", "no.such.key": "1",
	} {
		req := createOf(7, "t")
		cfg := kmsg.NewCreateTopicsRequestTopicConfig()
		cfg.Name, cfg.Value = key, &value
		req.Topics[0].Configs = append(req.Topics[0].Configs, cfg)
		out := w.dial().ask(req).(*kmsg.CreateTopicsResponse).Topics[0]
		if out.ErrorCode != codeInvalidConfig || out.ErrorMessage == nil || !strings.Contains(*out.ErrorMessage, key) {
			t.Errorf("%s=%s: code %d, message %v", key, value, out.ErrorCode, out.ErrorMessage)
		}
	}
}

func describeOf(topic string, keys ...string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation = 4, true, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, keys
	req.Resources = append(req.Resources, r)
	return req
}

func TestTopicConfigsAreAlteredAndDescribedWithTheirSource(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	alter := func(topic, key string, op kmsg.IncrementalAlterConfigOp, value string) kmsg.IncrementalAlterConfigsResponseResource {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Version = 1
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		e.Name, e.Op, e.Value = key, op, &value
		r.Configs = append(r.Configs, e)
		req.Resources = append(req.Resources, r)
		return c.ask(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	}
	describe := func() kmsg.DescribeConfigsResponseResourceConfig {
		return c.ask(describeOf("t", "retention.ms")).(*kmsg.DescribeConfigsResponse).Resources[0].Configs[0]
	}
	if d := describe(); d.Source != kmsg.ConfigSourceDefaultConfig || *d.Value != "604800000" || len(d.ConfigSynonyms) != 1 || d.Documentation == nil {
		t.Fatalf("default: %+v", d)
	}
	if out := alter("t", "retention.ms", kmsg.IncrementalAlterConfigOpSet, "5000"); out.ErrorCode != 0 {
		t.Fatalf("%+v", out)
	}
	if d := describe(); d.Source != kmsg.ConfigSourceDynamicTopicConfig || *d.Value != "5000" || len(d.ConfigSynonyms) != 2 {
		t.Fatalf("set: %+v", d)
	}
	if out := alter("t", "retention.ms", kmsg.IncrementalAlterConfigOpDelete, ""); out.ErrorCode != 0 {
		t.Fatalf("%+v", out)
	}
	if d := describe(); d.Source != kmsg.ConfigSourceDefaultConfig {
		t.Fatalf("deleted: %+v", d)
	}
	if out := alter("t", "cleanup.policy", kmsg.IncrementalAlterConfigOpSet, "compact"); out.ErrorCode != codeInvalidConfig || out.ErrorMessage == nil {
		t.Fatalf("%+v", out)
	}
	if out := alter("t", "cleanup.policy", kmsg.IncrementalAlterConfigOpAppend, "delete"); out.ErrorCode != codeInvalidConfig {
		t.Fatalf("append: %+v", out)
	}
	if out := alter("nope", "retention.ms", kmsg.IncrementalAlterConfigOpSet, "1"); out.ErrorCode != codeUnknownTopicOrPartition {
		t.Fatalf("unknown topic: %+v", out)
	}
	if r := c.ask(describeOf("nope")).(*kmsg.DescribeConfigsResponse).Resources[0]; r.ErrorCode != codeUnknownTopicOrPartition {
		t.Fatalf("unknown topic: %+v", r)
	}
}

func TestBrokerShowsItsOwnSettingsOnly(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Settings = map[string]string{"node.id": "1"} })
	ask := func(name string) kmsg.DescribeConfigsResponseResource {
		req := describeOf(name)
		req.Resources[0].ResourceType = kmsg.ConfigResourceTypeBroker
		return w.dial().ask(req).(*kmsg.DescribeConfigsResponse).Resources[0]
	}
	if r := ask("1"); r.ErrorCode != 0 || len(r.Configs) != 1 || !r.Configs[0].ReadOnly {
		t.Errorf("%+v", r)
	}
	if r := ask("2"); r.ErrorCode != codeInvalidRequest {
		t.Errorf("%+v", r)
	}
}

func TestRecordsAreDeletedUpToTheHighWatermark(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 5)
	ask := func(offset int64) kmsg.DeleteRecordsResponseTopicPartition {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version, req.TimeoutMillis = 2, 10_000
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Offset = offset
		topic := kmsg.NewDeleteRecordsRequestTopic()
		topic.Topic = "t"
		topic.Partitions = append(topic.Partitions, p)
		req.Topics = append(req.Topics, topic)
		return w.dial().ask(req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
	}
	if out := ask(3); out.ErrorCode != 0 || out.LowWatermark != 3 {
		t.Errorf("%+v", out)
	}
	if out := w.dial().fetch(fetch(12, "t", 2))[0]; out.ErrorCode != codeOffsetOutOfRange {
		t.Errorf("below the log start: code %d", out.ErrorCode)
	}
	if out := ask(6); out.ErrorCode != codeOffsetOutOfRange {
		t.Errorf("above the high watermark: %+v", out)
	}
	if out := ask(-1); out.ErrorCode != 0 || out.LowWatermark != 5 {
		t.Errorf("all: %+v", out)
	}
	w.part("t", 0).lead(false, 2)
	if out := ask(-1); out.ErrorCode != codeNotLeaderOrFollower {
		t.Errorf("a follower: %+v", out)
	}
}

func TestLogDirsShowTheReplicasOfThisNode(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.create("u", 1)
	w.fill("t", 1, 5)
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version = 4
	dir := w.dial().ask(req).(*kmsg.DescribeLogDirsResponse).Dirs[0]
	if dir.Dir != "data" || len(dir.Topics) != 2 || len(dir.Topics[0].Partitions) != 2 || dir.Topics[0].Partitions[1].Size == 0 {
		t.Fatalf("%+v", dir)
	}
	one := kmsg.NewDescribeLogDirsRequestTopic()
	one.Topic, one.Partitions = "t", []int32{1}
	req.Topics = append(req.Topics, one)
	if dir = w.dial().ask(req).(*kmsg.DescribeLogDirsResponse).Dirs[0]; len(dir.Topics) != 1 || len(dir.Topics[0].Partitions) != 1 {
		t.Fatalf("%+v", dir)
	}
}

func TestProducerIDsAreNeverHandedOutTwice(t *testing.T) {
	w := newWorld(t)
	seen := map[int64]bool{}
	c := w.dial()
	for i := range 300 {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version = int16(i % 5)
		if i%3 == 0 {
			req.ProducerID, req.ProducerEpoch = 5, 2 // one that it had before
		}
		resp := c.ask(req).(*kmsg.InitProducerIDResponse)
		if resp.ErrorCode != 0 || resp.ProducerEpoch != 0 || seen[resp.ProducerID] {
			t.Fatalf("%+v", resp)
		}
		seen[resp.ProducerID] = true
	}
	id := "txn"
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID = 4, &id
	if resp := c.ask(req).(*kmsg.InitProducerIDResponse); resp.ErrorCode != codeNotCoordinator {
		t.Fatalf("%+v", resp) // nobody is, before somebody asked who
	}
}

func TestGroupsAndTransactionsHaveCoordinatorsAndOtherThingsNone(t *testing.T) {
	w := newWorld(t)
	for v := findCoordinatorAPI.min; v <= findCoordinatorAPI.max; v++ {
		for kind, want := range []int16{codeNone, codeNone, codeInvalidRequest} {
			if v == 0 && kind > 0 {
				continue // asks about groups only
			}
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.Version, req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = v, int8(kind), "g", []string{"g", "h"}
			resp := w.dial().ask(req).(*kmsg.FindCoordinatorResponse)
			code, node := resp.ErrorCode, resp.NodeID
			if v >= 4 {
				if len(resp.Coordinators) != 2 {
					t.Fatalf("version %d: %+v", v, resp)
				}
				code, node = resp.Coordinators[1].ErrorCode, resp.Coordinators[1].NodeID
			}
			if code != want || code == codeNone && node != 1 {
				t.Errorf("version %d type %d: code %d node %d", v, kind, code, node)
			}
		}
	}
}
