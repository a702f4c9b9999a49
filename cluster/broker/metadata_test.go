package broker

import (
	"maps"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

func metadataOf(version int16, allow bool, topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = version, allow
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req
}

func (c *client) metadata(req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	c.t.Helper()
	return c.ask(req).(*kmsg.MetadataResponse)
}

func TestMetadataOfAllTopicsAndOfNone(t *testing.T) {
	w := newWorld(t)
	w.create("a", 1)
	w.create("b", 2)
	for v := int16(0); v <= metadataAPI.max; v++ {
		all := metadataOf(v, false)
		if v > 0 {
			all.Topics = nil
		}
		if resp := w.dial().metadata(all); len(resp.Topics) != 2 || *resp.Topics[1].Topic != "b" || len(resp.Topics[1].Partitions) != 2 {
			t.Fatalf("version %d: %d topics, want a and b", v, len(resp.Topics))
		}
		if resp := w.dial().metadata(metadataOf(v, false)); v > 0 && len(resp.Topics) != 0 {
			t.Fatalf("version %d: an empty list brings %d topics, want none", v, len(resp.Topics))
		}
	}
}

func TestMetadataCreatesTopicsThatClientsAskFor(t *testing.T) {
	w := newWorld(t)
	for v := int16(0); v <= metadataAPI.max; v++ {
		name := "auto" + strconv.Itoa(int(v))
		if resp := w.dial().metadata(metadataOf(v, true, name)); resp.Topics[0].ErrorCode != 0 || len(resp.Topics[0].Partitions) != 1 {
			t.Errorf("version %d: code %d, %d partitions", v, resp.Topics[0].ErrorCode, len(resp.Topics[0].Partitions))
		}
	}
	resp := w.dial().metadata(metadataOf(9, false, "not-made"))
	if resp.Topics[0].ErrorCode != codeUnknownTopicOrPartition || w.ctl.Image().Topic("not-made") != nil {
		t.Errorf("code %d although the client did not allow it", resp.Topics[0].ErrorCode)
	}
	resp = w.dial().metadata(metadataOf(9, true, "no such name"))
	if resp.Topics[0].ErrorCode != codeInvalidTopic {
		t.Errorf("code %d for an illegal name", resp.Topics[0].ErrorCode)
	}
}

func TestAutoCreationCanBeSwitchedOff(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.NoAutoCreate = true })
	if resp := w.dial().metadata(metadataOf(3, true, "x")); resp.Topics[0].ErrorCode != codeUnknownTopicOrPartition {
		t.Fatalf("code %d", resp.Topics[0].ErrorCode)
	}
}

func TestPartitionWithoutLeaderIsNotAvailable(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.part("t", 0).lead(false, 0)
	p := w.dial().metadata(metadataOf(12, false, "t")).Topics[0].Partitions[0]
	if p.ErrorCode != codeLeaderNotAvailable || p.Leader != -1 {
		t.Fatalf("%+v", p)
	}
}

func TestTopicIDsAreStableAndDifferBetweenCreations(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	first := w.dial().metadata(metadataOf(12, false, "t")).Topics[0].TopicID
	if again := w.dial().metadata(metadataOf(10, false, "t")).Topics[0].TopicID; again != first || first == (meta.TopicID{}) {
		t.Fatalf("id %x, then %x", first, again)
	}
	byID := metadataOf(12, false)
	asked := kmsg.NewMetadataRequestTopic()
	asked.TopicID = first
	byID.Topics = append(byID.Topics, asked)
	if got := w.dial().metadata(byID).Topics[0]; got.ErrorCode != 0 || *got.Topic != "t" {
		t.Fatalf("by id: %+v", got)
	}
	if _, err := w.ctl.DeleteTopics(timeout(t), []meta.TopicRef{{Name: "t"}}); err != nil {
		t.Fatal(err)
	}
	w.create("t", 1)
	if second := w.dial().metadata(metadataOf(12, false, "t")).Topics[0].TopicID; second == first {
		t.Fatal("the second creation has the id of the first")
	}
	if got := w.dial().metadata(byID).Topics[0]; got.ErrorCode != codeUnknownTopicID {
		t.Fatalf("the old id: code %d, want UNKNOWN_TOPIC_ID", got.ErrorCode)
	}
}

func TestLeaderEpochIsTheNewerOfImageAndReplica(t *testing.T) {
	w := newWorld(t)
	w.register(2, "two", 9999)
	w.createOn("t", 1, 2)
	id := w.ctl.Image().Topic("t").ID
	p := w.part("t", 0)
	p.lead(true, 7)
	if got := w.dial().metadata(metadataOf(7, false, "t")).Topics[0].Partitions[0]; got.LeaderEpoch != 7 || got.Leader != 1 {
		t.Fatalf("own replica is newer: %+v", got)
	}
	w.ctl.PublishLeaders([]meta.LeaderUpdate{{Topic: id, Partition: 0, Leader: 2, Term: 9, ISR: []meta.NodeID{1, 2}}})
	eventually(t, "the image shows the leader", func() bool { return w.ctl.Image().Topic("t").Partitions[0].Term == 9 })
	if got := w.dial().metadata(metadataOf(7, false, "t")).Topics[0].Partitions[0]; got.LeaderEpoch != 9 || got.Leader != 2 || len(got.ISR) != 2 {
		t.Fatalf("image is newer: %+v", got)
	}
	p.mu.Lock()
	p.leads, p.elsewhere, p.epoch = false, 0, 30 // a candidate in term 30
	p.mu.Unlock()
	if got := w.dial().metadata(metadataOf(7, false, "t")).Topics[0].Partitions[0]; got.LeaderEpoch != 9 {
		t.Fatalf("a candidate's term was told: %+v", got)
	}
}

func (w *world) register(id meta.NodeID, host string, port int32) {
	w.t.Helper()
	err := w.ctl.RegisterBroker(timeout(w.t), meta.Broker{ID: id, Host: host, Port: port, RPCAddr: "10.0.0.2:9093", Incarnation: 1, Session: 1})
	if err != nil {
		w.t.Fatal(err)
	}
}

// createOn creates a topic of one partition on the given nodes.
func (w *world) createOn(name string, nodes ...meta.NodeID) {
	w.t.Helper()
	spec := meta.TopicSpec{Name: name, Partitions: -1, ReplicationFactor: -1, Assignments: [][]meta.NodeID{nodes}}
	if res, err := w.ctl.CreateTopics(timeout(w.t), []meta.TopicSpec{spec}, false); err != nil || res[0].Err != nil {
		w.t.Fatal(err, res)
	}
}

func TestBrokersThatAreDownAreNotListedAndLeadNothing(t *testing.T) {
	w := newWorld(t)
	w.register(2, "two", 9999)
	w.createOn("t", 1, 2)
	w.part("t", 0).lead(false, 1)
	w.ctl.PublishLeaders([]meta.LeaderUpdate{{Topic: w.ctl.Image().Topic("t").ID, Leader: 2, Term: 3, ISR: []meta.NodeID{2}}})
	eventually(t, "the image shows the leader", func() bool { return w.ctl.Image().Topic("t").Partitions[0].Term == 3 })
	if resp := w.dial().metadata(metadataOf(12, false, "t")); len(resp.Brokers) != 2 || resp.Topics[0].Partitions[0].Leader != 2 {
		t.Fatalf("%+v", resp)
	}
	w.dead.Store(meta.NodeID(2), true)
	resp := w.dial().metadata(metadataOf(12, false, "t"))
	if p := resp.Topics[0].Partitions[0]; len(resp.Brokers) != 1 || p.Leader != -1 || p.ErrorCode != codeLeaderNotAvailable {
		t.Fatalf("%+v", resp)
	}
}

func TestNodeThatIsCutOffListsAllBrokersSoThatClientsFindTheOthers(t *testing.T) {
	w := newWorld(t)
	w.register(2, "two", 9999)
	w.register(3, "three", 9999)
	w.dead.Store(meta.NodeID(3), true)
	if resp := w.dial().metadata(metadataOf(12, false)); len(resp.Brokers) != 2 {
		t.Fatalf("with one of three down: %+v", resp.Brokers)
	}
	w.dead.Store(meta.NodeID(2), true)
	if resp := w.dial().metadata(metadataOf(12, false)); len(resp.Brokers) != 3 {
		t.Fatalf("cut off from two of three: %+v", resp.Brokers)
	}
}

func TestNodeThatSteppedDownDoesNotCallItselfTheLeader(t *testing.T) {
	w := newWorld(t)
	w.createOn("t", 1)
	w.part("t", 0).lead(true, 3)
	w.ctl.PublishLeaders([]meta.LeaderUpdate{{Topic: w.ctl.Image().Topic("t").ID, Leader: 1, Term: 3, ISR: []meta.NodeID{1}}})
	eventually(t, "the image shows the leader", func() bool { return w.ctl.Image().Topic("t").Partitions[0].Term == 3 })
	if p := w.dial().metadata(metadataOf(12, false, "t")).Topics[0].Partitions[0]; p.Leader != 1 {
		t.Fatalf("while it leads: %+v", p)
	}
	w.part("t", 0).lead(false, 3)
	if p := w.dial().metadata(metadataOf(12, false, "t")).Topics[0].Partitions[0]; p.Leader != -1 || p.ErrorCode != codeLeaderNotAvailable {
		t.Fatalf("after it stepped down, while the image names it: %+v", p)
	}
}

func TestNodeThatAdvertisesNothingIsToldByTheAddressThatReachedIt(t *testing.T) {
	w := newWorld(t)
	_, port, _ := net.SplitHostPort(w.addr)
	resp := w.dial().metadata(metadataOf(12, false))
	if b := resp.Brokers[0]; b.Host != "127.0.0.1" || strconv.Itoa(int(b.Port)) != port || *b.Rack != "r1" {
		t.Fatalf("told %s:%d, reached by %s", b.Host, b.Port, w.addr)
	}
	w.register(2, "", 9092)
	if b := w.dial().metadata(metadataOf(12, false)).Brokers[1]; b.Host != "10.0.0.2" || b.Port != 9092 {
		t.Fatalf("another node without an advertised address is told as %s:%d", b.Host, b.Port)
	}
	w.register(2, "public.example", 19092)
	if b := w.dial().metadata(metadataOf(12, false)).Brokers[1]; b.Host != "public.example" || b.Port != 19092 {
		t.Fatalf("a node that advertises is told as %s:%d", b.Host, b.Port)
	}
}

func TestClusterIsDescribed(t *testing.T) {
	w := newWorld(t)
	resp := w.dial().ask(kmsg.NewPtrDescribeClusterRequest()).(*kmsg.DescribeClusterResponse)
	if resp.ClusterID != w.ctl.Image().ClusterID || resp.ControllerID != 1 || len(resp.Brokers) != 1 {
		t.Fatalf("%+v", resp)
	}
}

func TestClusterListsBrokersThatAreDownOnlyToWhoAsksForThem(t *testing.T) {
	w := newWorld(t)
	w.register(2, "two.example", 9092)
	w.register(3, "three.example", 9092)
	w.dead.Store(meta.NodeID(3), true)
	for _, fenced := range []bool{false, true} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.IncludeFencedBrokers = 2, fenced
		got := map[int32]bool{}
		for _, br := range w.dial().ask(req).(*kmsg.DescribeClusterResponse).Brokers {
			got[br.NodeID] = br.IsFenced
		}
		if want := map[int32]bool{1: false, 2: false}; !fenced && !maps.Equal(got, want) {
			t.Errorf("node 3 is down: listed and fenced %v", got)
		}
		if want := map[int32]bool{1: false, 2: false, 3: true}; fenced && !maps.Equal(got, want) {
			t.Errorf("node 3 is down and asked for: listed and fenced %v", got)
		}
	}
}

func TestControllersHaveNoEndpointsToDescribe(t *testing.T) {
	w := newWorld(t)
	for kind, want := range map[int8]int16{1: codeNone, 2: codeMismatchedEndpointType, 3: codeUnsupportedEndpointType} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.EndpointType = 1, kind
		if resp := w.dial().ask(req).(*kmsg.DescribeClusterResponse); resp.ErrorCode != want || resp.EndpointType != kind || (resp.ErrorMessage == nil) != (want == codeNone) {
			t.Errorf("endpoints of kind %d: %+v", kind, resp)
		}
	}
}

func TestClientOfAnotherClusterOrNodeIsToldToBootstrapAnew(t *testing.T) {
	w := newWorld(t)
	own, other := w.ctl.Image().ClusterID, "another"
	for _, c := range []struct {
		cluster *string
		node    int32
		want    int16
	}{{nil, -1, codeNone}, {&own, 1, codeNone}, {&own, 2, codeRebootstrapRequired}, {&other, 1, codeRebootstrapRequired},
		{&own, -1, codeInvalidRequest}, {nil, 1, codeInvalidRequest}} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClusterID, req.NodeID = 5, c.cluster, c.node
		if resp := w.dial().ask(req).(*kmsg.ApiVersionsResponse); resp.ErrorCode != c.want || len(resp.ApiKeys) == 0 {
			t.Errorf("%+v: code %d", c, resp.ErrorCode)
		}
	}
}

// TestOlderClientsAreNotToldOfAFeatureVersionZero: Java's refuse the whole answer (Kafka mended that by ApiVersions 4).
func TestOlderClientsAreNotToldOfAFeatureVersionZero(t *testing.T) {
	w := newWorld(t)
	for v, want := range map[int16]int16{3: 1, 4: 0, 5: 0} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = v
		if f := w.dial().ask(req).(*kmsg.ApiVersionsResponse).SupportedFeatures; len(f) != 1 || f[0].MinVersion != want || f[0].MaxVersion != 2 {
			t.Errorf("version %d: %+v", v, f)
		}
	}
}

func TestNewerApiVersionsIsAnsweredInVersionZero(t *testing.T) {
	w := newWorld(t)
	c := w.dial()
	req := kmsg.NewPtrApiVersionsRequest()
	for _, v := range []int16{apiVersionsAPI.max + 1, apiVersionsAPI.max + 2} {
		req.Version = v
		c.send(req)
		b := c.raw()[4:]
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(b); err != nil || resp.ErrorCode != codeUnsupportedVersion {
			t.Fatalf("version %d: code %d, %v", v, resp.ErrorCode, err)
		}
		listed := false
		for _, k := range resp.ApiKeys {
			listed = listed || k.ApiKey == 18 && k.MaxVersion == apiVersionsAPI.max
		}
		if !listed {
			t.Fatalf("version %d: the range of ApiVersions itself is not in the answer", v)
		}
	}
	req.Version = apiVersionsAPI.max // on the same connection, as clients do
	if resp := c.ask(req).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 0 || len(resp.ApiKeys) != len(registry()) {
		t.Fatalf("%+v", resp)
	}
}

func TestResponseHeadersHaveTagsOnlyInFlexibleVersionsAndNeverForApiVersions(t *testing.T) {
	w := newWorld(t)
	c := w.dial()
	av := kmsg.NewPtrApiVersionsRequest()
	av.Version = 3
	c.send(av)
	if b := c.raw()[4:]; kmsg.NewPtrApiVersionsResponse().ReadFrom(b) != nil && b[0] != 0 || b[1] != 0 || b[2] < 2 {
		t.Fatalf("ApiVersions 3 starts with % x: error code and compact array expected at once", b[:4])
	}
	for v, tagged := range map[int16]bool{8: false, 9: true} {
		req := metadataOf(v, false)
		c.send(req)
		b := c.raw()[4:]
		if tagged {
			if b[0] != 0 {
				t.Fatalf("Metadata %d: header tag byte %x", v, b[0])
			}
			b = b[1:]
		}
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = v
		if err := resp.ReadFrom(b); err != nil || len(resp.Brokers) != 1 {
			t.Fatalf("Metadata %d: %v", v, err)
		}
	}
}

// TestRangesHoldTheVersionsThatOldLibrdkafkaLooksFor: up to 2.0.2 it turns features on by exact version points; without
// FindCoordinator 0 it does not compress with LZ4, without Produce 0 it drops gzip, snappy and LZ4 silently.
func TestRangesHoldTheVersionsThatOldLibrdkafkaLooksFor(t *testing.T) {
	for key, versions := range map[int16][]int16{0: {0, 2, 3, 7}, 1: {4, 10}, 2: {1}, 3: {0}, 8: {2}, 9: {1}, 10: {0}, 11: {0}, 12: {0}, 13: {0}, 14: {0}, 18: {0}, 22: {0}} {
		for _, v := range versions {
			found := false
			for _, a := range registry() {
				found = found || a.key == key && a.min <= v && v <= a.max
			}
			if !found {
				t.Errorf("api key %d version %d is not in the advertised range", key, v)
			}
		}
	}
}

func TestFetchTwelveIsServedToClientsThatSendItUnasked(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	if out := w.dial().fetch(fetch(12, "t", 0))[0]; out.ErrorCode != 0 {
		t.Fatalf("code %d", out.ErrorCode)
	}
}

func TestUnadvertisedVersionsAndUnknownApisAreDropped(t *testing.T) {
	w := newWorld(t)
	for _, a := range registry() {
		if a.key == apiVersionsAPI.key {
			continue
		}
		req := kmsg.RequestForKey(a.key)
		if req.MaxVersion() <= a.max {
			continue
		}
		req.SetVersion(a.max + 1)
		c := w.dial()
		c.send(req)
		c.closed()
	}
	c := w.dial()
	c.send(kmsg.NewPtrSASLHandshakeRequest())
	c.closed()
}

func TestNothingIsThrottled(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	if m := c.metadata(metadataOf(12, false, "t")).ThrottleMillis; m != 0 {
		t.Errorf("metadata throttles by %d ms", m)
	}
	if m := c.ask(produce(9, 1, "t", 0, batch("a"))).(*kmsg.ProduceResponse).ThrottleMillis; m != 0 {
		t.Errorf("produce throttles by %d ms", m)
	}
	if m := c.ask(fetch(12, "t", 0)).(*kmsg.FetchResponse).ThrottleMillis; m != 0 {
		t.Errorf("fetch throttles by %d ms", m)
	}
}

// TestAbsentTagsSayNothing: a zero-valued struct would tell consumers to truncate to offset 0.
func TestAbsentTagsSayNothing(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 1)
	for v := int16(12); v <= fetchAPI.max; v++ {
		out := w.dial().fetch(fetch(v, "t", 0))[0]
		if out.DivergingEpoch.Epoch != -1 || out.DivergingEpoch.EndOffset != -1 || out.CurrentLeader.LeaderID != -1 || out.CurrentLeader.LeaderEpoch != -1 || out.SnapshotID.EndOffset != -1 || out.SnapshotID.Epoch != -1 {
			t.Errorf("version %d: %+v", v, out)
		}
	}
	for v := int16(firstHintedProduce); v <= produceAPI.max; v++ {
		if p := w.dial().produce(produce(v, 1, "t", 0, batch("a"))); p.CurrentLeader.LeaderID != -1 || p.CurrentLeader.LeaderEpoch != -1 {
			t.Errorf("version %d: %+v", v, p)
		}
	}
}

func TestEveryErrorCodeHasKafkasName(t *testing.T) {
	for _, e := range errorCodes {
		if codeNames[e.code] == "" {
			t.Errorf("code %d has no name", e.code)
		}
	}
	for code, name := range codeNames {
		if name != strings.ToUpper(name) {
			t.Errorf("code %d is called %s", code, name)
		}
	}
}
