package broker

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/partition"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
	"gopherlog/engine/wire"
)

func TestProduceAnswersOffsetsOfEveryVersion(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	next := int64(0)
	for v := int16(firstServedProduce); v <= produceAPI.max; v++ {
		for _, acks := range []int16{1, -1} {
			out := c.produce(produce(v, acks, "t", 0, batch("a", "b", "c")))
			if out.ErrorCode != 0 || out.BaseOffset != next {
				t.Fatalf("version %d acks %d: code %d offset %d, want offset %d", v, acks, out.ErrorCode, out.BaseOffset, next)
			}
			if v >= 2 && out.LogAppendTime != -1 {
				t.Fatalf("version %d: log append time %d with client timestamps, want -1", v, out.LogAppendTime)
			}
			if v >= 5 && out.LogStartOffset != 0 {
				t.Fatalf("version %d: log start offset %d", v, out.LogStartOffset)
			}
			next += 3
		}
	}
}

func TestProduceRefusesWithKafkasCode(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2, "max.message.bytes", "500")
	w.create("gone", 1)
	w.part("gone", 0).lead(false, 1)
	flip := func(i int, b record.Batch) record.Batch { b[i] ^= 1; return b }
	control := record.BuildControl(record.Commit, 1, 0, 0, 0)
	control.SetBaseOffset(0)
	appendTime := batch("a")
	appendTime[22] |= 8
	txn := batchOf(record.Builder{Producer: &record.Producer{ID: 1}, Transactional: true}, "a")
	for _, tc := range []struct {
		name    string
		version int16
		acks    int16
		topic   string
		number  int32
		records []byte
		want    int16
	}{
		{"acks 2", 9, 2, "t", 0, batch("a"), codeInvalidRequiredAcks},
		{"acks 2 of an unknown topic: acks are looked at first", 9, 2, "x", 0, nil, codeInvalidRequiredAcks},
		{"unknown topic", 9, 1, "x", 0, batch("a"), codeUnknownTopicOrPartition},
		{"unknown partition", 9, 1, "t", 2, batch("a"), codeUnknownTopicOrPartition},
		{"negative partition", 9, 1, "t", -1, batch("a"), codeUnknownTopicOrPartition},
		{"follower", 9, 1, "gone", 0, batch("a"), codeNotLeaderOrFollower},
		{"too large", 9, 1, "t", 0, batch(string(make([]byte, 600))), codeMessageTooLarge},
		{"too large and damaged: the size is looked at first", 9, 1, "t", 0, make([]byte, 600), codeMessageTooLarge},
		{"no records", 9, 1, "t", 0, nil, codeInvalidRecord},
		{"two batches", 9, 1, "t", 0, append(batch("a"), batch("b")...), codeInvalidRecord},
		{"cut short", 9, 1, "t", 0, batch("a")[:65], codeCorruptMessage},
		{"shorter than a header", 9, 1, "t", 0, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 14}, codeCorruptMessage},
		{"magic 1", 9, 1, "t", 0, func() []byte { b := batch("a"); b[16] = 1; return b }(), codeUnsupportedForMessageFormat},
		{"damaged", 9, 1, "t", 0, flip(65, batch("a")), codeCorruptMessage},
		{"no records under a valid CRC", 9, 1, "t", 0, refit(batch("a", "b"), func(p []byte) { clear(p) }), codeInvalidRecord},
		{"record longer than its batch", 9, 1, "t", 0, refit(batch("a", "b"), func(p []byte) { p[0] += 40 }), codeInvalidRecord},
		{"control batch", 9, 1, "t", 0, control, codeInvalidRecord},
		{"zstd below version 7", 6, 1, "t", 0, batchOf(record.Builder{Codec: record.Zstd}, "a"), codeUnsupportedCompressionType},
		{"transactional without transactional id", 9, 1, "t", 0, txn, codeTransactionalIDAuthorization},
		{"versions 0 to 2 carry the old format", 2, 1, "t", 0, batch("a"), codeUnsupportedForMessageFormat},
	} {
		c := w.dial()
		out := c.produce(produce(tc.version, tc.acks, tc.topic, tc.number, tc.records))
		if out.ErrorCode != tc.want || out.BaseOffset != -1 {
			t.Errorf("%s: code %d offset %d, want code %d offset -1", tc.name, out.ErrorCode, out.BaseOffset, tc.want)
		}
	}
	if n := w.part("t", 0).EndOffset(); n != 0 {
		t.Errorf("%d records were appended by refused requests", n)
	}
}

func TestZstdPassesFromVersionSeven(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	if out := w.dial().produce(produce(7, 1, "t", 0, batchOf(record.Builder{Codec: record.Zstd}, "a"))); out.ErrorCode != 0 {
		t.Fatalf("code %d", out.ErrorCode)
	}
}

func TestErrorsOfThePartitionBecomeKafkasCodes(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c, p := w.dial(), w.part("t", 0)
	for err, want := range map[error]int16{
		partition.ErrNotLeader:                    codeNotLeaderOrFollower,
		partition.ErrNotEnoughReplicas:            codeNotEnoughReplicas,
		partition.ErrNotEnoughReplicasAfterAppend: codeNotEnoughReplicasAfterAppend,
		partition.ErrTimeout:                      codeRequestTimedOut,
		partition.ErrOutOfOrderSequence:           codeOutOfOrderSequence,
		partition.ErrInvalidProducerEpoch:         codeInvalidProducerEpoch,
		partition.ErrTooLarge:                     codeMessageTooLarge,
		partition.ErrStorage:                      codeKafkaStorageError,
		errors.New("something else"):              codeUnknownServerError,
	} {
		p.failWith = fmt.Errorf("wrapped: %w", err)
		if out := c.produce(produce(9, -1, "t", 0, batch("a"))); out.ErrorCode != want || *out.ErrorMessage != "wrapped: "+err.Error() {
			t.Errorf("%v: code %d message %v, want %d", err, out.ErrorCode, *out.ErrorMessage, want)
		}
	}
}

func TestDamagedReplicaIsOutOfService(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.part("t", 0).outOfService = partition.ErrStorage
	if out := w.dial().produce(produce(9, 1, "t", 0, batch("a"))); out.ErrorCode != codeKafkaStorageError {
		t.Fatalf("produce: code %d", out.ErrorCode)
	}
	if out := w.dial().fetch(fetch(12, "t", 0)); out[0].ErrorCode != codeKafkaStorageError {
		t.Fatalf("fetch: code %d", out[0].ErrorCode)
	}
}

func TestAcksZeroGetsNoResponse(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	c.send(produce(9, 0, "t", 0, batch("a")))
	c.send(produce(9, 0, "t", 0, batch("b")))
	if out := c.produce(produce(9, 1, "t", 0, batch("c"))); out.ErrorCode != 0 || out.BaseOffset != 2 {
		t.Fatalf("the first response is for offset %d, want 2", out.BaseOffset)
	}
}

func TestAcksZeroIsNotHeldUpByTheLog(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	p := w.part("t", 0)
	p.hold = true
	c := w.dial()
	c.send(produce(9, 0, "t", 0, batch("a")))
	c.ask(kmsg.NewPtrMetadataRequest())
	p.release()
}

func TestFailedAcksZeroClosesTheConnection(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	for name, req := range map[string]*kmsg.ProduceRequest{
		"unknown topic": produce(9, 0, "x", 0, batch("a")),
		"damaged batch": produce(9, 0, "t", 0, []byte("no batch at all, but enough of it to be one, if it were one at all")),
	} {
		c := w.dial()
		c.send(req)
		c.closed()
		_ = name
	}
	p := w.part("t", 0)
	p.lead(false, 2)
	c := w.dial()
	c.send(produce(9, 0, "t", 0, batch("a")))
	c.closed()

	p.lead(true, 3)
	p.failWith = partition.ErrNotLeader // leadership was lost after the request was taken
	c = w.dial()
	c.send(produce(9, 0, "t", 0, batch("a")))
	c.closed()
}

func TestEveryPartitionOfARequestIsAnsweredOnItsOwn(t *testing.T) {
	w := newWorld(t)
	w.create("t", 3)
	w.part("t", 1).lead(false, 1)
	req := produce(9, -1, "t", 0, batch("a"))
	for n := int32(1); n < 4; n++ {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = n, batch("b", "c")
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	parts := w.dial().ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions
	for i, want := range []int16{0, codeNotLeaderOrFollower, 0, codeUnknownTopicOrPartition} {
		if parts[i].ErrorCode != want || parts[i].Partition != int32(i) {
			t.Errorf("partition %d: code %d, want %d", parts[i].Partition, parts[i].ErrorCode, want)
		}
	}
}

func TestSlowPartitionDoesNotHoldUpOtherConnections(t *testing.T) {
	w := newWorld(t)
	w.create("slow", 1)
	w.create("fast", 1)
	p := w.part("slow", 0)
	p.hold = true
	a, b := w.dial(), w.dial()
	slow := produce(9, -1, "slow", 0, batch("a"))
	a.send(slow)
	if out := b.produce(produce(9, -1, "fast", 0, batch("b"))); out.ErrorCode != 0 {
		t.Fatalf("code %d", out.ErrorCode)
	}
	p.release()
	a.receive(slow)
}

func TestPipelinedProduceKeepsItsOrder(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	p := w.part("t", 0)
	p.hold = true
	c := w.dial()
	req := produce(9, -1, "t", 0, batch("x"))
	const n = 5
	for range n {
		c.send(req)
	}
	eventually(t, "five batches are in flight", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.held) == n
	})
	p.release()
	for i := range int64(n) {
		if out := c.receive(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; out.BaseOffset != i {
			t.Fatalf("response %d has offset %d", i, out.BaseOffset)
		}
	}
}

func TestProduceCopiesNoRecords(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	p := w.part("t", 0)
	p.hold = true
	c := w.dial()
	req := produce(9, -1, "t", 0, batch(string(make([]byte, 100<<10))))
	c.send(req)
	eventually(t, "the batch is in flight", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.held) == 1
	})
	frame := p.lastAppend.Buf.Bytes()
	at := uintptr(unsafe.Pointer(&p.lastAppend.Batch[0])) - uintptr(unsafe.Pointer(&frame[0]))
	if at >= uintptr(len(frame)) {
		t.Fatal("the batch does not lie in the request's buffer")
	}
	p.release()
	c.receive(req)
}

func TestStoredBatchIsWhatTheClientSent(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		sent := batchOf(record.Builder{Codec: codec, BaseTimestamp: 7}, "one", "two", "two", "two")
		out := c.produce(produce(9, -1, "t", 0, bytes.Clone(sent)))
		got := record.Batch(c.fetch(fetch(12, "t", out.BaseOffset))[0].RecordBatches)
		if got.BaseOffset() != out.BaseOffset || got.LeaderEpoch() != 1 || !bytes.Equal(got[16:], sent[16:]) || got.CheckCRC() != nil {
			t.Fatalf("codec %v: stored\n%x\nsent\n%x", codec, got, sent)
		}
	}
}

func TestClaimsOfAProduceRequestAllocateNothing(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	huge := produce(3, 1, "t", 0, nil)
	for range maxProducePartitions + 1 {
		huge.Topics[0].Partitions = append(huge.Topics[0].Partitions, kmsg.NewProduceRequestTopicPartition())
	}
	c := w.dial()
	c.send(huge)
	c.closed()
	for _, v := range []int16{3, 9} {
		good := produce(v, 1, "t", 0, batch("a")).AppendTo(nil)
		if err := checkProduceShape(good, v); err != nil {
			t.Errorf("version %d: %v", v, err)
		}
		for n := range good {
			if err := checkProduceShape(good[:n], v); n < len(good)-1 && !errors.Is(err, wire.ErrFrame) {
				t.Fatalf("version %d cut to %d of %d bytes: %v", v, n, len(good), err)
			}
		}
	}
}

func FuzzProduceShape(f *testing.F) {
	for v := int16(0); v <= 9; v++ {
		f.Add(produce(v, 1, "topic", 3, batch("a")).AppendTo(nil), v)
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		if version < 0 || version > 9 || checkProduceShape(body, version) != nil {
			return
		}
		req := kmsg.NewPtrProduceRequest()
		req.Version = version
		if req.ReadFrom(body) == nil && len(req.Topics) > maxProducePartitions {
			t.Fatalf("%d topics passed", len(req.Topics))
		}
	})
}

func TestArmedFailpointLosesTheAnswerOfACommittedBatch(t *testing.T) {
	set := failpoint.New()
	w := newWorld(t, func(c *Config) { c.Failpoints = set })
	w.create("t", 1)
	set.Arm(beforeAnswer, failpoint.Action{Kind: failpoint.Error, Nth: 2})
	c := w.dial()
	c.produce(produce(9, -1, "t", 0, batch("a")))
	c.send(produce(9, -1, "t", 0, batch("b")))
	c.closed()
	if n := w.part("t", 0).HighWatermark(); n != 2 {
		t.Fatalf("high watermark %d, want 2", n)
	}
}

func TestProduceDeadlineIsTheRequestsTimeout(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	req := produce(9, -1, "t", 0, batch("a"))
	req.TimeoutMillis = 1234
	before := time.Now()
	w.dial().ask(req)
	if d := w.part("t", 0).lastAppend.Deadline.Sub(before); d < 1234*time.Millisecond || d > patience {
		t.Fatalf("deadline %v after the request", d)
	}
}
