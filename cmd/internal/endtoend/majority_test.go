package endtoend

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	lonelyPartitions = 6
	lonelyFor        = 3 * time.Second // longer than a leader's lease
)

// Two of three nodes are killed under load. The third one alone is no majority: it must not acknowledge anything, however it is
// asked, and what was acknowledged before is there, once, when the others are back.
func TestNothingIsAcknowledgedWhileTwoOfThreeNodesAreDead(t *testing.T) {
	survivors := []int{1, 2, 3}
	if testing.Short() {
		survivors = survivors[1:2]
	}
	c := newCluster(t)
	must(t, "mqclient", "topic", "create", "-addr", c.addrs[0], "-topic", "t", "-partitions", fmt.Sprint(lonelyPartitions), "-replication-factor", "3")
	l := startLoad(t, c.addrs)
	l.reach(t, 2000)
	for _, survivor := range survivors {
		var victims []int
		for id := 1; id <= 3; id++ {
			if id != survivor {
				victims = append(victims, id)
			}
		}
		for _, id := range victims {
			if err := c.nodes[id-1].cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range victims {
			<-c.nodes[id-1].done
		}
		dead := time.Now()
		asked := askAlone(t, c.addrs[survivor-1], dead.Add(lonelyFor))
		back := time.Now()
		for _, id := range victims {
			c.start(t, id)
		}
		started, acked := l.between(dead, back)
		t.Logf("node %d alone for %v: %d records sent to it directly, %d given to the producer, %d acknowledged", survivor, back.Sub(dead), asked, started, acked)
		if acked > 0 {
			t.Errorf("node %d alone: %d records that were sent while the other two were dead were acknowledged before those were back", survivor, acked)
		}
		if asked == 0 || started == 0 {
			t.Error("nothing was asked of it, so this proves nothing")
		}
		for _, a := range c.admins {
			ready(t, a)
		}
		l.reach(t, l.count()+2000)
	}
	l.stop(t)
	l.check(t, c.addrs)
}

// load is an idempotent producer that sends numbers at a steady pace and notes when each was sent and acknowledged.
type load struct {
	client *kgo.Client
	cancel context.CancelFunc
	sender sync.WaitGroup

	mu    sync.Mutex
	sent  []sentRecord // by number
	acked int
}

type sentRecord struct {
	started, acked time.Time
	partition      int32
	offset         int64
	err            error
}

func startLoad(t *testing.T, addrs []string) *load {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.MaxBufferedRecords(1<<20), kgo.UnknownTopicRetries(-1), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{client: cl, cancel: cancel}
	t.Cleanup(func() { cancel(); l.sender.Wait(); cl.Close() })
	l.sender.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for range 3 {
				l.send()
			}
			<-tick.C
		}
	})
	return l
}

func (l *load) send() {
	l.mu.Lock()
	n := len(l.sent)
	partition := int32(n % lonelyPartitions)
	l.sent = append(l.sent, sentRecord{started: time.Now(), partition: partition})
	l.mu.Unlock()
	l.client.Produce(context.Background(), &kgo.Record{Partition: partition, Value: []byte(strconv.Itoa(n))}, func(r *kgo.Record, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		s := &l.sent[n]
		s.acked, s.offset, s.err = time.Now(), r.Offset, err
		l.acked++
	})
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

func (l *load) reach(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() error {
		if got := l.count(); got < n {
			return fmt.Errorf("%d records acknowledged, want %d", got, n)
		}
		return nil
	})
}

// between counts the records that were sent within [from, to), and those of them that were acknowledged before to.
func (l *load) between(from, to time.Time) (started, acked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sent {
		if s.started.Before(from) || !s.started.Before(to) {
			continue
		}
		started++
		if !s.acked.IsZero() && s.err == nil && s.acked.Before(to) {
			acked++
		}
	}
	return started, acked
}

func (l *load) stop(t *testing.T) {
	l.cancel()
	l.sender.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := l.client.Flush(ctx); err != nil {
		t.Fatalf("flush: %v", err)
	}
}

// check reads everything back: each number once, at the place that its acknowledgement named.
func (l *load) check(t *testing.T, addrs []string) {
	type place struct {
		partition int32
		offset    int64
	}
	offsets := make(map[int32]kgo.Offset)
	for p := range int32(lonelyPartitions) {
		offsets[p] = kgo.NewOffset().AtStart()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": offsets}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	found := make(map[int][]place)
	for len(found) < len(l.sent) && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			n, err := strconv.Atoi(string(r.Value))
			if err == nil { // else it is one of askAlone's that was appended in the moment before its leader stepped down: nobody was promised anything
				found[n] = append(found[n], place{r.Partition, r.Offset})
			}
		})
	}
	lost, doubled := 0, 0
	for n, s := range l.sent {
		switch at := found[n]; {
		case s.err != nil:
			t.Fatalf("record %d: %v", n, s.err)
		case len(at) == 0:
			lost++
		case len(at) > 1:
			doubled++
		case at[0] != place{s.partition, s.offset}:
			t.Errorf("record %d is at %v, acknowledged at %v", n, at[0], place{s.partition, s.offset})
		}
	}
	if lost+doubled > 0 {
		t.Errorf("of %d acknowledged records %d are lost and %d are there twice", len(l.sent), lost, doubled)
	}
	t.Logf("%d acknowledged records read back, each once", len(l.sent))
}

// askAlone asks one node, past all that clients do, to append a record to each partition with acks=all, until the end, and returns
// how often it did.
func askAlone(t *testing.T, addr string, until time.Time) (asked int) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestTimeoutOverhead(time.Second), kgo.RequestRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for ; time.Now().Before(until) || asked == 0 && time.Now().Before(until.Add(patience)); time.Sleep(5 * time.Millisecond) {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 200
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = "t"
		for p := range int32(lonelyPartitions) {
			part := kmsg.NewProduceRequestTopicPartition()
			part.Partition, part.Records = p, oneRecord("asked alone")
			topic.Partitions = append(topic.Partitions, part)
		}
		req.Topics = append(req.Topics, topic)
		answer, err := req.RequestWith(t.Context(), cl.SeedBrokers()[0])
		if err != nil {
			t.Logf("%s: %v", addr, err)
			continue
		}
		for _, p := range answer.Topics[0].Partitions {
			asked++
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case err == nil:
				t.Errorf("%s alone appended to partition %d at offset %d and acknowledged it", addr, p.Partition, p.BaseOffset)
			case !kerr.IsRetriable(err) && !errors.Is(err, kerr.NotEnoughReplicas):
				t.Errorf("%s alone answers partition %d: %v, want an error after which clients try again", addr, p.Partition, err)
			}
		}
	}
	return asked
}

// oneRecord is a batch of one record without a producer id.
func oneRecord(value string) []byte {
	rec := kmsg.NewRecord()
	rec.Value = []byte(value)
	rec.Length = int32(len(rec.AppendTo(nil)) - 1) // its own length takes one byte while it is zero
	batch := kmsg.NewRecordBatch()
	batch.PartitionLeaderEpoch, batch.Magic = -1, 2
	batch.ProducerID, batch.ProducerEpoch, batch.FirstSequence = -1, -1, -1
	batch.FirstTimestamp = time.Now().UnixMilli()
	batch.MaxTimestamp = batch.FirstTimestamp
	batch.NumRecords, batch.Records = 1, rec.AppendTo(nil)
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}
