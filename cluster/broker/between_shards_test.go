package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
)

// shardOf makes the topic of coordinators, and returns the shard of a key and the node's coordinator that lives on it.
func (w *world) shardOf(topic, key string) *fakePartition {
	w.t.Helper()
	var err error
	if topic == coordinator.OffsetsTopic {
		_, err = w.groups.Ensure(timeout(w.t))
	} else {
		_, _, err = w.txns.Find(timeout(w.t), key)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	p := w.part(topic, coordinator.ShardOf(key, len(w.ctl.Image().Topic(topic).Partitions)))
	return p
}

// elects makes the node a leader that does not serve yet, or one that does, and tells the coordinators first, as partitions do.
func (w *world) elects(p *fakePartition, serves bool) {
	p.mu.Lock()
	if p.elected = !serves; !serves {
		p.epoch++
	}
	p.mu.Unlock()
	w.groups.Led(p)
	w.txns.Led(p)
	p.wake()
}

// The coordinator is named by nodes that have heard of it before it serves. Clients that are told that it loads rest before they ask again.
func TestRequestsAreHeldUntilTheElectedCoordinatorServes(t *testing.T) {
	txn := func(version int16) *kmsg.InitProducerIDRequest {
		req := kmsg.NewPtrInitProducerIDRequest()
		id := "x"
		req.Version, req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = version, &id, 60_000, -1, -1
		return req
	}
	heartbeat := kmsg.NewPtrHeartbeatRequest()
	heartbeat.Version, heartbeat.Group = 4, "g"
	fetchOld := kmsg.NewPtrOffsetFetchRequest()
	fetchOld.Version, fetchOld.Group = 7, "g"
	fetchMany := kmsg.NewPtrOffsetFetchRequest()
	fetchMany.Version, fetchMany.Groups = 8, []kmsg.OffsetFetchRequestGroup{{Group: "g"}, {Group: "g2"}}
	end := kmsg.NewPtrEndTxnRequest()
	end.Version, end.TransactionalID = 4, "x"
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.Version, add.TransactionalID, add.Group = 3, "x", "g"
	for _, c := range []struct {
		topic, key string
		req        kmsg.Request
	}{
		{coordinator.TransactionsTopic, "x", txn(4)},
		{coordinator.TransactionsTopic, "x", end},
		{coordinator.TransactionsTopic, "x", add},
		{coordinator.OffsetsTopic, "g", heartbeat},
		{coordinator.OffsetsTopic, "g", fetchOld},
		{coordinator.OffsetsTopic, "g", fetchMany},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newVirtual(t)
			p, other := w.shardOf(c.topic, c.key), w.shardOf(coordinator.OffsetsTopic, "g2")
			if other != p {
				w.elects(other, true)
			}
			w.elects(p, false)
			conn := w.dial()
			answer := make(chan kmsg.Response, 1)
			conn.send(c.req)
			go func() { answer <- conn.receive(c.req) }()
			time.Sleep(settleLimit / 2)
			synctest.Wait()
			if len(answer) > 0 {
				t.Fatalf("%s is answered while the coordinator loads: %+v", kmsg.NameForKey(c.req.Key()), <-answer)
			}
			w.elects(p, true)
			start := time.Now()
			switch code := codeIn(<-answer); code {
			case codeCoordinatorLoadInProgress, codeNotCoordinator:
				t.Errorf("%s: code %d", kmsg.NameForKey(c.req.Key()), code)
			}
			if took := time.Since(start); took > 200*time.Millisecond { // what it takes is the coordinator's
				t.Errorf("%s took %v more", kmsg.NameForKey(c.req.Key()), took)
			}
		})
	}
}

// codeIn is the code of an answer of a coordinator.
func codeIn(r kmsg.Response) int16 {
	switch r := r.(type) {
	case *kmsg.InitProducerIDResponse:
		return r.ErrorCode
	case *kmsg.EndTxnResponse:
		return r.ErrorCode
	case *kmsg.AddOffsetsToTxnResponse:
		return r.ErrorCode
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.OffsetFetchResponse:
		if len(r.Groups) > 0 {
			return r.Groups[0].ErrorCode
		}
		return r.ErrorCode
	}
	return codeUnknownServerError
}

// A coordinator that does not come to serve is not waited for longer than is of use.
func TestRequestsAreHeldForACoordinatorUpToTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.elects(w.shardOf(coordinator.OffsetsTopic, "g"), false)
		req := kmsg.NewPtrHeartbeatRequest()
		req.Version, req.Group = 4, "g"
		start := time.Now()
		code := w.dial().ask(req).(*kmsg.HeartbeatResponse).ErrorCode
		if took := time.Since(start); code != codeCoordinatorLoadInProgress || took != settleLimit {
			t.Errorf("code %d after %v, want it after %v", code, took, settleLimit)
		}
	})
}
