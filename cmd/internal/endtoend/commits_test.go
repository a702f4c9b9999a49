package endtoend

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire speaks Kafka's protocol on one connection, with many requests on their way.
type wire struct {
	conn net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
	next int32
}

func dialWire(t *testing.T, addr string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wire{conn: conn, r: bufio.NewReaderSize(conn, 1<<16), w: bufio.NewWriterSize(conn, 1<<16)}
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("endtoend"))

func (c *wire) send(req kmsg.Request) error {
	c.next++
	_, err := c.w.Write(formatter.AppendRequest(nil, req, c.next))
	return err
}

func (c *wire) receive(req kmsg.Request) (kmsg.Response, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.r, b); err != nil {
		return nil, err
	}
	if b = b[4:]; req.IsFlexible() {
		b = b[1:]
	}
	resp := req.ResponseKind()
	return resp, resp.ReadFrom(b)
}

func (c *wire) ask(req kmsg.Request) (kmsg.Response, error) {
	err := c.send(req)
	if err == nil {
		err = c.w.Flush()
	}
	if err != nil {
		return nil, err
	}
	return c.receive(req)
}

func commitOf(id string, number int32, offset int64, metadata string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 7, id, -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "t"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = number, offset, &metadata
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

// commit commits the offsets 1, 2, … n of a partition, many of them on their way at any time.
func (c *wire) commit(id string, number int32, n int, metadata string) error {
	req, offset := commitOf(id, number, 0, metadata), int64(0)
	_, err := c.pump(1000, func() kmsg.Request {
		if offset == int64(n) {
			return nil
		}
		offset++
		req.Topics[0].Partitions[0].Offset = offset
		return req
	})
	return err
}

// pump sends requests of one kind until next returns nil, as many as window on their way at any time, and returns how many were answered
// without an error code. A request may be the one before, changed.
func (c *wire) pump(window int, next func() kmsg.Request) (done int, err error) {
	places := make(chan kmsg.Request, window) // what is on its way; closed behind the last
	sent := make(chan error, 1)
	broken := make(chan struct{})
	go func() {
		defer close(places)
		for req := next(); req != nil; req = next() {
			select {
			case places <- req:
			default: // what is buffered must go before an answer can come
				if err := c.w.Flush(); err != nil {
					sent <- err
					return
				}
				select {
				case places <- req:
				case <-broken:
					sent <- nil
					return
				}
			}
			if err := c.send(req); err != nil {
				sent <- err
				return
			}
		}
		sent <- c.w.Flush()
	}()
	for req := range places {
		var resp kmsg.Response
		if resp, err = c.receive(req); err == nil {
			err = codeOf(resp)
		}
		if err != nil {
			close(broken)
			c.conn.Close() // so that nobody goes on writing
			break
		}
		done++
	}
	return done, errors.Join(err, <-sent)
}

func fetched(addr, id string, number int32) (int64, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	c := &wire{conn: conn, r: bufio.NewReader(conn), w: bufio.NewWriter(conn)}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = 7, id
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic, topic.Partitions = "t", []int32{number}
	req.Topics = append(req.Topics, topic)
	resp, err := c.ask(req)
	if err != nil {
		return 0, err
	}
	r := resp.(*kmsg.OffsetFetchResponse)
	if r.ErrorCode != 0 {
		return 0, fmt.Errorf("fetch: code %d", r.ErrorCode)
	}
	return r.Topics[0].Partitions[0].Offset, nil
}

// logBytes is what the logs of the coordinator's topic take on a disk, and the largest of them.
func logBytes(t *testing.T, data string) (sum, largest int64) {
	t.Helper()
	by := map[string]int64{}
	files, err := filepath.Glob(filepath.Join(data, "topics", "__consumer_offsets-*", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil { // or it is gone just now
			sum += info.Size()
			by[filepath.Dir(f)] += info.Size()
		}
	}
	for _, n := range by {
		largest = max(largest, n)
	}
	return sum, largest
}

// However many offsets are committed, the log of a shard stays small, and its next coordinator has them at once: few and large ones of four
// keys here, on one node; TestAShardOfManyGroupsIsTakenOverSoon has many.
func TestManyCommitsLeaveASmallLogThatLoadsSoon(t *testing.T) {
	commits, metadata := 40_000, strings.Repeat("m", 4000)
	data := t.TempDir()
	p, addr := one(t, data)
	must(t, "mqclient", "topic", "create", "-addr", addr, "t", "-partitions", "8")
	must(t, "mqclient", "group", "reset", "g", "-to", "0", "-topic", "t", "-addr", addr)
	const conns = 4
	began := time.Now()
	var wg sync.WaitGroup
	for i := range int32(conns) {
		c := dialWire(t, addr)
		wg.Go(func() {
			if err := c.commit("g", i, commits/conns, metadata); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	const most = 128 << 20
	var largest int64
	eventually(t, func() error { // files go a little after the log was trimmed
		if _, largest = logBytes(t, data); largest > most {
			return fmt.Errorf("the log of the shard has %d MiB, want %d at most", largest>>20, most>>20)
		}
		return nil
	})
	budget{what: fmt.Sprintf("log of a shard after %d commits", commits), figure: float64(largest) / (1 << 20), limit: most >> 20, unit: "MiB",
		note: fmt.Sprintf("one node, %.0f a second", float64(commits)/took.Seconds())}.show(t)
	for name, s := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		p.stop(t, s)
		began = time.Now()
		p, addr = one(t, data)
		var got int64
		eventually(t, func() (err error) { got, err = fetched(addr, "g", 0); return err })
		took = time.Since(began)
		budget{what: "start after " + name + ", until they are served", figure: took.Seconds(), limit: 2, unit: "s"}.show(t)
		if got != int64(commits/conns) {
			t.Errorf("after %v: offset %d, want %d", s, got, commits/conns)
		}
	}
}
