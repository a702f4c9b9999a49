package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
	"gopherlog/txn/producer"
)

// commitAt is OffsetCommit of a version: offset to partition 0 of each topic, by name or by id. It returns the codes.
func (c *client) commitAt(version int16, group string, offset int64, topics ...kmsg.OffsetCommitRequestTopic) []int16 {
	c.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group = version, group
	for _, t := range topics {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset = offset
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	resp := c.ask(req).(*kmsg.OffsetCommitResponse)
	var codes []int16
	for i, t := range resp.Topics {
		if t.Topic != req.Topics[i].Topic && version < firstOffsetCommitIDs || t.TopicID != req.Topics[i].TopicID && version >= firstOffsetCommitIDs {
			c.t.Errorf("version %d: asked about %q %x, told about %q %x", version, req.Topics[i].Topic, req.Topics[i].TopicID, t.Topic, t.TopicID)
		}
		codes = append(codes, t.Partitions[0].ErrorCode)
	}
	return codes
}

func topicNamed(name string, id meta.TopicID) kmsg.OffsetCommitRequestTopic {
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = name, id
	return t
}

// fetchAt is OffsetFetch of a version: partition 0 of a topic.
func (c *client) fetchAt(version int16, group, name string, id meta.TopicID) (offset int64, code int16) {
	c.t.Helper()
	req := groupQuestion(9, version).(*kmsg.OffsetFetchRequest)
	req.Version, req.Group, req.Groups[0].Group = version, group, group
	req.Topics[0].Topic, req.Topics[0].Partitions = name, []int32{0}
	req.Groups[0].Topics[0].Topic, req.Groups[0].Topics[0].TopicID, req.Groups[0].Topics[0].Partitions = name, id, []int32{0}
	resp := c.ask(req).(*kmsg.OffsetFetchResponse)
	if version < firstOffsetFetchGroups {
		if len(resp.Topics) == 0 {
			return -1, resp.ErrorCode
		}
		p := resp.Topics[0].Partitions[0]
		return p.Offset, max(p.ErrorCode, resp.ErrorCode)
	}
	g := resp.Groups[0]
	if len(g.Topics) == 0 {
		return -1, g.ErrorCode
	}
	if version >= firstOffsetFetchIDs && g.Topics[0].TopicID != id {
		c.t.Errorf("asked about %x, told about %x", id, g.Topics[0].TopicID)
	}
	return g.Topics[0].Partitions[0].Offset, g.Topics[0].Partitions[0].ErrorCode
}

// What is committed by name is there by id, and the other way round, in every version that clients of one group may mix.
func TestOffsetsByNameAndByIDAreTheSameOffsets(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.coordinate()
	id, c := w.ctl.Image().Topic("t").ID, w.dial()
	for v := offsetCommitAPI.min; v <= offsetCommitAPI.max; v++ {
		if codes := c.commitAt(v, "g", int64(v), topicNamed("t", id)); codes[0] != codeNone {
			t.Fatalf("commit, version %d: code %d", v, codes[0])
		}
		for f := offsetFetchAPI.min; f <= offsetFetchAPI.max; f++ {
			if offset, code := c.fetchAt(f, "g", "t", id); offset != int64(v) || code != codeNone {
				t.Errorf("committed by version %d, fetched by %d: offset %d, code %d", v, f, offset, code)
			}
		}
	}
	req := groupQuestion(9, 10).(*kmsg.OffsetFetchRequest)
	req.Version, req.Groups[0].Group, req.Groups[0].Topics = 10, "g", nil
	if g := c.ask(req).(*kmsg.OffsetFetchResponse).Groups[0]; len(g.Topics) != 1 || g.Topics[0].TopicID != id || g.Topics[0].Partitions[0].Offset != 10 {
		t.Errorf("everything, by id: %+v", g)
	}
}

// Where the epoch is missing a reader cannot tell that the log was cut below its offset.
func TestACommittedOffsetComesBackWithItsLeaderEpochAndMetadata(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.coordinate()
	id, c := w.ctl.Image().Topic("t").ID, w.dial()
	topic, p, note := topicNamed("t", id), kmsg.NewOffsetCommitRequestTopicPartition(), "a note"
	p.Offset, p.LeaderEpoch, p.Metadata = 7, 3, &note
	topic.Partitions = append(topic.Partitions, p)
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group = 10, "g"
	commit.Topics = append(commit.Topics, topic)
	if code := c.ask(commit).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != codeNone {
		t.Fatalf("code %d", code)
	}
	for v := offsetFetchAPI.min; v <= offsetFetchAPI.max; v++ {
		if got := c.fetchPartition(v, "g", "t", id, false); got.Offset != 7 || *got.Metadata != note || v >= 5 && got.LeaderEpoch != 3 {
			t.Errorf("version %d: %+v", v, got)
		}
	}
}

// fetchPartition is OffsetFetch of a version: partition 0 of a topic that has an offset.
func (c *client) fetchPartition(version int16, group, name string, id meta.TopicID, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	c.t.Helper()
	req := groupQuestion(9, version).(*kmsg.OffsetFetchRequest)
	req.Version, req.RequireStable, req.Group, req.Groups[0].Group = version, stable, group, group
	req.Topics[0].Topic, req.Topics[0].Partitions = name, []int32{0}
	req.Groups[0].Topics[0].Topic, req.Groups[0].Topics[0].TopicID, req.Groups[0].Topics[0].Partitions = name, id, []int32{0}
	resp := c.ask(req).(*kmsg.OffsetFetchResponse)
	if version >= firstOffsetFetchGroups {
		return resp.Groups[0].Topics[0].Partitions[0]
	}
	p, out := resp.Topics[0].Partitions[0], kmsg.NewOffsetFetchResponseGroupTopicPartition()
	out.Partition, out.Offset, out.LeaderEpoch, out.Metadata, out.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
	return out
}

// While a transaction may change an offset, who asks for a stable one is told to come again; others get the one that counts until then.
func TestOnlyWhoRequiresStableOffsetsIsToldThatOneIsUnstable(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinate()
	w.coordinateTxns()
	id, c := w.ctl.Image().Topic("t").ID, w.dial()
	c.commitAt(10, "g", 1, topicNamed("t", id))
	pending := w.withIDs(w.txnQuestion(28, 3)).(*kmsg.TxnOffsetCommitRequest)
	pending.Version = 3
	if code := c.ask(pending).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != codeNone {
		t.Fatalf("code %d", code)
	}
	for v := offsetFetchAPI.min; v <= offsetFetchAPI.max; v++ {
		for _, stable := range []bool{false, true} {
			got := c.fetchPartition(v, "g", "t", id, stable)
			if stable && v >= 7 {
				if got.ErrorCode != codeUnstableOffsetCommit || got.Offset != -1 {
					t.Errorf("version %d: %+v", v, got)
				}
			} else if got.ErrorCode != codeNone || got.Offset != 1 {
				t.Errorf("version %d, not required to be stable: %+v", v, got)
			}
		}
	}
}

// Transaction version 2: whose client sends TxnOffsetCommit 5 or newer did not register the group's shard, so that must do it by itself.
func TestOffsetsJoinTheTransactionByThemselvesFromVersionFiveOn(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinate()
	w.coordinateTxns()
	shard := w.part(coordinator.OffsetsTopic, coordinator.ShardOf("g", 16))
	for v := txnOffsetCommitAPI.min; v <= txnOffsetCommitAPI.max; v++ {
		req := w.withIDs(w.txnQuestion(28, v)).(*kmsg.TxnOffsetCommitRequest)
		req.Version = v
		w.dial().ask(req)
		shard.mu.Lock()
		if last := shard.lastAppend; last.TransactionalID != req.TransactionalID || (last.Version == producer.Version2) != (v >= 5) {
			t.Errorf("version %d appended for %q with version %d", v, last.TransactionalID, last.Version)
		}
		shard.mu.Unlock()
	}
}

func TestAnOffsetOfATopicThatNobodyKnowsIsRefusedByItsIDAndTheOthersCommitted(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.coordinate()
	id, c := w.ctl.Image().Topic("t").ID, w.dial()
	codes := c.commitAt(10, "g", 5, topicNamed("", meta.TopicID{1}), topicNamed("", id), topicNamed("t", meta.TopicID{}))
	if codes[0] != codeUnknownTopicID || codes[1] != codeNone || codes[2] != codeUnknownTopicID {
		t.Errorf("commit: codes %v", codes)
	}
	req := groupQuestion(9, 10).(*kmsg.OffsetFetchRequest)
	req.Version, req.Groups[0].Group, req.Groups[0].Topics = 10, "g", nil
	for _, id := range []meta.TopicID{{1}, id} {
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.TopicID, topic.Partitions = id, []int32{0}
		req.Groups[0].Topics = append(req.Groups[0].Topics, topic)
	}
	g := c.ask(req).(*kmsg.OffsetFetchResponse).Groups[0]
	if a, b := g.Topics[0].Partitions[0], g.Topics[1].Partitions[0]; a.ErrorCode != codeUnknownTopicID || a.Offset != -1 || b.ErrorCode != codeNone || b.Offset != 5 {
		t.Errorf("fetch: %+v", g)
	}
}

// Of a topic that was deleted and made anew, the id says which one is meant: no position of the first is shown for the second, and none is
// committed to the second by who still reads the first.
func TestAnIDNeverMeansTheNextTopicOfThatName(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.coordinate()
	first, c := w.ctl.Image().Topic("t").ID, w.dial()
	c.commitAt(10, "g", 7, topicNamed("", first))
	if _, err := w.ctl.DeleteTopics(timeout(t), []meta.TopicRef{{Name: "t"}}); err != nil {
		t.Fatal(err)
	}
	w.create("t", 1)
	second := w.ctl.Image().Topic("t").ID
	if offset, code := c.fetchAt(10, "g", "", second); offset != -1 || code != codeNone {
		t.Errorf("of the second: offset %d, code %d", offset, code)
	}
	if offset, code := c.fetchAt(10, "g", "", first); offset != -1 || code != codeUnknownTopicID {
		t.Errorf("of the first: offset %d, code %d", offset, code)
	}
	if codes := c.commitAt(10, "g", 8, topicNamed("", first)); codes[0] != codeUnknownTopicID {
		t.Errorf("commit to the first: code %d", codes[0])
	}
	if codes := c.commitAt(10, "g", 1, topicNamed("", second)); codes[0] != codeNone {
		t.Errorf("commit to the second: code %d", codes[0])
	}
	for _, v := range []int16{9, 10} {
		if offset, code := c.fetchAt(v, "g", "t", second); offset != 1 || code != codeNone {
			t.Errorf("of the second, version %d: offset %d, code %d", v, offset, code)
		}
	}
}

func TestOffsetsOfATransactionAreNamedByIDFromVersionSixOn(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinate()
	w.coordinateTxns()
	c := w.dial()
	for v := txnOffsetCommitAPI.min; v <= txnOffsetCommitAPI.max; v++ {
		req := w.withIDs(w.txnQuestion(28, v)).(*kmsg.TxnOffsetCommitRequest)
		req.Version = v
		if v >= firstTxnOffsetCommitIDs {
			req.Topics[0].Topic = ""
			unknown := req.Topics[0]
			unknown.TopicID = meta.TopicID{1}
			req.Topics = append(req.Topics, unknown)
		}
		resp := c.ask(req).(*kmsg.TxnOffsetCommitResponse)
		for i, want := range []int16{codeNone, codeNone, codeUnknownTopicOrPartition} {
			if got := resp.Topics[0].Partitions[i].ErrorCode; got != want {
				t.Errorf("version %d, partition %d: code %d, want %d", v, i, got, want)
			}
		}
		if v < firstTxnOffsetCommitIDs {
			continue
		}
		if a := resp.Topics[1]; a.TopicID != (meta.TopicID{1}) || a.Partitions[0].ErrorCode != codeUnknownTopicID {
			t.Errorf("version %d: %+v", v, a)
		}
	}
}

// Clients of old versions do not know the code of a group that is not there; it would end some of them.
func TestAMemberOfAGroupThatIsNotThereIsToldInItsVersionsWords(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.coordinate()
	c := w.dial()
	for v := offsetCommitAPI.min; v <= offsetCommitAPI.max; v++ {
		req := w.withIDs(groupQuestion(8, v)).(*kmsg.OffsetCommitRequest)
		req.Version, req.Group, req.MemberID, req.Generation = v, "nobody", "m", 3
		want := codeIllegalGeneration
		if v >= 9 {
			want = codeGroupIDNotFound
		}
		if p := c.ask(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0]; p.ErrorCode != want {
			t.Errorf("version %d: code %d, want %d", v, p.ErrorCode, want)
		}
	}
	c.commitAt(9, "simple", 1, topicNamed("t", meta.TopicID{}))
	req := groupQuestion(8, 9).(*kmsg.OffsetCommitRequest)
	req.Version, req.Group, req.MemberID, req.Generation = 9, "simple", "m", 3
	if p := c.ask(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0]; p.ErrorCode != codeUnknownMemberID {
		t.Errorf("a group that holds offsets only: code %d", p.ErrorCode)
	}
}

// Who asks a coordinator that was deposed and does not know it yet is sent to find the next one, and not shown what was committed before.
func TestADeposedCoordinatorShowsNoOffsets(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.coordinate()
	id, c := w.ctl.Image().Topic("t").ID, w.dial()
	c.commitAt(10, "g", 7, topicNamed("", id))
	shard := w.part(coordinator.OffsetsTopic, coordinator.ShardOf("g", 16))
	shard.mu.Lock()
	shard.deposed = true
	shard.mu.Unlock()
	for v := offsetFetchAPI.min; v <= offsetFetchAPI.max; v++ {
		if offset, code := c.fetchAt(v, "g", "t", id); offset != -1 || code != codeNotCoordinator {
			t.Errorf("version %d: offset %d, code %d", v, offset, code)
		}
	}
}

func TestTheNewestVersionsTellOfAGroupWhatTheyHaveRoomFor(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.coordinate()
	id, c := w.ctl.Image().Topic("t").ID, w.dial()
	c.commitAt(10, "g", 7, topicNamed("", id))
	list := kmsg.NewPtrListGroupsRequest()
	list.Version = 5
	for _, want := range []struct {
		types []string
		n     int
	}{{nil, 1}, {[]string{"Classic"}, 1}, {[]string{"consumer", "share"}, 0}, {[]string{"consumer", "classic"}, 1}} {
		list.TypesFilter = want.types
		got := c.ask(list).(*kmsg.ListGroupsResponse).Groups
		if len(got) != want.n || want.n > 0 && (got[0].GroupType != "classic" || got[0].GroupState != "Empty") {
			t.Errorf("types %v: %+v", want.types, got)
		}
	}
	list.TypesFilter = nil
	for state, n := range map[string]int{"Stable": 0, "Empty": 1, "empty": 1} {
		list.StatesFilter = []string{state}
		if got := c.ask(list).(*kmsg.ListGroupsResponse).Groups; len(got) != n {
			t.Errorf("state %s: %+v", state, got)
		}
	}
	for v := int16(5); v <= 6; v++ {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = v, []string{"g", "nobody"}
		got := c.ask(req).(*kmsg.DescribeGroupsResponse).Groups
		if got[0].ErrorCode != codeNone || got[0].ErrorMessage != nil || got[0].State != "Empty" || got[1].State != "Dead" {
			t.Errorf("describe, version %d: %+v", v, got)
		}
		missing := v >= firstDescribedMissing
		if (got[1].ErrorCode == codeGroupIDNotFound) != missing || (got[1].ErrorMessage != nil) != missing {
			t.Errorf("describe, version %d: %+v", v, got[1])
		}
	}
}

// A static leader that was started anew finds its group as it was: nobody assigns anything anew for it.
func TestAStaticLeaderThatComesBackIsToldNotToAssign(t *testing.T) {
	w := newWorld(t)
	w.coordinate()
	instance := "i"
	for v := int16(8); v <= 9; v++ {
		c, id := w.dial(), "g"+instance+string(rune('0'+v))
		req := joinOf(v, id, "", []byte("topics"))
		req.InstanceID = &instance
		reason := "started anew"
		req.Reason = &reason
		first := c.ask(req).(*kmsg.JoinGroupResponse)
		if first.ErrorCode != codeNone || first.SkipAssignment {
			t.Fatalf("version %d: %+v", v, first)
		}
		c.ask(syncOf(5, id, first, map[string][]byte{first.MemberID: []byte("all")}))
		again := c.ask(req).(*kmsg.JoinGroupResponse)
		if again.ErrorCode != codeNone || again.Generation != first.Generation || again.MemberID == first.MemberID {
			t.Fatalf("version %d: %+v", v, again)
		}
		exempted := v >= firstSkipAssignment
		if again.SkipAssignment != exempted || (again.LeaderID == again.MemberID) != exempted || (len(again.Members) == 1) != exempted {
			t.Errorf("version %d: %+v", v, again)
		}
		if s := c.ask(syncOf(5, id, again, nil)).(*kmsg.SyncGroupResponse); string(s.MemberAssignment) != "all" {
			t.Errorf("version %d: %+v", v, s)
		}
	}
}
