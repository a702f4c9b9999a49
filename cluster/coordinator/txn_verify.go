package coordinator

import (
	"context"
	"fmt"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/txn/field"
	"gopherlog/txn/kafkatx"
)

// verifyMethod asks a transactional id's coordinator what partition.Coordinators is asked.
//
//	call:    version i8 = 1 | question
//	answer:  code i16 | term of who answers i32
//
// Strings have a length of two bytes. The answer's code is 0 when the transaction is ongoing and has the partition.
const verifyMethod = "txn.verify"

const verifyVersion = 1

// maxVerifies is how many questions of this node other nodes are asked at a time; those above it are told to come again.
const maxVerifies = 1 << 12

// Verify implements partition.Coordinators.
func (x *Transactions) Verify(q partition.Question, done func(partition.Verified, error)) {
	if x.votes(q.TransactionalID) {
		x.cfg.Voted.Verify(q, done)
		return
	}
	leader := x.coordinatorOf(q.TransactionalID)
	switch {
	case leader == meta.NoLeader, leader != x.cfg.Self && !x.cfg.Alive(leader):
		done(partition.Verified{}, partition.ErrNotCoordinator)
	case leader == x.cfg.Self:
		x.judge(q, func(c kafkatx.Code, term int32) { done(verified(c, term)) })
	default:
		if x.verifying.Add(1) > maxVerifies {
			x.verifying.Add(-1)
			done(partition.Verified{}, partition.ErrNotCoordinator)
			return
		}
		there := x.spawn(func() {
			c, term := x.callVerify(leader, q)
			x.verifying.Add(-1)
			done(verified(c, term))
		})
		if !there {
			x.verifying.Add(-1)
			done(partition.Verified{}, partition.ErrNotCoordinator)
		}
	}
}

// spawn runs fn on a goroutine that Close waits for; false: it is closed.
func (x *Transactions) spawn(fn func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return false
	}
	x.wg.Go(fn)
	return true
}

// coordinatorOf is the node that leads the shard of a transactional id, as far as the image tells.
func (x *Transactions) coordinatorOf(id string) rpc.NodeID {
	t := x.cfg.Meta.Image().Topic(TransactionsTopic)
	if t == nil {
		return meta.NoLeader
	}
	return t.Partitions[ShardOf(id, len(t.Partitions))].Leader
}

// judge asks the machine that this node leads, and says in which term it answered.
func (x *Transactions) judge(q partition.Question, done func(c kafkatx.Code, term int32)) {
	t, why := x.term(q.TransactionalID)
	if t == nil {
		done(kafkatx.Code(why), 0)
		return
	}
	p := []kafkatx.Partition{{Topic: q.Topic, Number: q.Number}}
	x.askTerm(t, q.TransactionalID, q.Deadline, func(a kafkatx.Answer) { done(a.Code, t.epoch) }, func(r kafkatx.Request, _ int64) kafkatx.Event {
		if q.Add {
			return kafkatx.AddPartitions{Request: r, ProducerID: q.ProducerID, Epoch: q.Epoch, Partitions: p, Version: kafkatx.Version2}
		}
		return kafkatx.Verify{Request: r, ProducerID: q.ProducerID, Epoch: q.Epoch, Partitions: p}
	})
}

// verified says a coordinator's code in the partitions' words.
func verified(c kafkatx.Code, term int32) (partition.Verified, error) {
	switch c {
	case kafkatx.OK:
		return partition.Verified{Ongoing: true, Term: term}, nil
	case kafkatx.TransactionAbortable:
		return partition.Verified{}, nil
	case kafkatx.InvalidTxnState:
		return partition.Verified{}, partition.ErrInvalidTxnState
	case kafkatx.InvalidProducerIDMapping:
		return partition.Verified{}, partition.ErrInvalidProducerIDMapping
	case kafkatx.InvalidProducerEpoch:
		return partition.Verified{}, partition.ErrInvalidProducerEpoch
	case kafkatx.ProducerFenced:
		return partition.Verified{}, partition.ErrProducerFenced
	case kafkatx.ConcurrentTransactions:
		return partition.Verified{}, partition.ErrConcurrentTransactions
	}
	return partition.Verified{}, partition.ErrNotCoordinator
}

func (x *Transactions) callVerify(to rpc.NodeID, q partition.Question) (c kafkatx.Code, term int32) {
	patience := x.cfg.Hold
	if !q.Deadline.IsZero() {
		patience = min(patience, q.Deadline.Sub(x.cfg.Now()))
	}
	if patience <= 0 || !fits(q.TransactionalID, q.Topic) {
		return kafkatx.NotCoordinator, 0
	}
	w := field.Writer{}
	w.Int8(verifyVersion)
	writeQuestion(&w, q, patience)
	ctx, cancel := context.WithTimeout(x.shards.ctx, patience)
	defer cancel()
	answer, err := x.cfg.Node.Call(ctx, to, verifyMethod, w.Bytes)
	if err != nil {
		return kafkatx.NotCoordinator, 0
	}
	r := field.Reader{Bytes: answer}
	c, term = kafkatx.Code(r.Int16()), r.Int32()
	if err := r.End(); err != nil {
		x.cfg.Logger.Warn("malformed answer to a verification", "node", to, "error", err)
		return kafkatx.NotCoordinator, 0
	}
	return c, term
}

func (x *Transactions) serveVerify(ctx context.Context, from rpc.NodeID, req []byte) ([]byte, error) {
	r := &field.Reader{Bytes: req}
	if v := r.Int8(); v != verifyVersion {
		return nil, fmt.Errorf("coordinator: call of version %d, want %d", v, verifyVersion)
	}
	q := readQuestion(r, x.cfg.Now())
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("coordinator: question of node %d: %w", from, err)
	}
	type answer struct {
		code kafkatx.Code
		term int32
	}
	said := make(chan answer, 1)
	x.judge(q, func(c kafkatx.Code, term int32) { said <- answer{c, term} })
	select {
	case a := <-said:
		w := field.Writer{}
		w.Int16(int16(a.code))
		w.Int32(a.term)
		return w.Bytes, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
