package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/partition"
	"gopherlog/txn/kafkatx"
)

// coordinateTxns makes this broker the coordinator of all transactional ids.
func (w *world) coordinateTxns() {
	w.t.Helper()
	topic, _, err := w.txns.Find(timeout(w.t), "x")
	if err != nil {
		w.t.Fatal(err)
	}
	for n := range topic.Partitions {
		w.part(coordinator.TransactionsTopic, int32(n))
	}
}

// initTxn is InitProducerId.
func (w *world) initTxn(id string) kafkatx.Answer {
	w.t.Helper()
	c := make(chan kafkatx.Answer, 1)
	w.txns.InitProducerID(id, kafkatx.InitProducerID{Timeout: time.Minute, ProducerID: -1, Epoch: -1}, func(a kafkatx.Answer) { c <- a })
	return w.ok(id, c)
}

func (w *world) addTxn(id string, a kafkatx.Answer, number int32) {
	w.t.Helper()
	c := make(chan kafkatx.Answer, 1)
	e := kafkatx.AddPartitions{ProducerID: a.ProducerID, Epoch: a.Epoch, Partitions: []kafkatx.Partition{{Topic: "t", Number: number}}}
	w.txns.AddPartitions(id, e, func(a kafkatx.Answer) { c <- a })
	w.ok(id, c)
}

func (w *world) ok(id string, c chan kafkatx.Answer) kafkatx.Answer {
	w.t.Helper()
	select {
	case a := <-c:
		if a.Code != kafkatx.OK {
			w.t.Fatalf("%s: %v", id, a)
		}
		return a
	case <-time.After(patience):
		w.t.Fatalf("%s: no answer", id)
	}
	panic("not reached")
}

func isTxnAPI(key int16) bool { return key == 65 || key == 66 || key >= 24 && key <= 28 && key != 27 }

// txnQuestion is one request to an API of transactions. Each version asks about a transactional id of its own.
func (w *world) txnQuestion(key, version int16) kmsg.Request {
	id := fmt.Sprint("x", version)
	a := w.initTxn(id)
	switch key {
	case 24:
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, a.ProducerID, a.Epoch
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = "t", []int32{1, 0}
		req.Topics = append(req.Topics, t)
		return req
	case 25:
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = id, a.ProducerID, a.Epoch, "g"
		return req
	case 26:
		w.addTxn(id, a, 0)
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, a.ProducerID, a.Epoch, true
		return req
	case 28:
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = id, a.ProducerID, a.Epoch, "g", -1
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = "t"
		for i := range int32(3) { // the last one is not there
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch = i, 5, 2
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
		return req
	case 65:
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{id, "nope"}
		return req
	}
	return kmsg.RequestForKey(key)
}

func TestAPartitionThatDoesNotExistKeepsAllOthersOutOfTheTransaction(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinateTxns()
	w.coordinate()
	req := w.txnQuestion(24, 3).(*kmsg.AddPartitionsToTxnRequest)
	req.Version = 3
	req.Topics[0].Partitions = []int32{0, 9}
	internal := kmsg.NewAddPartitionsToTxnRequestTopic()
	internal.Topic, internal.Partitions = coordinator.OffsetsTopic, []int32{0}
	req.Topics = append(req.Topics, internal)
	resp := w.dial().ask(req).(*kmsg.AddPartitionsToTxnResponse)
	got := []int16{resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[0].Partitions[1].ErrorCode, resp.Topics[1].Partitions[0].ErrorCode}
	if want := []int16{codeOperationNotAttempted, codeUnknownTopicOrPartition, codeTopicAuthorizationFailed}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("codes %v, want %v", got, want)
	}
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{req.TransactionalID}
	if d := w.dial().ask(describe).(*kmsg.DescribeTransactionsResponse).TransactionStates[0]; d.State != "Empty" || len(d.Topics) != 0 {
		t.Fatalf("%+v", d)
	}
}

func TestFencedProducersGetTheCodeThatTheirVersionKnows(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinateTxns()
	for v := endTxnAPI.min; v <= endTxnAPI.max; v++ {
		req := w.txnQuestion(26, v).(*kmsg.EndTxnRequest)
		req.Version = v
		req.ProducerEpoch = 7
		want := codeProducerFenced
		if v < 2 {
			want = codeInvalidProducerEpoch
		}
		if resp := w.dial().ask(req).(*kmsg.EndTxnResponse); resp.ErrorCode != want {
			t.Errorf("EndTxn %d: code %d, want %d", v, resp.ErrorCode, want)
		}
	}
	for v := addPartitionsToTxnAPI.min; v <= addPartitionsToTxnAPI.max; v++ {
		req := w.txnQuestion(24, v).(*kmsg.AddPartitionsToTxnRequest)
		req.Version, req.ProducerEpoch = v, 7
		want := codeProducerFenced
		if v < 2 {
			want = codeInvalidProducerEpoch
		}
		if got := w.dial().ask(req).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode; got != want {
			t.Errorf("AddPartitionsToTxn %d: code %d, want %d", v, got, want)
		}
	}
	w.coordinate()
	for v := addOffsetsToTxnAPI.min; v <= addOffsetsToTxnAPI.max; v++ {
		req := w.txnQuestion(25, v).(*kmsg.AddOffsetsToTxnRequest)
		req.Version, req.ProducerEpoch = v, 7
		want := codeProducerFenced
		if v < 2 {
			want = codeInvalidProducerEpoch
		}
		if got := w.dial().ask(req).(*kmsg.AddOffsetsToTxnResponse).ErrorCode; got != want {
			t.Errorf("AddOffsetsToTxn %d: code %d, want %d", v, got, want)
		}
	}
	id := "y"
	a := w.initTxn(id)
	w.initTxn(id)
	w.initTxn(id)
	for v := int16(3); v <= initProducerIDAPI.max; v++ {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = v, &id, 1000, a.ProducerID, a.Epoch
		want := codeProducerFenced
		if v < 4 {
			want = codeInvalidProducerEpoch
		}
		if resp := w.dial().ask(req).(*kmsg.InitProducerIDResponse); resp.ErrorCode != want {
			t.Errorf("InitProducerId %d: code %d, want %d", v, resp.ErrorCode, want)
		}
	}
}

// What a group's shard says of a producer reaches clients of TxnOffsetCommit in codes that their version knows.
func TestOffsetsThatDoNotBecomePartOfATransactionAreRefusedInTheClientsWords(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinate()
	w.coordinateTxns()
	for err, want := range map[error][2]int16{ // below version 4, and from it on
		partition.ErrProducerFenced:         {codeInvalidProducerEpoch, codeInvalidProducerEpoch},
		partition.ErrInvalidTxnState:        {codeInvalidTxnState, codeTransactionAbortable},
		partition.ErrTransactionAborted:     {codeInvalidTxnState, codeTransactionAbortable},
		partition.ErrConcurrentTransactions: {codeCoordinatorNotAvailable, codeCoordinatorNotAvailable},
	} {
		w.part(coordinator.OffsetsTopic, coordinator.ShardOf("g", 16)).fail(err)
		for v := txnOffsetCommitAPI.min; v <= txnOffsetCommitAPI.max; v++ {
			req := w.withIDs(w.txnQuestion(28, v)).(*kmsg.TxnOffsetCommitRequest)
			req.Version = v
			known := 0
			if v >= 4 {
				known = 1
			}
			if got := w.dial().ask(req).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; got != want[known] {
				t.Errorf("%v: version %d: code %d, want %d", err, v, got, want[known])
			}
		}
	}
}

func TestTransactionTimeoutsAboveTheLimitAreRefused(t *testing.T) {
	w := newWorld(t)
	w.coordinateTxns()
	id := "x"
	for millis, want := range map[int32]int16{15 * 60_000: codeNone, 15*60_000 + 1: codeInvalidTransactionTimeout, 0: codeInvalidTransactionTimeout, -1: codeInvalidTransactionTimeout} {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &id, millis
		if resp := w.dial().ask(req).(*kmsg.InitProducerIDResponse); resp.ErrorCode != want {
			t.Errorf("%d ms: code %d, want %d", millis, resp.ErrorCode, want)
		}
	}
}

func TestTransactionsAreListedByStateProducerAndPattern(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinateTxns()
	a, b := w.initTxn("a-1"), w.initTxn("b-1")
	w.addTxn("b-1", b, 1)
	pattern, broken := "b-.*", "b-("
	for name, c := range map[string]struct {
		change  func(*kmsg.ListTransactionsRequest)
		want    string
		unknown int
	}{
		"all":           {func(*kmsg.ListTransactionsRequest) {}, "a-1 Empty, b-1 Ongoing, ", 0},
		"state":         {func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing", "Nonsense"} }, "b-1 Ongoing, ", 1},
		"unknown state": {func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Nonsense"} }, "", 1},
		"producer":      {func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{a.ProducerID} }, "a-1 Empty, ", 0},
		"duration":      {func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 3_600_000 }, "", 0},
		"pattern":       {func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = &pattern }, "b-1 Ongoing, ", 0},
	} {
		req := kmsg.NewPtrListTransactionsRequest()
		req.Version, req.DurationFilterMillis = 2, -1
		c.change(req)
		resp := w.dial().ask(req).(*kmsg.ListTransactionsResponse)
		got := ""
		for _, s := range resp.TransactionStates {
			got += s.TransactionalID + " " + s.TransactionState + ", "
		}
		if got != c.want || len(resp.UnknownStateFilters) != c.unknown {
			t.Errorf("%s: %q and %v, want %q", name, got, resp.UnknownStateFilters, c.want)
		}
	}
	eventually(t, "what is open for longer than a millisecond is listed", func() bool {
		req := kmsg.NewPtrListTransactionsRequest()
		req.Version, req.DurationFilterMillis = 2, 1
		got := w.dial().ask(req).(*kmsg.ListTransactionsResponse).TransactionStates
		return len(got) == 1 && got[0].TransactionalID == "b-1"
	})
	req := kmsg.NewPtrListTransactionsRequest()
	req.Version, req.TransactionalIDPattern = 2, &broken
	if resp := w.dial().ask(req).(*kmsg.ListTransactionsResponse); resp.ErrorCode != codeInvalidRegularExpression {
		t.Errorf("%+v", resp)
	}
}
