package broker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// codecs by the names that franz-go, kcat and Kafka share.
var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func franz(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(addr, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// roundTrip produces n records to each partition with franz-go and reads them back.
func roundTrip(t testing.TB, ctx context.Context, addr, topic string, partitions int32, n int, opts ...kgo.Opt) {
	t.Helper()
	cl := franz(t, addr, opts...)
	for i := range n {
		for p := range partitions {
			cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: p, Key: []byte("k"), Value: fmt.Appendf(nil, "%d/%d", p, i)}, func(r *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	from := map[int32]kgo.Offset{}
	for p := range partitions {
		from[p] = kgo.NewOffset().AtStart()
	}
	reader := franz(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchMaxWait(200*time.Millisecond))
	next := make([]int, partitions)
	for total := 0; total < n*int(partitions); {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprintf("%d/%d", r.Partition, next[r.Partition]); string(r.Value) != want || r.Offset != int64(next[r.Partition]) {
				t.Fatalf("partition %d offset %d: %q, want %q at %d", r.Partition, r.Offset, r.Value, want, next[r.Partition])
			}
			next[r.Partition]++
			total++
		})
	}
}

func TestFranzGoProducesAndConsumesWithEveryCodec(t *testing.T) {
	w := newWorld(t)
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			w.create("t-"+name, 3)
			roundTrip(t, timeout(t), w.addr, "t-"+name, 3, 500, kgo.ProducerBatchCompression(codec))
		})
	}
}

func TestFranzGoProducesWithEveryAcks(t *testing.T) {
	w := newWorld(t)
	for name, acks := range map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()} {
		t.Run(name, func(t *testing.T) {
			w.create("acks-"+name, 1)
			opts := []kgo.Opt{kgo.RequiredAcks(acks)}
			if name != "all" {
				opts = append(opts, kgo.DisableIdempotentWrite())
			}
			roundTrip(t, timeout(t), w.addr, "acks-"+name, 1, 200, opts...)
		})
	}
}

func TestKadmAdministersTopics(t *testing.T) {
	w := newWorld(t)
	adm := kadm.NewClient(franz(t, w.addr))
	ctx := timeout(t)
	if r, err := adm.CreateTopic(ctx, 4, 1, map[string]*string{"retention.ms": kadm.StringPtr("1000")}, "adm"); err != nil || r.Err != nil || r.NumPartitions != 4 {
		t.Fatal(r, err)
	}
	roundTrip(t, ctx, w.addr, "adm", 4, 10)
	ends, err := adm.ListEndOffsets(ctx, "adm")
	if err != nil || ends["adm"][3].Offset != 10 {
		t.Fatal(ends, err)
	}
	if c, err := adm.DescribeTopicConfigs(ctx, "adm"); err != nil || len(c[0].Configs) < 8 {
		t.Fatal(c, err)
	}
	if r, err := adm.CreatePartitions(ctx, 2, "adm"); err != nil || r.Error() != nil {
		t.Fatal(r, err)
	}
	if d, err := adm.DescribeAllLogDirs(ctx, nil); err != nil || d[1].Error() != nil {
		t.Fatal(d, err)
	}
	if r, err := adm.DeleteTopics(ctx, "adm"); err != nil || r.Error() != nil {
		t.Fatal(r, err)
	}
	if topics, err := adm.ListTopics(ctx); err != nil || topics.Has("adm") {
		t.Fatal(topics, err)
	}
}

// kcat finds the program or says why the test did not run.
func kcat(t *testing.T) string {
	path, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed (Debian package kafkacat or kcat)")
	}
	return path
}

func run(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(timeout(t), name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

func TestKcatProducesAndConsumesWithEveryCodec(t *testing.T) {
	kc := kcat(t)
	w := newWorld(t)
	var in strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&in, "line %d\n", i)
	}
	for name := range codecs {
		t.Run(name, func(t *testing.T) {
			topic := "kcat-" + name // created by asking for it
			run(t, in.String(), kc, "-b", w.addr, "-P", "-t", topic, "-p", "0", "-z", name)
			out := run(t, "", kc, "-b", w.addr, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-X", "check.crcs=true")
			if out != in.String() {
				t.Fatalf("%d bytes came back of %d", len(out), in.Len())
			}
			// A batch that compression does not make smaller is sent as it is: the first ones hold a line or two.
			seen := map[string]bool{}
			for _, b := range batches(t, w.dial().fetch(fetch(12, topic, 0))[0].RecordBatches) {
				seen[b.Codec().String()] = true
			}
			if !seen[name] {
				t.Errorf("stored with codecs %v, sent with %s", seen, name)
			}
		})
	}
}

const confluentScript = `
import sys
from confluent_kafka import Producer, Consumer, TopicPartition
addr, topic, codec, n = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
failed = []
p = Producer({"bootstrap.servers": addr, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5})
for i in range(n):
    p.produce(topic, value=b"v%d" % i, key=b"k", partition=0, on_delivery=lambda e, m: failed.append(e) if e else None)
    p.poll(0)
p.flush(15)
assert not failed, failed[0]
c = Consumer({"bootstrap.servers": addr, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True, "auto.offset.reset": "earliest"})
c.assign([TopicPartition(topic, 0, 0)])
for i in range(n):
    m = c.poll(15)
    assert m is not None and not m.error(), m and m.error()
    assert m.value() == b"v%d" % i and m.offset() == i, (m.value(), m.offset(), i)
c.close()
print("ok")
`

func TestConfluentPythonProducesAndConsumesWithEveryCodec(t *testing.T) {
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "import confluent_kafka").CombinedOutput(); err != nil {
		t.Skipf("%s has no confluent_kafka (Debian package python3-confluent-kafka): %s", python, out)
	}
	w := newWorld(t)
	for name := range codecs {
		t.Run(name, func(t *testing.T) {
			w.create("py-"+name, 1)
			if out := run(t, "", python, "-c", confluentScript, w.addr, "py-"+name, name, "1000"); strings.TrimSpace(out) != "ok" {
				t.Fatal(out)
			}
		})
	}
}

// TestExternalServer makes, fills, reads and deletes a topic on a server that runs already.
func TestExternalServer(t *testing.T) {
	addr := os.Getenv("MQ_ADDR")
	if addr == "" {
		t.Skip("MQ_ADDR is not set: host:port of a running server")
	}
	ctx := timeout(t)
	adm := kadm.NewClient(franz(t, addr))
	topic := fmt.Sprintf("external-%d", time.Now().UnixNano())
	r, err := adm.CreateTopic(ctx, 3, -1, nil, topic)
	if err != nil || r.Err != nil {
		t.Fatalf("create: %v %v %s", err, r.Err, r.ErrMessage)
	}
	t.Logf("created %s: %d partitions, replication factor %d", topic, r.NumPartitions, r.ReplicationFactor)
	const each = 1000
	start := time.Now()
	roundTrip(t, ctx, addr, topic, 3, each)
	t.Logf("produced and consumed %d records over 3 partitions in %v", 3*each, time.Since(start).Round(time.Millisecond))
	if d, err := adm.DeleteTopic(ctx, topic); err != nil || d.Err != nil {
		t.Fatalf("delete: %v %v", err, d.Err)
	}
}
