package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"gopherlog/cmd/internal/cli"
)

type produceCmd struct {
	Topic       string   `help:"Topic to write to; made if missing, where the cluster allows it." required:"" placeholder:"NAME"`
	Key         *string  `help:"Key of the record, or of every line." placeholder:"TEXT" xor:"key"`
	Value       *string  `help:"Value of the one record to write." placeholder:"TEXT" xor:"source"`
	File        string   `help:"File whose content is the value of the one record to write." type:"existingfile" placeholder:"FILE" xor:"source"`
	Keyed       bool     `help:"Lines of standard input are KEY<TAB>VALUE." xor:"source,key"`
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
	Offset    int64  `json:"offset"` // -1: with acks=0 nobody tells it
}

// maxLine bounds one line of standard input.
const maxLine = 32 << 20

// Run sends the records and prints where each went, in the order of the acknowledgements.
func (c *produceCmd) Run(s *session) error {
	if err := givenTopic(c.Topic); err != nil {
		return err
	}
	headers, err := parseHeaders(c.Header)
	if err != nil {
		return err
	}
	w := &produceWriter{s: s, cmd: c, headers: headers}
	if w.client, err = s.connect(c.options(s, w)...); err != nil {
		return err
	}
	defer w.client.Close()
	broken := w.feed()
	return errors.Join(broken, w.wait())
}

func (c *produceCmd) options(s *session, w *produceWriter) []kgo.Opt {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	opts := []kgo.Opt{
		// The library takes no shorter delivery timeout than a second.
		kgo.AllowAutoTopicCreation(), kgo.RecordDeliveryTimeout(max(s.timeout, time.Second)), kgo.UnknownTopicRetries(20),
		kgo.ProducerBatchCompression(codecs[c.Compression]), kgo.RecordPartitioner(c.partitioner(w)),
	}
	switch c.Acks {
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	}
	return opts
}

func (c *produceCmd) partitioner(w *produceWriter) kgo.Partitioner {
	switch {
	case c.Partition != nil:
		return kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int { return w.toOne })
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

	unknown sync.WaitGroup // fates
	mu      sync.Mutex
	open    int // records whose fate is not known
	failed  int
	first   error
	mute    error // why a fate could not be printed
	has     int   // partitions of the topic, of which the one that was asked for is none; 0: it is
}

// toOne chooses the partition that was asked for, whatever the record.
func (w *produceWriter) toOne(_ *kgo.Record, partitions int) int {
	number := int(*w.cmd.Partition)
	if number < 0 || number >= partitions {
		w.mu.Lock()
		w.has = partitions
		w.mu.Unlock()
	}
	return number
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

// lines sends each line of standard input, until Ctrl-C: a line that does not come must not keep the process.
func (w *produceWriter) lines(key []byte) error {
	ctx, cancel := context.WithCancel(w.s.ctx)
	defer cancel()
	lines, broken := make(chan []byte), error(nil)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(w.s.in)
		in.Buffer(make([]byte, 64<<10), maxLine)
		for in.Scan() {
			select {
			case lines <- bytes.Clone(in.Bytes()):
			case <-ctx.Done():
				return
			}
		}
		broken = in.Err()
	}()
	for n := 1; ; n++ {
		select {
		case line, more := <-lines:
			if !more {
				return inputError(broken)
			}
			if err := w.line(n, key, line); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *produceWriter) line(n int, key, line []byte) error {
	if !w.cmd.Keyed {
		w.send(key, line)
		return nil
	}
	k, v, ok := bytes.Cut(line, []byte{'\t'})
	if !ok {
		return cli.Usage(fmt.Errorf("line %d of standard input has no tab between key and value: what stands before it was sent, and nothing from there on", n))
	}
	w.send(k, v)
	return nil
}

// inputError says why standard input could not be read to its end; nil: it was.
func inputError(err error) error {
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return cli.Usage(fmt.Errorf("a line of standard input is longer than %d bytes: use -file", maxLine))
	case err != nil:
		return cli.Environment(fmt.Errorf("read standard input: %w", err))
	}
	return nil
}

// send hands a record over; it waits while the client's buffer is full.
func (w *produceWriter) send(key, value []byte) {
	r := &kgo.Record{Topic: w.cmd.Topic, Key: key, Value: value, Headers: w.headers}
	w.unknown.Add(1)
	w.mu.Lock()
	w.open++
	w.mu.Unlock()
	w.client.Produce(w.s.ctx, r, w.acknowledged)
}

func (w *produceWriter) acknowledged(r *kgo.Record, err error) {
	defer w.unknown.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	var mute error
	switch {
	case err != nil:
		w.failed++
		w.first = cmp.Or(w.first, err)
	case w.cmd.Acks == "0": // nobody told the offset
		mute = w.s.print(produced{r.Topic, r.Partition, -1}, "sent to %s partition=%d, and nobody says whether it is there", r.Topic, r.Partition)
	default:
		mute = w.s.print(produced{r.Topic, r.Partition, r.Offset}, "produced to %s partition=%d offset=%d", r.Topic, r.Partition, r.Offset)
	}
	w.mute = cmp.Or(w.mute, mute)
}

// wait ends when the fate of each record is known, or with Ctrl-C, and says what is not well.
func (w *produceWriter) wait() error {
	if w.client.Flush(w.s.ctx) == nil {
		w.unknown.Wait() // a record that was never buffered is not waited for by Flush
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.has > 0:
		return noPartition(w.cmd.Topic, w.has, *w.cmd.Partition)
	case w.s.ctx.Err() != nil && w.open+w.failed > 0:
		return fmt.Errorf("stopped: %d record(s) are not acknowledged by topic %s, and may be there or not", w.open+w.failed, w.cmd.Topic)
	case w.failed > 0:
		return refused(fmt.Sprintf("%d record(s) were not acknowledged by topic %s", w.failed, w.cmd.Topic), w.first, "")
	case w.mute != nil:
		return fmt.Errorf("every record is acknowledged, but where some went could not be printed: %w", w.mute)
	}
	return nil
}
