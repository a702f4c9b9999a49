package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/scripts/internal/child"
)

const (
	fetchTopic   = "sealed"
	fetchAnswer  = 1 << 20
	fetchSegment = 16 << 20
	fetchVersion = 11
)

// fetchRow reads sealed data from a server process, one answer at a time, beside a process that sends as many bytes of the same files, in
// the same order: so both walk the same pages. The reader is the same: it asks, and reads the answer into one buffer.
func fetchRow(e *env) row {
	answers := e.pick(1500, 30)
	return row{
		name: "fetch sealed, 1 MiB answers", unit: "MB/s", value: megabytes, limit: 0.85, most: heap{bytes: fetchAnswer / 64}, note: "server's CPU",
		open: func(ctx context.Context, dir string) (bare, ours side, end func(), err error) {
			s, err := startServers(ctx, e, filepath.Join(dir, "servers"), 1)
			if err != nil {
				return nil, nil, s.stop, err
			}
			asks, err := seal(ctx, s.addrs, e.pick(8, 2))
			if err != nil {
				return nil, nil, s.stop, fmt.Errorf("%w; the server printed: %s", err, s.all[0].Said())
			}
			segments, err := filepath.Glob(filepath.Join(s.dirs[0], "topics", fetchTopic+"-0", "*.log"))
			if err != nil || len(segments) == 0 {
				return nil, nil, s.stop, fmt.Errorf("segments of %s: %v, %w", fetchTopic, segments, err)
			}
			file, err := startSendfile(segments)
			if err != nil {
				return nil, nil, s.stop, err
			}
			end = func() { file.stop(); s.stop() }
			bare = func(ctx context.Context, _ string) (sample, error) {
				return readAnswers(ctx, file, ranges(asks, segments), answers)
			}
			ours = func(ctx context.Context, _ string) (sample, error) {
				before, err := s.heapOf(ctx, 0)
				if err != nil {
					return sample{}, err
				}
				got, err := readAnswers(ctx, s, asks, answers)
				if err != nil {
					return got, err
				}
				after, err := s.heapOf(ctx, 0)
				got.heap = after.since(before, int64(answers))
				return got, err
			}
			return bare, ours, end, nil
		},
	}
}

// ask is a request and what is known of its answer.
type ask struct {
	request []byte
	prefix  bool // the answer begins with its length
	size    int  // of the answer, without that
}

// ranges asks the sending process for as many bytes of the files as the fetches bring.
func ranges(asks []ask, files []string) []ask {
	sizes := make([]int64, len(files))
	for i, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			return nil
		}
		sizes[i] = st.Size()
	}
	out, file, pos := make([]ask, len(asks)), 0, int64(0)
	for i, a := range asks {
		for tries := 0; pos+int64(a.size) > sizes[file]; tries++ {
			if tries == len(files) {
				return nil
			}
			file, pos = (file+1)%len(files), 0
		}
		out[i] = ask{request: rangeOf(file, pos, a.size), size: a.size}
		pos += int64(a.size)
	}
	return out
}

// readAnswers asks n times, each time when the answer before has been read.
func readAnswers(ctx context.Context, s *servers, asks []ask, n int) (sample, error) {
	if len(asks) == 0 {
		return sample{}, errors.New("nothing to ask for")
	}
	c, err := net.Dial("tcp", s.addrs[0])
	if err != nil {
		return sample{}, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	buf := make([]byte, 2*fetchAnswer)
	read := func(i int) (int, error) {
		a := asks[i%len(asks)]
		if _, err := c.Write(a.request); err != nil {
			return 0, err
		}
		if a.prefix {
			if _, err := io.ReadFull(c, buf[:4]); err != nil {
				return 0, err
			}
			if got := int(binary.BigEndian.Uint32(buf)); got != a.size {
				return 0, fmt.Errorf("answer of %d bytes, want %d", got, a.size)
			}
		}
		return io.ReadFull(c, buf[:a.size])
	}
	for i := range asks { // warms both ends and the page cache
		if _, err := read(i); err != nil {
			return sample{}, err
		}
	}
	cpu, err := spent(s.all)
	if err != nil {
		return sample{}, err
	}
	out, began := sample{ops: int64(n), heap: notCounted}, time.Now()
	for i := range n {
		k, err := read(i)
		if err != nil {
			return sample{}, err
		}
		out.bytes += int64(k)
	}
	out.wall = time.Since(began)
	after, err := spent(s.all)
	out.cpu = after - cpu
	return out, err
}

func startSendfile(paths []string) (*servers, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	p, err := startChild(roleFile, []string{childDir + "=" + strings.Join(paths, string(os.PathListSeparator))}, l)
	if err != nil {
		return nil, err
	}
	return &servers{all: []*child.Process{p}, addrs: []string{l.Addr().String()}}, nil
}

// seal fills segments and returns the fetches that read all sealed ones from the start.
func seal(ctx context.Context, addrs []string, segments int) ([]ask, error) {
	if err := createTopic(ctx, addrs, fetchTopic, 1, 1, fmt.Sprint(fetchSegment)); err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DisableClientMetrics(), kgo.DefaultProduceTopic(fetchTopic),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(64<<10), kgo.UnknownTopicRetries(-1))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	const value = 1000
	for range (segments*fetchSegment + fetchSegment/2) / (64 << 10) {
		var batch []*kgo.Record
		for range 60 {
			batch = append(batch, &kgo.Record{Value: make([]byte, value)})
		}
		if err := cl.ProduceSync(ctx, batch...).FirstErr(); err != nil {
			return nil, err
		}
	}
	c, err := net.Dial("tcp", addrs[0])
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(starting)); err != nil {
		return nil, err
	}
	var asks []ask
	for offset, total := int64(0), 0; total < segments*fetchSegment-fetchSegment/2; {
		a, next, err := probe(c, offset)
		if err != nil {
			return nil, err
		}
		asks, offset, total = append(asks, a), next, total+a.size
	}
	return asks, nil
}

// probe fetches once and says what came and where to go on.
func probe(c net.Conn, offset int64) (a ask, next int64, err error) {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(fetchVersion)
	req.MaxBytes, req.MinBytes = fetchAnswer, 1
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes = offset, fetchAnswer
	req.Topics = []kmsg.FetchRequestTopic{{Topic: fetchTopic, Partitions: []kmsg.FetchRequestTopicPartition{part}}}
	a = ask{prefix: true, request: kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)}
	if _, err := c.Write(a.request); err != nil {
		return a, 0, err
	}
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return a, 0, err
	}
	a.size = int(binary.BigEndian.Uint32(head[:]))
	if a.size > 2*fetchAnswer {
		return a, 0, fmt.Errorf("answer of %d bytes", a.size)
	}
	body := make([]byte, a.size)
	if _, err := io.ReadFull(c, body); err != nil {
		return a, 0, err
	}
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	if err := resp.ReadFrom(body[4:]); err != nil {
		return a, 0, err
	}
	got := resp.Topics[0].Partitions[0]
	last := 0
	for at := 0; at+batchMinimum <= len(got.RecordBatches); at += 12 + int(binary.BigEndian.Uint32(got.RecordBatches[at+8:])) {
		last = at
	}
	if got.ErrorCode != 0 || len(got.RecordBatches) < batchMinimum {
		return a, 0, fmt.Errorf("fetch at %d: error %d, %d bytes", offset, got.ErrorCode, len(got.RecordBatches))
	}
	b := got.RecordBatches[last:]
	return a, int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[batchLastDiff:])) + 1, nil
}
