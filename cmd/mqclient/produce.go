package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"gopherlog/cmd/internal/cli"
)

type produceCmd struct {
	Topic       string   `help:"Topic to write to; made if missing, where the cluster allows it." required:"" placeholder:"NAME"`
	Key         *string  `help:"Key of the record, or of every line." placeholder:"TEXT"`
	Value       *string  `help:"Value of the one record to write." placeholder:"TEXT" xor:"source"`
	File        string   `help:"File whose content is the value of the one record to write." type:"existingfile" placeholder:"FILE" xor:"source"`
	Keyed       bool     `help:"Lines of standard input are KEY<TAB>VALUE." xor:"source"`
	Header      []string `help:"Header of the record, as NAME=TEXT; may be repeated." sep:"none" placeholder:"NAME=TEXT"`
	Partition   *int32   `help:"Partition to write to, whatever the key."`
	Partitioner string   `help:"How a key chooses its partition: ${enum}. murmur2 is that of Kafka's Java client." enum:"fnv1a,murmur2" default:"fnv1a"`
	Acks        string   `help:"Whose acknowledgement to wait for: all (a majority holds the record), 1 (the leader), 0 (nobody)." enum:"all,1,0" default:"all"`
	Compression string   `help:"${enum}." enum:"none,gzip,snappy,lz4,zstd" default:"none"`
}

// produced is one acknowledged record.
type produced struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// maxLine bounds one line of standard input.
const maxLine = 32 << 20

// Run sends the records and prints where each went, in the order of the acknowledgements.
func (c *produceCmd) Run(s *session) error {
	headers, err := parseHeaders(c.Header)
	if err != nil {
		return err
	}
	client, err := s.connect(c.options(s)...)
	if err != nil {
		return err
	}
	defer client.Close()
	w := &produceWriter{s: s, client: client, cmd: c, headers: headers}
	if err := w.feed(); err != nil {
		return err
	}
	if err := client.Flush(s.ctx); err != nil {
		return fmt.Errorf("stopped before everything was acknowledged: %w", err)
	}
	return w.result()
}

func (c *produceCmd) options(s *session) []kgo.Opt {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	opts := []kgo.Opt{
		kgo.AllowAutoTopicCreation(), kgo.RecordDeliveryTimeout(s.timeout), kgo.UnknownTopicRetries(20),
		kgo.ProducerBatchCompression(codecs[c.Compression]), kgo.RecordPartitioner(c.partitioner()),
	}
	switch c.Acks {
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	}
	return opts
}

func (c *produceCmd) partitioner() kgo.Partitioner {
	switch {
	case c.Partition != nil:
		return kgo.ManualPartitioner()
	case c.Partitioner == "murmur2":
		return kgo.StickyKeyPartitioner(nil)
	}
	return kgo.StickyKeyPartitioner(fnv1a)
}

// fnv1a routes a key: the 32-bit FNV-1a hash modulo the number of partitions.
func fnv1a(key []byte, partitions int) int {
	h := fnv.New32a()
	h.Write(key)
	return int(h.Sum32() % uint32(partitions))
}

func parseHeaders(list []string) (out []kgo.RecordHeader, err error) {
	for _, h := range list {
		k, v, ok := strings.Cut(h, "=")
		if !ok {
			return nil, cli.Usage(fmt.Errorf("-header is %q: give NAME=TEXT", h))
		}
		out = append(out, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	return out, nil
}

// produceWriter sends records and collects their fates.
type produceWriter struct {
	s       *session
	client  *kgo.Client
	cmd     *produceCmd
	headers []kgo.RecordHeader

	mu     sync.Mutex
	failed int
	first  error
}

func (w *produceWriter) feed() error {
	c := w.cmd
	key := []byte(nil)
	if c.Key != nil {
		key = []byte(*c.Key)
	}
	switch {
	case c.Value != nil:
		w.send(key, []byte(*c.Value))
		return nil
	case c.File != "":
		b, err := os.ReadFile(c.File)
		if err != nil {
			return cli.Environment(fmt.Errorf("-file: %w", err))
		}
		w.send(key, b)
		return nil
	}
	return w.lines(key)
}

// lines sends each line of standard input.
func (w *produceWriter) lines(key []byte) error {
	in := bufio.NewScanner(w.s.in)
	in.Buffer(make([]byte, 64<<10), maxLine)
	for n := 1; in.Scan(); n++ {
		line := bytes.Clone(in.Bytes())
		if w.cmd.Keyed {
			k, v, ok := bytes.Cut(line, []byte{'\t'})
			if !ok {
				return cli.Usage(fmt.Errorf("line %d of standard input has no tab between key and value", n))
			}
			w.send(k, v)
			continue
		}
		w.send(key, line)
	}
	err := in.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		return cli.Usage(fmt.Errorf("a line of standard input is longer than %d bytes: use -file", maxLine))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return cli.Environment(fmt.Errorf("read standard input: %w", err))
	}
	return nil
}

// send hands a record over; it waits while the client's buffer is full.
func (w *produceWriter) send(key, value []byte) {
	r := &kgo.Record{Topic: w.cmd.Topic, Key: key, Value: value, Headers: w.headers}
	if w.cmd.Partition != nil {
		r.Partition = *w.cmd.Partition
	}
	w.client.Produce(w.s.ctx, r, w.acknowledged)
}

func (w *produceWriter) acknowledged(r *kgo.Record, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		err = w.s.print(produced{r.Topic, r.Partition, r.Offset}, "produced to %s partition=%d offset=%d", r.Topic, r.Partition, r.Offset)
	}
	if err != nil {
		w.failed++
		if w.first == nil {
			w.first = err
		}
	}
}

func (w *produceWriter) result() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == 0 {
		return nil
	}
	return refused(fmt.Sprintf("%d record(s) were not acknowledged by topic %s", w.failed, w.cmd.Topic), w.first, "")
}
