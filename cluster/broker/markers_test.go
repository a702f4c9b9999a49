package broker

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
	"gopherlog/txn/producer"
	"gopherlog/txn/twopc"
)

func markersOf(version int16, topic string, numbers ...int32) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = version
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, m.Committed = 7, 3, 5, true
	if version >= 2 {
		m.TransactionVersion = 2
	}
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = topic, numbers
	m.Topics = append(m.Topics, t)
	req.Markers = append(req.Markers, m)
	return req
}

func describeProducersOf(topic string, numbers ...int32) *kmsg.DescribeProducersRequest {
	req := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = topic, numbers
	req.Topics = append(req.Topics, t)
	return req
}

func TestMarkersReachTheirPartitions(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.create("gone", 1)
	w.part("gone", 0).fail(partition.ErrNotLeader)
	for version := int16(0); version <= 2; version++ {
		resp := w.dial().ask(markersOf(version, "t", 0, 1, 2)).(*kmsg.WriteTxnMarkersResponse)
		var codes []int16
		for _, p := range resp.Markers[0].Topics[0].Partitions {
			codes = append(codes, p.ErrorCode)
		}
		if diff := cmp.Diff([]int16{0, 0, codeUnknownTopicOrPartition}, codes); diff != "" || resp.Markers[0].ProducerID != 7 {
			t.Errorf("version %d: %+v %s", version, resp, diff)
		}
		want := producer.Marker{ProducerID: 7, Epoch: 3, CoordinatorEpoch: 5, Commit: true}
		if version >= 2 {
			want.Version = producer.Version2
		}
		for number := range int32(2) {
			p := w.part("t", number)
			p.mu.Lock()
			if last := p.markers[len(p.markers)-1]; last != want {
				t.Errorf("version %d: partition %d got %+v, want %+v", version, number, last, want)
			}
			p.mu.Unlock()
		}
	}
	for err, want := range map[error]int16{
		partition.ErrNotLeader: codeNotLeaderOrFollower, partition.ErrInvalidProducerEpoch: codeInvalidProducerEpoch,
		partition.ErrCoordinatorFenced: codeCoordinatorFenced, partition.ErrInvalidTxnState: codeInvalidTxnState, partition.ErrTimeout: codeRequestTimedOut,
	} {
		w.part("gone", 0).fail(err)
		resp := w.dial().ask(markersOf(1, "gone", 0)).(*kmsg.WriteTxnMarkersResponse)
		if got := resp.Markers[0].Topics[0].Partitions[0].ErrorCode; got != want {
			t.Errorf("%v: code %d, want %d", err, got, want)
		}
	}
}

// fail lets everything that is asked of the partition fail.
func (p *fakePartition) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failWith = err
}

func TestDescribeProducersShowsOpenTransactions(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.part("t", 0).producers = []producer.Producer{
		{ID: 7, Epoch: 3, LastSequence: 9, LastOffset: 20, LastTimestamp: 1000, CoordinatorEpoch: 5, Transaction: 12},
		{ID: 8, LastSequence: -1, CoordinatorEpoch: -1, Transaction: -1},
	}
	resp := w.dial().ask(describeProducersOf("t", 0, 4)).(*kmsg.DescribeProducersResponse)
	parts := resp.Topics[0].Partitions
	if len(parts[0].ActiveProducers) != 2 || parts[1].ErrorCode != codeUnknownTopicOrPartition {
		t.Fatalf("%+v", parts)
	}
	a, b := parts[0].ActiveProducers[0], parts[0].ActiveProducers[1]
	if a.ProducerID != 7 || a.ProducerEpoch != 3 || a.LastSequence != 9 || a.LastTimestamp != 1000 || a.CoordinatorEpoch != 5 || a.CurrentTxnStartOffset != 12 {
		t.Errorf("%+v", a)
	}
	if b.LastSequence != -1 || b.CoordinatorEpoch != -1 || b.CurrentTxnStartOffset != -1 {
		t.Errorf("%+v", b)
	}
	w.part("t", 0).lead(false, 1)
	resp = w.dial().ask(describeProducersOf("t", 0)).(*kmsg.DescribeProducersResponse)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != codeNotLeaderOrFollower {
		t.Errorf("a follower answers code %d", code)
	}
}

// wipedMeta lets a broker have another disk than it has.
type wipedMeta struct {
	Meta
	id    meta.NodeID
	wiped *atomic.Bool
}

func (m wipedMeta) Image() *meta.Image {
	if !m.wiped.Load() {
		return m.Meta.Image()
	}
	image := *m.Meta.Image()
	image.Brokers = maps.Clone(image.Brokers)
	b := *image.Brokers[m.id]
	b.Incarnation++
	image.Brokers[m.id] = &b
	return &image
}

// What was promised is nobody's to end as long as its coordinator may come back and know that it told COMMIT.
func TestAnOperatorDecidesOnlyWhatADiskThatIsGoneDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wiped atomic.Bool
		w := newVirtual(t, func(c *Config) { c.Meta = wipedMeta{c.Meta, 2, &wiped} })
		w.create("t", 1)
		decree := func() int16 {
			req := markersOf(1, "t", 0)
			req.Markers[0].Committed = false
			req.Markers[0].UnknownTags.Set(twopc.TagTransactionalID, []byte("2pc.till"))
			return w.dial().ask(req).(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics[0].Partitions[0].ErrorCode
		}
		if code := decree(); code != codeNotCoordinator {
			t.Errorf("nobody has voted here: code %d", code)
		}
		w.register(2, "b", 9092)
		spec := meta.TopicSpec{Name: coordinator.VotedTopic, Internal: true, Partitions: -1, ReplicationFactor: -1, Assignments: [][]meta.NodeID{{2}}}
		if res, err := w.ctl.CreateTopics(timeout(t), []meta.TopicSpec{spec}, false); err != nil || res[0].Err != nil {
			t.Fatal(err, res)
		}
		if code := decree(); code != codeNotCoordinator {
			t.Errorf("while its coordinator is down: code %d", code)
		}
		wiped.Store(true)
		if code := decree(); code != codeNone {
			t.Errorf("when the disk is gone: code %d", code)
		}
		p := w.part("t", 0)
		if want := []string{"2pc.till 7:3 false"}; !slices.Equal(p.decrees, want) || len(p.markers) != 0 {
			t.Errorf("the partition heard %q and %d markers", p.decrees, len(p.markers))
		}
		p.fail(partition.ErrInvalidTxnState)
		if code := decree(); code != codeInvalidTxnState {
			t.Errorf("a fresh promise: code %d", code)
		}
	})
}

func TestProducersInDoubtAreShownWithTheirIDAndTime(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	p := w.part("t", 0)
	p.producers = []producer.Producer{{ID: 7, Epoch: 3, Transaction: 12}, {ID: 8, Epoch: 3, Transaction: 13}, {ID: 9, Epoch: 4, Transaction: 14}}
	p.inDoubt = []partition.InDoubt{{ID: "2pc.till", Owner: twopc.Identity{Producer: 7, Epoch: 3}, Since: 1234}, {ID: "2pc.old", Owner: twopc.Identity{Producer: 9, Epoch: 4}}}
	resp := w.dial().ask(describeProducersOf("t", 0)).(*kmsg.DescribeProducersResponse)
	var got []string
	for _, a := range resp.Topics[0].Partitions[0].ActiveProducers {
		a.UnknownTags.Each(func(tag uint32, value []byte) { got = append(got, fmt.Sprintf("%d: %d=%x", a.ProducerID, tag, value)) })
	}
	slices.Sort(got)
	want := []string{
		fmt.Sprintf("7: %d=%016x", twopc.TagInDoubt, 1234), fmt.Sprintf("7: %d=%x", twopc.TagTransactionalID, "2pc.till"),
		fmt.Sprintf("9: %d=%016x", twopc.TagInDoubt, 0), fmt.Sprintf("9: %d=%x", twopc.TagTransactionalID, "2pc.old"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What the transaction's coordinator said reaches each client in words that its version knows.
func TestProduceTellsOfTransactionsInTheClientsWords(t *testing.T) {
	txn := batchOf(record.Builder{Producer: &record.Producer{ID: 1}, Transactional: true}, "a")
	id := "tx"
	for _, tc := range []struct {
		err            error
		old, mid, new_ int16 // below 11, at 11, from 12 on
	}{
		{partition.ErrInvalidTxnState, codeInvalidTxnState, codeTransactionAbortable, codeTransactionAbortable},
		{partition.ErrNotTransactional, codeInvalidTxnState, codeInvalidTxnState, codeInvalidTxnState},
		{partition.ErrConcurrentTransactions, codeNotEnoughReplicas, codeNotEnoughReplicas, codeConcurrentTransactions},
		{partition.ErrProducerFenced, codeInvalidProducerEpoch, codeInvalidProducerEpoch, codeInvalidProducerEpoch},
		{partition.ErrInvalidProducerEpoch, codeInvalidProducerEpoch, codeInvalidProducerEpoch, codeInvalidProducerEpoch},
		{partition.ErrInvalidProducerIDMapping, codeInvalidProducerIDMapping, codeInvalidProducerIDMapping, codeInvalidProducerIDMapping},
		{partition.ErrTransactionAborted, codeInvalidProducerEpoch, codeTransactionAbortable, codeTransactionAbortable},
		{partition.ErrNotCoordinator, codeNotEnoughReplicas, codeNotEnoughReplicas, codeNotEnoughReplicas},
	} {
		for version, want := range map[int16]int16{9: tc.old, 11: tc.mid, 12: tc.new_} {
			if got := produceCode(tc.err, version); got != want {
				t.Errorf("%v at version %d: code %d, want %d", tc.err, version, got, want)
			}
		}
		w := newWorld(t)
		w.create("t", 1)
		w.part("t", 0).fail(tc.err)
		for version, want := range map[int16]int16{9: tc.old, 11: tc.mid, 12: tc.new_} {
			req := produce(version, -1, "t", 0, txn)
			req.TransactionID = &id
			if out := w.dial().produce(req); out.ErrorCode != want {
				t.Errorf("%v: version %d: code %d, want %d", tc.err, version, out.ErrorCode, want)
			}
			last := w.part("t", 0).lastAppend
			if last.TransactionalID != id || (last.Version == producer.Version2) != (version >= 12) {
				t.Errorf("version %d appended with %q version %d", version, last.TransactionalID, last.Version)
			}
		}
	}
}

// read_uncommitted gets no list: some clients drop records by it.
func TestOnlyReadersOfCommittedGetTheAbortedList(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 4)
	p := w.part("t", 0)
	p.aborted, p.stable = []producer.Aborted{{ProducerID: 7, First: 1, Last: 2}, {ProducerID: 8, First: 0, Last: 3}}, 1
	for version := int16(4); version <= fetchAPI.max; version++ {
		for _, isolation := range []int8{partition.ReadUncommitted, partition.ReadCommitted} {
			req := fetch(version, "t", 0)
			req.IsolationLevel = isolation
			out := w.dial().ask(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			var got [][2]int64
			for _, a := range out.AbortedTransactions {
				got = append(got, [2]int64{a.ProducerID, a.FirstOffset})
			}
			var want [][2]int64
			if isolation == partition.ReadCommitted {
				want = [][2]int64{{7, 1}, {8, 0}}
			}
			if diff := cmp.Diff(want, got); diff != "" || out.LastStableOffset != 3 || out.HighWatermark != 4 {
				t.Errorf("version %d isolation %d: %+v %s", version, isolation, out, diff)
			}
		}
	}
}

// A parked read_committed fetch is answered when the transaction at its offset ends.
func TestAParkedReaderOfCommittedIsAnsweredByTheMarker(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 2)
	p := w.part("t", 0)
	p.stable = 2
	req := fetch(12, "t", 0)
	req.IsolationLevel, req.MaxWaitMillis, req.MinBytes = partition.ReadCommitted, 60_000, 1
	c := w.dial()
	c.send(req)
	eventually(t, "parked", func() bool { return p.parked() == 1 })
	p.mu.Lock()
	p.stable = 0
	p.mu.Unlock()
	p.wake()
	out := c.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if out.LastStableOffset != 2 || len(out.RecordBatches) == 0 {
		t.Fatalf("%+v", out)
	}
}

func TestListOffsetsRespectsTheIsolation(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 4)
	w.part("t", 0).stable = 3
	for isolation, want := range map[int8]int64{partition.ReadUncommitted: 4, partition.ReadCommitted: 1} {
		req := listOffsetsOf(7, "t", timestampLatest, -1)
		req.IsolationLevel = isolation
		if got := w.dial().ask(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; got.Offset != want || got.ErrorCode != 0 {
			t.Errorf("isolation %d: %+v, want %d", isolation, got, want)
		}
	}
}
