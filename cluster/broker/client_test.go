package broker

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/engine/record"
)

// client speaks the protocol with kmsg and nothing else.
type client struct {
	t    testing.TB
	conn net.Conn
	next int32
	// id names topics for requests that were written by name in a version that has only ids.
	id func(topic string) meta.TopicID
}

func (w *world) dial() *client {
	w.t.Helper()
	c := speak(w.t, w.connect())
	c.id = w.idOf
	return c
}

// idOf is the id of a topic's present creation, zero if there is none.
func (w *world) idOf(topic string) (id meta.TopicID) {
	if t := w.ctl.Image().Topic(topic); t != nil {
		id = t.ID
	}
	return id
}

// byID puts in the ids of the topics that req names, where a version has no place for names.
func (c *client) byID(req kmsg.Request) {
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		for i := range req.Topics {
			if t := &req.Topics[i]; req.Version >= firstProduceByID && t.TopicID == (meta.TopicID{}) {
				t.TopicID = c.id(t.Topic)
			}
		}
	case *kmsg.FetchRequest:
		for i := range req.Topics {
			if t := &req.Topics[i]; req.Version >= fetchNamesByID && t.TopicID == (meta.TopicID{}) {
				t.TopicID = c.id(t.Topic)
			}
		}
	}
}

func dialAddr(t testing.TB, addr string) *client {
	t.Helper()
	return speak(t, connect(t, addr))
}

func connect(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func speak(t testing.TB, conn net.Conn) *client {
	conn.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { conn.Close() })
	return &client{t: t, conn: conn}
}

func (c *client) send(req kmsg.Request) {
	c.t.Helper()
	c.next++
	if c.id != nil {
		c.byID(req)
	}
	b := kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, c.next)
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// raw reads one response: its bytes after the length.
func (c *client) raw() []byte {
	c.t.Helper()
	b, err := c.tryRaw()
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *client) tryRaw() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, int(head[0])<<24|int(head[1])<<16|int(head[2])<<8|int(head[3]))
	_, err := io.ReadFull(c.conn, b)
	return b, err
}

// receive reads the response to req and takes it apart.
func (c *client) receive(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	resp, _ := c.receiveRaw(req)
	return resp
}

func (c *client) receiveRaw(req kmsg.Request) (kmsg.Response, []byte) {
	c.t.Helper()
	b := c.raw()[4:]
	if req.IsFlexible() && req.Key() != 18 {
		if b[0] != 0 {
			c.t.Fatalf("response header has tags: %x", b[0])
		}
		b = b[1:]
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(b); err != nil {
		c.t.Fatalf("key %d version %d: %v\n%x", req.Key(), req.GetVersion(), err, b)
	}
	return resp, b
}

func (c *client) ask(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	c.send(req)
	return c.receive(req)
}

// closed checks that the broker has dropped the connection.
func (c *client) closed() {
	c.t.Helper()
	_, err := c.conn.Read(make([]byte, 1))
	var ne net.Error
	if err == nil || errors.As(err, &ne) && ne.Timeout() {
		c.t.Fatalf("the connection is not closed: %v", err)
	}
}

// batch builds one batch with the given values.
func batch(values ...string) record.Batch {
	return batchOf(record.Builder{BaseTimestamp: 1000}, values...)
}

// refit changes the records of b and gives it the CRC that they need.
func refit(b record.Batch, change func(records []byte)) record.Batch {
	change(b.Payload())
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func batchOf(b record.Builder, values ...string) record.Batch {
	for i, v := range values {
		b.Append(record.Record{TimestampDelta: int64(i), Value: []byte(v)})
	}
	return b.Finish()
}

// produce builds a produce request for one partition.
func produce(version int16, acks int16, topic string, number int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 10_000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = number, records
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (c *client) produce(req *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return c.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

// fetch builds a fetch request for partitions 0, 1, … of a topic at the given offsets.
func fetch(version int16, topic string, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = version, 0, 1, 50<<20
	req.ReplicaID = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for i, o := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(i), o, 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func (c *client) fetch(req *kmsg.FetchRequest) []kmsg.FetchResponseTopicPartition {
	c.t.Helper()
	resp := c.ask(req).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("fetch: code %d", resp.ErrorCode)
	}
	return resp.Topics[0].Partitions
}

// patience is what only a failure takes, however slow the machine is.
const patience = 3 * time.Minute

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}
