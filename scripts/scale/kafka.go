package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/engine/record"
)

// partition is one of a topic.
type partition struct {
	topic  string
	number int32
}

// spread gives each topic its share of n partitions.
func spread(n, topics int) (out []partition) {
	for i := range n {
		out = append(out, partition{fmt.Sprintf("scale-%02d", i%topics), int32(i / topics)})
	}
	return out
}

// conn asks one node, one request after the other: a client's back-off and metadata would be in every figure.
type conn struct {
	net.Conn
	buf []byte
}

func dial(ctx context.Context, addr string) (*conn, error) {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// ask sends a request in a version without tagged fields and reads its answer.
func (c *conn) ask(ctx context.Context, req kmsg.Request, version int16) (kmsg.Response, error) {
	end := context.AfterFunc(ctx, func() { c.Close() })
	defer end()
	req.SetVersion(version)
	c.buf = kmsg.NewRequestFormatter(kmsg.FormatterClientID("scale")).AppendRequest(c.buf[:0], req, 1)
	if _, err := c.Write(c.buf); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	return resp, resp.ReadFrom(body[4:])
}

// askOnce is ask over a connection of its own.
func askOnce(ctx context.Context, addr string, req kmsg.Request, version int16) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.ask(ctx, req, version)
}

// create asks for all topics in one request.
func create(ctx context.Context, addr string, partitions []partition) error {
	counts := map[string]int32{}
	for _, p := range partitions {
		counts[p.topic]++
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(patience.Milliseconds())
	for topic, n := range counts {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = topic, n, 3
		req.Topics = append(req.Topics, t)
	}
	resp, err := askOnce(ctx, addr, req, 4)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("create %s: %w", t.Topic, err)
		}
	}
	return nil
}

// place is where a partition is, as a node tells it; nodes by number.
type place struct {
	leader int
	inSync []int
}

func places(ctx context.Context, addr string, partitions []partition) (map[partition]place, error) {
	req := kmsg.NewPtrMetadataRequest()
	asked := map[string]bool{}
	for _, p := range partitions {
		if !asked[p.topic] {
			asked[p.topic] = true
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(p.topic)
			req.Topics = append(req.Topics, t)
		}
	}
	resp, err := askOnce(ctx, addr, req, 7)
	if err != nil {
		return nil, err
	}
	out := make(map[partition]place, len(partitions))
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		for _, p := range t.Partitions {
			at := place{leader: int(p.Leader) - 1}
			for _, id := range p.ISR {
				at.inSync = append(at.inSync, int(id)-1)
			}
			out[partition{*t.Topic, p.Partition}] = at
		}
	}
	return out, nil
}

// batch is one record batch of about n bytes.
func batch(n int) []byte {
	var b record.Builder
	b.BaseTimestamp = time.Now().UnixMilli()
	b.Append(record.Record{Value: make([]byte, max(1, n-100))})
	return b.Finish()
}

// produce sends one batch to each partition with acks=all and returns those that acknowledged it. It is an error only if the node does not answer.
func (c *conn) produce(ctx context.Context, partitions []partition, batch []byte, wait time.Duration) (acked []partition, err error) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(wait.Milliseconds())
	at := map[string]int{}
	for _, p := range partitions {
		i, ok := at[p.topic]
		if !ok {
			i = len(req.Topics)
			at[p.topic] = i
			t := kmsg.NewProduceRequestTopic()
			t.Topic = p.topic
			req.Topics = append(req.Topics, t)
		}
		one := kmsg.NewProduceRequestTopicPartition()
		one.Partition, one.Records = p.number, batch
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, one)
	}
	resp, err := c.ask(ctx, req, 7)
	if err != nil {
		return nil, err
	}
	for _, t := range resp.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				acked = append(acked, partition{t.Topic, p.Partition})
			}
		}
	}
	return acked, nil
}
