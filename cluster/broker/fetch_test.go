package broker

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/engine/wire"
)

// fill appends batches of the given sizes in records.
func (w *world) fill(topic string, number int32, sizes ...int) {
	w.t.Helper()
	c := w.dial()
	for i, n := range sizes {
		values := make([]string, n)
		for j := range values {
			values[j] = fmt.Sprintf("%s/%d/%d.%d", topic, number, i, j)
		}
		if out := c.produce(produce(9, -1, topic, number, batch(values...))); out.ErrorCode != 0 {
			w.t.Fatalf("code %d", out.ErrorCode)
		}
	}
}

func batches(t *testing.T, b []byte) (out []record.Batch) {
	t.Helper()
	for len(b) > 0 {
		x, rest, err := record.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		out, b = append(out, x), rest
	}
	return out
}

func TestFetchReturnsWholeBatchFromTheOneThatHoldsTheOffset(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 3, 4, 5)
	for v := fetchAPI.min; v <= fetchAPI.max; v++ {
		for offset, want := range map[int64][]int64{0: {0, 3, 7}, 2: {0, 3, 7}, 3: {3, 7}, 5: {3, 7}, 11: {7}, 12: nil} {
			p := w.dial().fetch(fetch(v, "t", offset))[0]
			var got []int64
			for _, b := range batches(t, p.RecordBatches) {
				got = append(got, b.BaseOffset())
			}
			if p.ErrorCode != 0 || p.HighWatermark != 12 || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("version %d offset %d: code %d, high watermark %d, batches at %v, want %v", v, offset, p.ErrorCode, p.HighWatermark, got, want)
			}
		}
	}
}

func TestFetchReturnsOneBatchAboveTheLimits(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.fill("t", 0, 50, 50)
	w.fill("t", 1, 50)
	req := fetch(12, "t", 0, 0)
	req.MaxBytes = 1
	req.Topics[0].Partitions[0].PartitionMaxBytes = 1
	parts := w.dial().fetch(req)
	if n := len(batches(t, parts[0].RecordBatches)); n != 1 {
		t.Errorf("%d batches of the first partition, want exactly 1", n)
	}
	if n := len(parts[1].RecordBatches); n != 0 {
		t.Errorf("%d bytes of the second partition, want none", n)
	}
	req = fetch(12, "t", 100, 0)
	req.MaxBytes = 1
	parts = w.dial().fetch(req)
	if n := len(batches(t, parts[1].RecordBatches)); n != 1 {
		t.Errorf("%d batches of the only partition that has any, want 1", n)
	}
}

func TestFetchStaysWithinTheResponsesSize(t *testing.T) {
	w := newWorld(t)
	w.create("t", 3)
	for n := range int32(3) {
		w.fill("t", n, 20, 20, 20, 20)
	}
	one := len(batches(t, w.dial().fetch(fetch(12, "t", 0))[0].RecordBatches)[0])
	req := fetch(12, "t", 0, 0, 0)
	req.MaxBytes = int32(one*6 + one/2)
	total := 0
	for _, p := range w.dial().fetch(req) {
		total += len(p.RecordBatches)
	}
	if total > int(req.MaxBytes) || total < one*4 {
		t.Fatalf("%d bytes with max bytes %d and batches of %d", total, req.MaxBytes, one)
	}
}

func TestFetchAboveHighWatermarkIsEmptyNotAnError(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	p := w.part("t", 0)
	p.hold = true
	c := w.dial()
	c.send(produce(9, -1, "t", 0, batch("uncommitted")))
	eventually(t, "the batch is in the log", func() bool { return p.EndOffset() == 1 })
	for _, offset := range []int64{0, 1} {
		if out := w.dial().fetch(fetch(12, "t", offset))[0]; out.ErrorCode != 0 || len(out.RecordBatches) != 0 {
			t.Errorf("offset %d: code %d, %d bytes", offset, out.ErrorCode, len(out.RecordBatches))
		}
	}
	if out := w.dial().fetch(fetch(12, "t", 2))[0]; out.ErrorCode != codeOffsetOutOfRange {
		t.Errorf("above the log end: code %d", out.ErrorCode)
	}
	p.release()
}

func TestFetchIsParkedUntilMinBytes(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	p := w.part("t", 1)
	c := w.dial()
	req := fetch(12, "t", 0, 0)
	req.MaxWaitMillis, req.MinBytes = 120_000, int32(len(batch("t/1/0.0"))+1)
	start := time.Now()
	c.send(req)
	eventually(t, "the fetch is parked", func() bool { return p.parked() == 1 && w.part("t", 0).parked() == 1 })
	w.fill("t", 1, 1)
	eventually(t, "it is parked again: one batch is not enough", func() bool { return p.parked() == 1 && p.HighWatermark() == 1 })
	w.fill("t", 0, 1)
	parts := c.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions
	if len(batches(t, parts[0].RecordBatches)) != 1 || len(batches(t, parts[1].RecordBatches)) != 1 {
		t.Fatalf("%d and %d bytes", len(parts[0].RecordBatches), len(parts[1].RecordBatches))
	}
	if d := time.Since(start); d > 110*time.Second {
		t.Fatalf("answered after %v: at the end of max wait", d)
	}
	eventually(t, "nothing is parked", func() bool { return p.parked() == 0 && w.part("t", 0).parked() == 0 })
}

func TestParkedFetchIsAnsweredAtMaxWait(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	req := fetch(12, "t", 0)
	req.MaxWaitMillis = 60
	start := time.Now()
	if out := w.dial().fetch(req)[0]; out.ErrorCode != 0 || len(out.RecordBatches) != 0 {
		t.Fatalf("%+v", out)
	}
	if d := time.Since(start); d < 50*time.Millisecond {
		t.Fatalf("answered after %v", d)
	}
	if n := w.part("t", 0).readCount(); n != 1 {
		t.Fatalf("a parked fetch read %d times although nothing moved: it polls", n)
	}
}

func TestParkedFetchHoldsUpNoOtherConnection(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	req := fetch(12, "t", 0)
	req.MaxWaitMillis = 15_000
	c.send(req)
	eventually(t, "the fetch is parked", func() bool { return w.part("t", 0).parked() == 1 })
	if out := w.dial().produce(produce(9, -1, "t", 0, batch("wakes it"))); out.ErrorCode != 0 {
		t.Fatalf("code %d", out.ErrorCode)
	}
	if n := len(batches(t, c.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches)); n != 1 {
		t.Fatalf("%d batches", n)
	}
}

func TestLossOfLeadershipAnswersParkedFetches(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	p := w.part("t", 0)
	c := w.dial()
	req := fetch(12, "t", 0)
	req.MaxWaitMillis = 15_000
	c.send(req)
	eventually(t, "the fetch is parked", func() bool { return p.parked() == 1 })
	p.lead(false, 2)
	if out := c.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]; out.ErrorCode != codeNotLeaderOrFollower {
		t.Fatalf("code %d, want NOT_LEADER_OR_FOLLOWER", out.ErrorCode)
	}
}

func TestParkedFetchEndsWithItsConnection(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	p := w.part("t", 0)
	c := w.dial()
	req := fetch(12, "t", 0)
	req.MaxWaitMillis = 60_000
	c.send(req)
	eventually(t, "the fetch is parked", func() bool { return p.parked() == 1 })
	c.conn.Close()
	eventually(t, "it is gone", func() bool { return p.parked() == 0 && w.broker.parked.count.Load() == 0 })
}

func TestShutdownAnswersParkedFetches(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	req := fetch(12, "t", 0)
	req.MaxWaitMillis = 60_000
	c.send(req)
	eventually(t, "the fetch is parked", func() bool { return w.part("t", 0).parked() == 1 })
	w.broker.Shutdown(timeout(t))
	c.receive(req)
	c.closed()
}

func TestErrorInOnePartitionAnswersAtOnce(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.part("t", 1).lead(false, 1)
	req := fetch(12, "t", 0, 0)
	req.MaxWaitMillis = 60_000
	parts := w.dial().fetch(req)
	if parts[0].ErrorCode != 0 || parts[1].ErrorCode != codeNotLeaderOrFollower {
		t.Fatalf("codes %d, %d", parts[0].ErrorCode, parts[1].ErrorCode)
	}
}

func TestFetchChecksLeaderEpochs(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.part("t", 0).lead(true, 5)
	for v := int16(9); v <= 12; v++ {
		for epoch, want := range map[int32]int16{-1: 0, 5: 0, 4: codeFencedLeaderEpoch, 6: codeUnknownLeaderEpoch} {
			req := fetch(v, "t", 0)
			req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
			if out := w.dial().fetch(req)[0]; out.ErrorCode != want {
				t.Errorf("version %d epoch %d: code %d, want %d", v, epoch, out.ErrorCode, want)
			}
		}
	}
}

func TestFetchBelowVersionNineChecksNoEpoch(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.part("t", 0).lead(true, 5)
	if out := w.dial().fetch(fetch(8, "t", 0))[0]; out.ErrorCode != 0 {
		t.Fatalf("code %d", out.ErrorCode)
	}
}

func TestDivergedConsumerIsToldWhere(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	p := w.part("t", 0)
	w.fill("t", 0, 4) // epoch 1: [0, 4)
	p.lead(true, 3)
	w.fill("t", 0, 2) // epoch 3: [4, 6)
	req := fetch(12, "t", 5)
	req.MaxWaitMillis = 60_000
	req.Topics[0].Partitions[0].LastFetchedEpoch = 2 // the consumer read [4, 5) of an epoch that this log does not have
	out := w.dial().fetch(req)[0]
	if out.ErrorCode != 0 || out.DivergingEpoch.Epoch != 1 || out.DivergingEpoch.EndOffset != 4 || len(out.RecordBatches) != 0 {
		t.Fatalf("%+v", out)
	}
	req.Topics[0].Partitions[0].LastFetchedEpoch = 3
	if out = w.dial().fetch(req)[0]; out.DivergingEpoch.Epoch != -1 || len(out.RecordBatches) == 0 {
		t.Fatalf("%+v", out)
	}
}

func TestFetchSessionsAreNeverGiven(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	req := fetch(12, "t", 0)
	for _, epoch := range []int32{0, -1} { // kafka-go names session -1 in every fetch
		for _, id := range []int32{0, -1, 77} {
			req.SessionID, req.SessionEpoch = id, epoch
			if resp := w.dial().ask(req).(*kmsg.FetchResponse); resp.SessionID != 0 || resp.ErrorCode != codeNone || len(resp.Topics) != 1 {
				t.Errorf("session %d epoch %d: answered session %d, code %d, %d topics", id, epoch, resp.SessionID, resp.ErrorCode, len(resp.Topics))
			}
		}
	}
	req.SessionID, req.SessionEpoch = 77, 3
	if resp := w.dial().ask(req).(*kmsg.FetchResponse); resp.ErrorCode != codeFetchSessionIDNotFound {
		t.Fatalf("code %d", resp.ErrorCode)
	}
}

func TestReadUncommittedGetsNoAbortedTransactions(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	w.fill("t", 0, 1)
	for isolation, null := range map[int8]bool{0: true, 1: false} {
		req := fetch(11, "t", 0)
		req.IsolationLevel = isolation
		if out := w.dial().fetch(req)[0]; (out.AbortedTransactions == nil) != null || len(out.AbortedTransactions) != 0 {
			t.Errorf("isolation %d: aborted transactions %v (null: %v)", isolation, out.AbortedTransactions, out.AbortedTransactions == nil)
		}
	}
}

func TestEmptyRecordsAreNeverNull(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	for v := fetchAPI.min; v <= fetchAPI.max; v++ {
		for _, offset := range []int64{0, 9} {
			if out := w.dial().fetch(fetch(v, "t", offset))[0]; out.RecordBatches == nil {
				t.Errorf("version %d offset %d: null records", v, offset)
			}
		}
	}
}

// readFile reads a piece as the socket would get it.
func pieceBytes(t *testing.T, resp wire.Response) (out []byte) {
	t.Helper()
	for _, p := range resp.Pieces {
		b := p.Bytes
		if p.File != nil {
			b = make([]byte, p.Len)
			if _, err := p.File.ReadAt(b, p.Pos); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, b...)
	}
	return out
}

// TestFetchEncoderEqualsTheGeneratedOne compares the hand-written encoder with kmsg's, byte for byte.
func TestFetchEncoderEqualsTheGeneratedOne(t *testing.T) {
	const seed = 20
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	w.create("data", 1)
	w.fill("data", 0, 1, 2, 300, 4, 5, 6)
	l := w.part("data", 0).log
	for i := range 400 {
		version := fetchAPI.min + int16(rng.IntN(int(fetchAPI.max-fetchAPI.min)+1))
		f, want := randomFetch(t, rng, l, version)
		resp := encodeFetch(f)
		if got := pieceBytes(t, resp); !bytes.Equal(got, want.AppendTo(nil)) {
			t.Fatalf("case %d version %d:\ngot  %x\nwant %x", i, version, got, want.AppendTo(nil))
		}
		resp.Release()
	}
}

func randomFetch(t *testing.T, rng *rand.Rand, l *log.Log, version int16) (*fetchCall, *kmsg.FetchResponse) {
	f := &fetchCall{b: &Broker{cfg: Config{NodeID: 99}}, req: &wire.Request{Key: 1, Version: version}, msg: kmsg.NewFetchRequest()}
	f.done = f.over
	f.msg.IsolationLevel = int8(rng.IntN(2))
	want := kmsg.NewPtrFetchResponse()
	want.Version = version
	want.Topics = []kmsg.FetchResponseTopic{}
	n := rng.IntN(3)
	total := 0
	var numbers [][]int
	for range n {
		k := rng.IntN(4)
		total += k
		numbers = append(numbers, make([]int, k))
	}
	f.parts = make([]fetchPart, total)
	k := 0
	for i := range n {
		in, out := kmsg.NewFetchRequestTopic(), kmsg.NewFetchResponseTopic()
		in.Topic = string(bytes.Repeat([]byte("t"), rng.IntN(200)))
		if out.Topic = in.Topic; version >= fetchNamesByID {
			in.TopicID = meta.TopicID{byte(rng.Int()), 15: byte(i)}
			out.Topic, out.TopicID = "", in.TopicID
		}
		out.Partitions = []kmsg.FetchResponseTopicPartition{}
		in.Partitions = make([]kmsg.FetchRequestTopicPartition, len(numbers[i]))
		for j := range in.Partitions {
			in.Partitions[j].Partition = rng.Int32()
			f.parts[k].in = &in.Partitions[j]
			p := randomPart(t, rng, l, &f.parts[k], f.msg.IsolationLevel)
			if p.ErrorCode != 0 && version >= fetchHasLeaderHint && rng.IntN(2) == 0 {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = randomHint(rng, f, &f.parts[k], want)
			}
			out.Partitions = append(out.Partitions, p)
			k++
		}
		f.msg.Topics = append(f.msg.Topics, in)
		want.Topics = append(want.Topics, out)
	}
	return f, want
}

// randomHint points a client elsewhere.
func randomHint(rng *rand.Rand, f *fetchCall, p *fetchPart, want *kmsg.FetchResponse) (node, epoch int32) {
	br := &meta.Broker{ID: meta.NodeID(rng.Int32N(90)), Host: string(bytes.Repeat([]byte("h"), 1+rng.IntN(150))), Port: rng.Int32N(1 << 16)}
	out := kmsg.NewFetchResponseBroker()
	out.NodeID, out.Host, out.Port = int32(br.ID), br.Host, br.Port
	if rng.IntN(2) == 0 {
		br.Rack = "rack"
		out.Rack = &br.Rack
	}
	f.hints.brokers, want.Brokers = append(f.hints.brokers, br), append(want.Brokers, out)
	p.hint = &leaderHint{node: br.ID, epoch: rng.Int32()}
	return int32(br.ID), p.hint.epoch
}

func randomPart(t *testing.T, rng *rand.Rand, l *log.Log, p *fetchPart, isolation int8) kmsg.FetchResponseTopicPartition {
	out := kmsg.NewFetchResponseTopicPartition()
	out.Partition = p.in.Partition
	out.RecordBatches = []byte{}
	if isolation != 0 {
		out.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	p.res.DivergingEpoch, p.res.DivergingEnd = -1, -1
	switch rng.IntN(4) {
	case 0:
		p.code = codeOffsetOutOfRange
		out.ErrorCode, out.HighWatermark, out.LastStableOffset, out.LogStartOffset = p.code, -1, -1, -1
		return out
	case 1:
		p.res.DivergingEpoch, p.res.DivergingEnd = rng.Int32N(1000), rng.Int64N(1<<40)
		out.DivergingEpoch.Epoch, out.DivergingEpoch.EndOffset = p.res.DivergingEpoch, p.res.DivergingEnd
	case 2:
		s, err := l.Slice(rng.Int64N(l.EndOffset()), l.EndOffset(), rng.IntN(5000), true)
		if err != nil {
			t.Fatal(err)
		}
		p.res.Slice = s
		if out.RecordBatches, err = s.ReadAll([]byte{}); err != nil {
			t.Fatal(err)
		}
	}
	p.res.HighWatermark, p.res.LastStable, p.res.LogStart = rng.Int64(), rng.Int64(), rng.Int64()
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = p.res.HighWatermark, p.res.LastStable, p.res.LogStart
	return out
}

func TestFetchOfALargeAnswerIsWhatIsStored(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	c := w.dial()
	value := string(bytes.Repeat([]byte("0123456789abcdef"), 2<<10))
	for range 40 {
		c.produce(produce(9, -1, "t", 0, batch(value)))
	}
	want, err := w.part("t", 0).Read(partition.ReadRequest{MaxBytes: 64 << 20, CurrentEpoch: -1, LastFetchedEpoch: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer want.Slice.Release()
	all, err := want.Slice.ReadAll(nil)
	if err != nil {
		t.Fatal(err)
	}
	req := fetch(12, "t", 0)
	req.Topics[0].Partitions[0].PartitionMaxBytes = 64 << 20
	if got := c.fetch(req)[0].RecordBatches; !bytes.Equal(got, all) || len(got) < 40*32<<10 {
		t.Fatalf("%d bytes fetched, %d stored", len(got), len(all))
	}
}

// TestAnswerUnderWayKeepsItsMemory reads an answer only after many later fetches were answered: none may have been given the
// memory that the first one is still sent from.
func TestAnswerUnderWayKeepsItsMemory(t *testing.T) {
	w := newWorld(t)
	w.create("large", 1)
	w.create("small", 3)
	w.fill("small", 0, 1, 2, 3)
	c := w.dial()
	value := string(bytes.Repeat([]byte("0123456789abcdef"), 32<<10))
	for range 24 {
		c.produce(produce(9, -1, "large", 0, batch(value)))
	}
	req := fetch(12, "large", 0)
	req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = 64<<20, 64<<20
	c.send(req)
	other := w.dial()
	for i := range 300 {
		if i%10 == 0 {
			parked := fetch(12, "small", 0)
			parked.Topics[0].Partitions[0].FetchOffset, parked.MaxWaitMillis = w.part("small", 0).EndOffset(), 1
			other.fetch(parked)
		}
		if out := other.fetch(fetch(12, "small", 0, 0, 0)); len(out) != 3 || len(out[0].RecordBatches) == 0 {
			t.Fatalf("fetch %d: %+v", i, out)
		}
	}
	want, err := w.part("large", 0).Read(partition.ReadRequest{MaxBytes: 64 << 20, CurrentEpoch: -1, LastFetchedEpoch: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer want.Slice.Release()
	all, err := want.Slice.ReadAll(nil)
	if err != nil {
		t.Fatal(err)
	}
	got := c.receive(req).(*kmsg.FetchResponse).Topics[0]
	if got.Topic != "large" || !bytes.Equal(got.Partitions[0].RecordBatches, all) {
		t.Fatalf("topic %q, %d bytes fetched, %d stored", got.Topic, len(got.Partitions[0].RecordBatches), len(all))
	}
}
