package coordinator

import (
	"context"
	"errors"
	"fmt"

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

// word is a coordinator's answer to a question: its code, and the term in which it answered.
type word struct {
	code kafkatx.Code
	term int32
}

// nobody is the word of a node that does not coordinate.
var nobody = word{code: kafkatx.NotCoordinator}

// vain says that whoever answered does not coordinate, or not yet.
func (w word) vain() bool {
	_, err := verified(w.code, w.term)
	return errors.Is(err, partition.ErrNotCoordinator)
}

func (x *Transactions) newQuestions() *questions[word] {
	return &questions[word]{
		self: x.cfg.Self, now: x.cfg.Now, most: maxWaiting, hold: x.cfg.Hold, alive: x.cfg.Alive,
		lead: func(id string) lead { return x.shards.lead(x.cfg.Self, id) },
		here: x.judge, there: x.judgeThere, vain: word.vain, none: nobody,
	}
}

// Verify implements partition.Coordinators.
func (x *Transactions) Verify(q partition.Question, done func(partition.Verified, error)) {
	if x.votes(q.TransactionalID) {
		x.cfg.Voted.Verify(q, done)
		return
	}
	x.questions.ask(q, false, func(w word) { done(verified(w.code, w.term)) })
}

// judgeThere asks the machine that another node leads.
func (x *Transactions) judgeThere(to rpc.NodeID, q partition.Question, done func(word)) {
	if x.verifying.Add(1) > maxVerifies {
		x.verifying.Add(-1)
		done(nobody)
		return
	}
	there := x.spawn(func() {
		w := x.callVerify(to, q)
		x.verifying.Add(-1)
		done(w)
	})
	if !there {
		x.verifying.Add(-1)
		done(nobody)
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

// judge asks the machine that this node leads.
func (x *Transactions) judge(q partition.Question, done func(word)) {
	t, why := x.term(q.TransactionalID)
	if t == nil {
		done(word{code: kafkatx.Code(why)})
		return
	}
	p := []kafkatx.Partition{{Topic: q.Topic, Number: q.Number}}
	x.askTerm(t, q.TransactionalID, q.Deadline, func(a kafkatx.Answer) { done(word{a.Code, t.epoch}) }, func(r kafkatx.Request, _ int64) kafkatx.Event {
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

func (x *Transactions) callVerify(to rpc.NodeID, q partition.Question) word {
	patience := x.cfg.Hold
	if !q.Deadline.IsZero() {
		patience = min(patience, q.Deadline.Sub(x.cfg.Now()))
	}
	if patience <= 0 || !fits(q.TransactionalID, q.Topic) {
		return nobody
	}
	w := field.Writer{}
	w.Int8(verifyVersion)
	writeQuestion(&w, q, patience)
	ctx, cancel := context.WithTimeout(x.shards.ctx, patience)
	defer cancel()
	answer, err := x.cfg.Node.CallUp(ctx, to, verifyMethod, w.Bytes)
	if err != nil {
		return nobody
	}
	r := field.Reader{Bytes: answer}
	said := word{kafkatx.Code(r.Int16()), r.Int32()}
	if err := r.End(); err != nil {
		x.cfg.Logger.Warn("malformed answer to a verification", "node", to, "error", err)
		return nobody
	}
	return said
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
	said := make(chan word, 1)
	x.questions.ask(q, true, func(w word) { said <- w })
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
