package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/txn/field"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

// askMethod carries a partition's question whether a voted transaction is open to its coordinator's node.
//
//	call:    version i8 = 1 | question
//	answer:  result u8 | transaction | timeout i32, milliseconds
//
// in the flexible encoding.
const askMethod = "txn.vote.ask"

const askVersion = 1

// maxQuestions bounds the questions that other nodes are asked at a time; above it nobody can tell, and the partition asks again.
const maxQuestions = 1 << 12

func (v *Voted) newQuestions() *questions[twopc.Answer] {
	return &questions[twopc.Answer]{
		self: v.cfg.Self, now: v.cfg.Now, most: maxWaiting, hold: v.cfg.Hold, alive: v.cfg.Alive,
		lead: func(id string) lead { return v.shards.lead(v.cfg.Self, id) },
		here: v.verify, there: v.verifyThere, vain: inVain, none: twopc.Answer{Result: nobodyCould},
	}
}

// nobodyCould is the result of a question that no coordinator answered.
const nobodyCould = asCode + twopc.Result(kafkatx.NotCoordinator)

// inVain says that whoever answered does not coordinate, or not yet.
func inVain(a twopc.Answer) bool {
	_, err := wordOf(a)
	return errors.Is(err, partition.ErrNotCoordinator)
}

// Verify asks the coordinator of a voted transaction which one is open, and lets it have the partition if the question says so.
func (v *Voted) Verify(q partition.Question, done func(partition.Verified, error)) {
	v.questions.ask(q, false, func(a twopc.Answer) { done(wordOf(a)) })
}

// verifyThere asks the machine on another node.
func (v *Voted) verifyThere(to rpc.NodeID, q partition.Question, done func(twopc.Answer)) {
	if !v.post.question(func() { done(v.askNode(to, q)) }) {
		done(v.questions.none)
	}
}

// verify asks the machine, which is here.
func (v *Voted) verify(q partition.Question, done func(twopc.Answer)) {
	owner, member := twopc.Identity{Producer: q.ProducerID, Epoch: q.Epoch}, partition.MemberOf(q.Topic, q.Number)
	v.ask(q.TransactionalID, &paper{until: v.patience(q.Deadline), done: done, event: func(r twopc.Request, _ int64) twopc.Event {
		if q.Add {
			return twopc.Add{Request: r, Owner: owner, Members: []twopc.Member{member}, Version: 2}
		}
		return twopc.Verify{Request: r, Owner: owner, Member: member}
	}})
}

// askNode calls another node.
func (v *Voted) askNode(node rpc.NodeID, q partition.Question) twopc.Answer {
	patience := v.patience(q.Deadline).Sub(v.cfg.Now())
	w := field.Writer{Flexible: true}
	w.Int8(askVersion)
	writeQuestion(&w, q, patience)
	ctx, cancel := context.WithTimeout(v.post.ctx, patience+voteCallTime)
	defer cancel()
	answer, err := v.cfg.Node.CallUp(ctx, node, askMethod, w.Bytes)
	if err != nil {
		v.cfg.Logger.Debug("no answer to a question about a voted transaction", "node", node, "id", q.TransactionalID, "error", err)
		return v.questions.none
	}
	r := &field.Reader{Flexible: true, Bytes: answer}
	a := twopc.Answer{Result: twopc.Result(r.Int8()), Txn: twopc.ReadTxn(r), Timeout: time.Duration(r.Int32()) * time.Millisecond}
	if err := r.End(); err != nil {
		v.cfg.Logger.Warn("malformed answer about a voted transaction", "node", node, "error", err)
		return v.questions.none
	}
	return a
}

// serveVerify answers another node's question.
func (v *Voted) serveVerify(ctx context.Context, _ rpc.NodeID, req []byte) ([]byte, error) {
	r := &field.Reader{Flexible: true, Bytes: req}
	if n := r.Int8(); n != askVersion {
		return nil, fmt.Errorf("coordinator: call of version %d, want %d", n, askVersion)
	}
	q := readQuestion(r, v.cfg.Now())
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("coordinator: question: %w", err)
	}
	answers := make(chan twopc.Answer, 1)
	v.questions.ask(q, true, func(a twopc.Answer) { answers <- a })
	select {
	case a := <-answers:
		w := field.Writer{Flexible: true}
		w.Int8(int8(a.Result))
		twopc.WriteTxn(&w, a.Txn)
		w.Int32(int32(a.Timeout.Milliseconds()))
		return w.Bytes, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// wordOf is what a partition is told.
func wordOf(a twopc.Answer) (partition.Verified, error) {
	switch a.Result {
	case twopc.Done:
		return partition.Verified{Ongoing: true, Txn: a.Txn, Timeout: a.Timeout}, nil
	case twopc.Busy:
		return partition.Verified{}, partition.ErrConcurrentTransactions
	case twopc.Aborted, twopc.Stale:
		return partition.Verified{}, partition.ErrTransactionAborted
	case twopc.Fenced:
		return partition.Verified{}, partition.ErrProducerFenced
	case twopc.BadState:
		return partition.Verified{}, partition.ErrInvalidTxnState
	case twopc.BadID:
		return partition.Verified{}, partition.ErrInvalidProducerIDMapping
	}
	return partition.Verified{}, partition.ErrNotCoordinator
}
