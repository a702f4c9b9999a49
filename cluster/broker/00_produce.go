package broker

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
	"gopherlog/engine/wire"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

var produceAPI = api{
	key: 0, name: "Produce", min: 0, max: 13,
	serve: serveProduce,
	notes: []string{
		"Versions 0 to 2 are advertised because old clients look for them before they compress; their record formats are answered with UNSUPPORTED_FOR_MESSAGE_FORMAT.",
		"Exactly one batch of format 2 per partition and request, otherwise INVALID_RECORD; at most 10,000 partitions a request.",
		"The records of an uncompressed batch must be as many as its header says, numbered from 0, and each must hold its fields: otherwise INVALID_RECORD, with the record and its byte. Kafka lets other numbers pass and repairs a wrong largest timestamp; here batches are stored as they were sent.",
		"Compressed batches are not decompressed, and Kafka does: of them only the CRC and the header are checked, and that the bytes can hold so many records. A producer that compresses garbage under a valid CRC makes its consumers fail; mqvalidate finds such a batch.",
		"zstd needs version 7, otherwise UNSUPPORTED_COMPRESSION_TYPE. Batches are stored as they were sent.",
		"acks=0 gets no response; any error closes the connection.",
		"Versions 12 and newer leave it to the partition to become part of the transaction (transaction version 2).",
		"From version 10 NOT_LEADER_OR_FOLLOWER comes with the leader, its epoch and its address, if they are known (KIP-951). From version 13 topics are named by id, with the codes of Fetch.",
		"Control batches and log append time are refused (INVALID_RECORD, INVALID_TIMESTAMP).",
		"A transactional batch without transactional id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED. The first one of a transaction in a partition is let in only when the transaction's coordinator confirms that it is ongoing, for clients of every version: otherwise TRANSACTION_ABORTABLE, below version 11 INVALID_TXN_STATE; NOT_ENOUGH_REPLICAS when no coordinator could be asked within the request's timeout.",
		"A batch for a partition that is between leaders (this node was elected and does not serve yet, or knows no leader although most of the replicas are up) is held until that is over, at most half a second and the request's timeout; what its connection asks next is held behind it, so that nothing overtakes. Kafka answers NOT_LEADER_OR_FOLLOWER at once.",
		"A batch that meets the producer's transaction before, still ending, is held until it has ended, within the request's timeout; no fixed pause. Kafka answers CONCURRENT_TRANSACTIONS or NOT_ENOUGH_REPLICAS at once and lets the client try again.",
		"The deadline of acks=all is the request's own timeout: REQUEST_TIMED_OUT, or NOT_ENOUGH_REPLICAS_AFTER_APPEND when the batch is committed but on fewer replicas than min.insync.replicas.",
	},
}

const (
	firstServedProduce = 3 // record batches of format 2 begin here
	firstZstdProduce   = 7
	firstHintedProduce = 10
	firstAddingProduce = 12 // its client leaves it to the partitions to become part of a transaction
	firstProduceByID   = 13
	// maxProducePartitions bounds what a request of many small claims can make the decoder allocate.
	maxProducePartitions = 10_000
)

var beforeAnswer = failpoint.Register("produce/before-answer", "a produce request has its outcome, the client has no answer; an error closes the connection")

// produceCall is a produce request until its last partition has answered.
type produceCall struct {
	b       *Broker
	api     *api
	req     *wire.Request
	started time.Time
	acks    int16
	txnID   string // copied; "" without
	image   *meta.Image
	resp    kmsg.ProduceResponse
	slots   []produceSlot
	held    heldBatches
	left    atomic.Int32 // slots without an outcome, and one for the handler
}

// produceSlot is one partition of the request.
type produceSlot struct {
	call  *produceCall
	out   *kmsg.ProduceResponseTopicPartition
	topic *meta.Topic // nil: there is none
	size  int
	app   partition.AppendRequest
}

func serveProduce(b *Broker, a *api, r *wire.Request) {
	c := &produceCall{b: b, api: a, req: r, started: b.cfg.Now(), image: b.cfg.Meta.Image()}
	var req kmsg.ProduceRequest
	req.SetVersion(r.Version)
	if err := checkProduceShape(r.Body, r.Version); err != nil {
		b.drop(a, r, err)
		return
	}
	// Strings and records alias the frame, which stays until the answer; what the partition keeps it holds itself.
	if err := req.UnsafeReadFrom(r.Body); err != nil {
		b.drop(a, r, fmt.Errorf("%w: body: %w", wire.ErrFrame, err))
		return
	}
	c.acks = req.Acks
	if req.TransactionID != nil {
		c.txnID = strings.Clone(*req.TransactionID)
	}
	c.prepare(&req)
	if c.acks == partition.AcksNone {
		r.Buf.Retain() // records alias it until they are handed over
		r.ReplyNone()  // the next responses need not wait for this one
		defer r.Buf.Release()
	}
	deadline := c.started.Add(time.Duration(max(req.TimeoutMillis, 0)) * time.Millisecond)
	i := 0
	for ti := range req.Topics {
		for pi := range req.Topics[ti].Partitions {
			c.slots[i].produce(&req.Topics[ti], &req.Topics[ti].Partitions[pi], deadline)
			i++
		}
	}
	c.held.settle(c, deadline)
	c.finish()
}

// prepare lays out the response, so that each slot only fills in its own numbers.
func (c *produceCall) prepare(req *kmsg.ProduceRequest) {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	c.left.Store(int32(n) + 1)
	c.slots = make([]produceSlot, n)
	c.resp.Default()
	c.resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	outs := make([]kmsg.ProduceResponseTopicPartition, n)
	k := 0
	for i := range req.Topics {
		in, out := &req.Topics[i], &c.resp.Topics[i]
		out.Default()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		out.Partitions = outs[k : k+len(in.Partitions) : k+len(in.Partitions)]
		for j := range in.Partitions {
			p := &out.Partitions[j]
			p.Default()
			p.Partition, p.BaseOffset, p.LogAppendTime, p.LogStartOffset = in.Partitions[j].Partition, -1, -1, -1
			c.slots[k] = produceSlot{call: c, out: p}
			k++
		}
	}
}

// produce checks in the order in which Kafka does: acks, topic, leader, size, framing, CRC, attributes; the sequence is
// the partition's to check.
func (s *produceSlot) produce(t *kmsg.ProduceRequestTopic, in *kmsg.ProduceRequestTopicPartition, deadline time.Time) {
	c := s.call
	switch {
	case c.acks < partition.AcksAll || c.acks > partition.AcksLeader:
		s.refuse(codeInvalidRequiredAcks, nil)
		return
	case c.req.Version < firstServedProduce:
		s.refuse(codeUnsupportedForMessageFormat, nil)
		return
	}
	p, topic, code := c.find(t, in.Partition)
	s.topic = topic
	if code == codeNone && topic.Internal {
		code = codeInvalidTopic
	}
	if code != codeNone {
		s.refuse(code, nil)
		return
	}
	if limit := p.Settings().MaxMessageBytes; limit > 0 && len(in.Records) > int(limit) {
		s.refuse(codeMessageTooLarge, fmt.Errorf("batch of %d bytes, max.message.bytes is %d", len(in.Records), limit))
		return
	}
	batch, code, err := checkBatch(in.Records, c.req.Version)
	if code != codeNone {
		s.refuse(code, err)
		return
	}
	if batch.IsTransactional() && c.txnID == "" {
		s.refuse(codeTransactionalIDAuthorization, errors.New("transactional batch in a request without transactional id"))
		return
	}
	s.size = len(batch)
	s.app = partition.AppendRequest{Batch: batch, Buf: c.req.Buf, Acks: c.acks, Deadline: deadline, Done: s.done}
	s.app.TransactionalID, s.app.Version = c.txnID, txnVersion(c.req.Version)
	if c.held.must(c, p, topic, in.Partition) {
		c.held.add(p, s)
		return
	}
	p.Append(&s.app)
}

func (c *produceCall) find(t *kmsg.ProduceRequestTopic, number int32) (Partition, *meta.Topic, int16) {
	if c.req.Version >= firstProduceByID {
		return c.b.findByID(c.image, t.TopicID, number)
	}
	return c.b.find(c.image, t.Topic, number)
}

// checkBatch returns the one batch that records must be, or Kafka's code and what is wrong.
func checkBatch(records []byte, version int16) (record.Batch, int16, error) {
	if len(records) == 0 {
		return nil, codeInvalidRecord, errors.New("no record batch")
	}
	batch, err := record.ParseProduce(records)
	if err == nil {
		err = batch.ValidateProduce()
	}
	if err != nil {
		return nil, codeOf(err), err
	}
	if batch.Codec() == record.Zstd && version < firstZstdProduce {
		return nil, codeUnsupportedCompressionType, fmt.Errorf("zstd needs Produce version %d, this is %d", firstZstdProduce, version)
	}
	return batch, codeNone, nil
}

// txnVersion is how the client of a Produce version ends its transactions.
func txnVersion(produce int16) producer.TransactionVersion {
	if produce >= firstAddingProduce {
		return producer.Version2
	}
	return producer.Version0
}

// firstAbortableProduce is the version from which on clients know TRANSACTION_ABORTABLE.
const firstAbortableProduce = 11

// produceCode is codeOf in words that clients of the version know.
func produceCode(err error, version int16) int16 {
	if errors.Is(err, partition.ErrTransactionAborted) && version < firstAbortableProduce {
		return codeInvalidProducerEpoch // clients of these versions go on by aborting (KIP-588); the other code is fatal to them
	}
	return int16(kafkatx.Code(codeOf(err)).For(kafkatx.APIProduce, version))
}

func (s *produceSlot) refuse(code int16, err error) {
	s.fill(partition.AppendResult{BaseOffset: -1, LogStart: -1}, code, err)
}

// done is the partition's answer; it may come on any goroutine and must not block.
func (s *produceSlot) done(res partition.AppendResult) {
	s.fill(res, produceCode(res.Err, s.call.req.Version), res.Err)
}

func (s *produceSlot) fill(res partition.AppendResult, code int16, err error) {
	m := s.call.b.metrics
	s.out.ErrorCode = s.call.b.count(s.call.api, code)
	if code == codeNone {
		s.out.BaseOffset, s.out.LogStartOffset = res.BaseOffset, res.LogStart
		m.batchesIn.Inc()
		m.bytesIn.Add(float64(s.size))
	} else {
		s.out.ErrorMessage = sentence(err)
		m.refused.Inc()
	}
	s.call.finish()
}

// finish counts one outcome; the last one answers.
func (c *produceCall) finish() {
	if c.left.Add(-1) > 0 {
		return
	}
	if c.acks == partition.AcksNone {
		if err := c.failure(); err != nil {
			c.req.Conn.Close(err)
		}
	} else if err := c.b.cfg.Failpoints.Hit(beforeAnswer); err != nil {
		c.req.Conn.Close(err)
		c.req.ReplyNone()
	} else {
		if c.req.Version >= firstHintedProduce {
			c.pointToLeaders()
		}
		c.req.ReplyMessage(&c.resp)
	}
	c.b.observe(c.api, c.started)
}

// pointToLeaders says of every partition that this node does not lead who does.
func (c *produceCall) pointToLeaders() {
	var hints leaderHints
	for i := range c.slots {
		s := &c.slots[i]
		if s.out.ErrorCode != codeNotLeaderOrFollower {
			continue
		}
		if hints.image == nil {
			hints.image = c.b.cfg.Meta.Image()
		}
		if h := hints.of(c.b, s.topic, s.out.Partition); h != nil {
			s.out.CurrentLeader.LeaderID, s.out.CurrentLeader.LeaderEpoch = int32(h.node), h.epoch
		}
	}
	for _, br := range hints.brokers {
		out := kmsg.NewProduceResponseBroker()
		out.NodeID, out.Rack = int32(br.ID), rack(br)
		out.Host, out.Port = c.b.endpoint(c.req.Conn, br)
		c.resp.Brokers = append(c.resp.Brokers, out)
	}
}

// failure is the first error of a request that gets no response.
func (c *produceCall) failure() error {
	for i := range c.slots {
		if code := c.slots[i].out.ErrorCode; code != codeNone {
			return fmt.Errorf("produce with acks=0 failed: %s", nameOf(code))
		}
	}
	return nil
}
