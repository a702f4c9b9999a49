package endtoend

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/engine/record"
)

// rawProducer is a transactional producer that sends one request after the other: what a client library waits for is in no figure.
type rawProducer struct {
	id          string
	raises      bool // version 2: no AddPartitionsToTxn, a new epoch with each end
	partitions  []int32
	leader      map[int32]*wire
	coordinator *wire
	producer    record.Producer
	sequence    map[int32]int32
}

// newRawProducer finds who is asked for what, and takes the id.
func newRawProducer(ctx context.Context, t *testing.T, addrs []string, id string, raises bool, partitions ...int32) (*rawProducer, error) {
	at, err := leaders(ctx, addrs...)
	if err != nil {
		return nil, err
	}
	p := &rawProducer{id: id, raises: raises, partitions: partitions, leader: map[int32]*wire{}, sequence: map[int32]int32{}}
	for _, n := range partitions {
		if at[n] < 1 {
			return nil, fmt.Errorf("partition %d has no leader", n)
		}
		p.leader[n] = dialWire(t, addrs[at[n]-1])
	}
	addr, err := coordinator(t, addrs[0], 1, id)
	if err != nil {
		return nil, err
	}
	p.coordinator = dialWire(t, addr)
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &id, 60_000
	if raises {
		req.Version = 5
	}
	resp, err := p.coordinator.ask(req)
	if err != nil {
		return nil, err
	}
	r := resp.(*kmsg.InitProducerIDResponse)
	p.producer = record.Producer{ID: r.ProducerID, Epoch: r.ProducerEpoch}
	return p, kerr.ErrorForCode(r.ErrorCode)
}

// coordinator is the address of the node that looks after a group (kind 0) or a transactional id (kind 1).
func coordinator(t *testing.T, addr string, kind int8, key string) (string, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKey, req.CoordinatorType = 2, key, kind
	c := dialWire(t, addr)
	defer c.conn.Close()
	resp, err := c.ask(req)
	if err != nil {
		return "", err
	}
	r := resp.(*kmsg.FindCoordinatorResponse)
	return fmt.Sprintf("%s:%d", r.Host, r.Port), kerr.ErrorForCode(r.ErrorCode)
}

// plain produces one record without a producer id and waits until it is committed.
func (p *rawProducer) plain(partition int32) error {
	return p.produce(partition, record.Builder{})
}

// send produces one record in the transaction.
func (p *rawProducer) send(partition int32) error {
	who := p.producer
	who.Sequence = p.sequence[partition]
	p.sequence[partition]++
	return p.produce(partition, record.Builder{Producer: &who, Transactional: true})
}

func (p *rawProducer) produce(partition int32, b record.Builder) error {
	resp, err := p.leader[partition].ask(produceOf(p.id, p.raises, partition, b))
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

// produceOf asks for one batch of 100 bytes to be on a majority.
func produceOf(id string, raises bool, partition int32, b record.Builder) *kmsg.ProduceRequest {
	const rest = 70 // of the batch around the value
	b.BaseTimestamp = time.Now().UnixMilli()
	b.Append(record.Record{Value: make([]byte, 100-rest)})
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 11, -1, 10_000
	if b.Transactional {
		req.TransactionID = &id
		if raises {
			req.Version = 12
		}
	}
	topic, part := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	topic.Topic, part.Partition, part.Records = "t", partition, b.Finish()
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

func (p *rawProducer) add() error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 3, p.id, p.producer.ID, p.producer.Epoch
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic, topic.Partitions = "t", p.partitions
	req.Topics = append(req.Topics, topic)
	resp, err := p.coordinator.ask(req)
	if err != nil {
		return err
	}
	for _, part := range resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions {
		if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

func (p *rawProducer) commit() error {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 3, p.id, p.producer.ID, p.producer.Epoch, true
	if p.raises {
		req.Version = 5
	}
	resp, err := p.coordinator.ask(req)
	if err != nil {
		return err
	}
	r := resp.(*kmsg.EndTxnResponse)
	if p.raises && r.ErrorCode == 0 {
		p.producer, p.sequence = record.Producer{ID: r.ProducerID, Epoch: r.ProducerEpoch}, map[int32]int32{}
	}
	return kerr.ErrorForCode(r.ErrorCode)
}

// steps of a transaction: partitions added, records committed, end answered.
type steps [3]time.Duration

func (s steps) all() time.Duration { return s[0] + s[1] + s[2] }

func (p *rawProducer) transact() (s steps, err error) {
	began := time.Now()
	step := func(i int, do func() error) {
		if err == nil {
			err = do()
		}
		now := time.Now()
		s[i], began = now.Sub(began), now
	}
	if !p.raises {
		step(0, p.add)
	}
	step(1, func() error { return p.sendAll() })
	step(2, p.commit)
	return s, err
}

// sendAll produces to all partitions, one request at a time on each connection.
func (p *rawProducer) sendAll() error {
	if len(p.partitions) == 1 {
		return p.send(p.partitions[0])
	}
	errs := make(chan error, len(p.partitions))
	for _, n := range p.partitions {
		who := p.producer
		who.Sequence = p.sequence[n]
		p.sequence[n]++
		go func() { errs <- p.produce(n, record.Builder{Producer: &who, Transactional: true}) }()
	}
	var first error
	for range p.partitions {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// A transaction of one small record is answered within a few times the latency of producing it alone: no wait but for majorities is on its
// way. GOPHERLOG_TEST_BUDGETS=1 takes enough of them to judge.
func TestATransactionTakesAFewTimesAsLongAsItsRecord(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	_, addrs := three(t)
	must(t, "mqclient", "topic", "create", "-addr", addrs[0], "t", "-partitions", "6", "-replication-factor", "3")
	for _, c := range []struct {
		name, prefix string
		raises       bool
	}{
		{"Kafka style, version 0", "", false},
		{"Kafka style, version 2", "", true},
		{"voted, version 0", "2pc.", false},
		{"voted, version 2", "2pc.", true},
	} {
		x := cost{t: t, addrs: addrs, raises: c.raises, id: c.prefix + strings.ReplaceAll(c.name, " ", "-")}
		pause := 5 * time.Millisecond
		x.measure(ctx, pause, 1, 1).row(c.name, 4).show(t)
		x.measure(ctx, pause, 1, 3).row(c.name+", three partitions", 0).show(t)
		x.measure(ctx, 0, 5, 1).row(c.name+", one after the other", 4).show(t)
	}
}

// cost takes turns between a record alone and a transaction, over ids and partitions that are spread over the nodes.
type cost struct {
	t      *testing.T
	addrs  []string
	id     string
	raises bool
	// what came of it
	plain []time.Duration
	txns  []steps
}

// measure has each producer take turns of so many in a row.
func (x cost) measure(ctx context.Context, pause time.Duration, row, partitions int) cost {
	x.t.Helper()
	const producers, disturbances = 6, 20
	rounds := 2
	if judged() {
		rounds = 50
	}
	for i := range int32(producers) {
		var at []int32
		for n := range int32(partitions) {
			at = append(at, (i+n)%producers)
		}
		var p *rawProducer
		disturbed := 0
		for done := 0; done < rounds; {
			var err error
			if p == nil {
				p, err = newRawProducer(ctx, x.t, x.addrs, fmt.Sprintf("%s-%d", x.id, i), x.raises, at...)
			}
			if err == nil {
				err = x.turn(p, pause, row)
			}
			if err == nil {
				done++
				continue
			}
			p = nil // a leader went elsewhere, which is not what is measured
			if disturbed++; disturbed > disturbances || ctx.Err() != nil {
				x.t.Fatalf("%s: %v", x.id, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return x
}

// turn times records one after the other, then transactions. Both come back to a machine that did the same before.
func (x *cost) turn(p *rawProducer, pause time.Duration, row int) error {
	for range row {
		time.Sleep(pause)
		began := time.Now()
		if err := p.plain(p.partitions[0]); err != nil {
			return err
		}
		x.plain = append(x.plain, time.Since(began))
	}
	for range row {
		time.Sleep(pause)
		s, err := p.transact()
		if err != nil {
			return err
		}
		x.txns = append(x.txns, s)
	}
	return nil
}

func (x cost) row(what string, limit float64) budget {
	var whole []time.Duration
	var by [3][]time.Duration
	for _, s := range x.txns {
		whole = append(whole, s.all())
		for i, d := range s {
			by[i] = append(by[i], d)
		}
	}
	ms := func(ds []time.Duration) float64 { return median(ds).Seconds() * 1000 }
	note := fmt.Sprintf("%.2f ms beside %.2f: add %.2f, produce %.2f, end %.2f", ms(whole), ms(x.plain), ms(by[0]), ms(by[1]), ms(by[2]))
	return budget{what: what, figure: ms(whole) / ms(x.plain), limit: limit, unit: "x", note: note}
}
