package coordinator

import (
	"context"
	"fmt"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/txn/field"
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

// Verify asks the coordinator of a voted transaction which one is open, and lets it have the partition if the question says so.
func (v *Voted) Verify(q partition.Question, done func(partition.Verified, error)) {
	if t, _ := v.shards.find(q.TransactionalID); t != nil {
		v.verify(q, func(a twopc.Answer) { done(wordOf(a)) })
		return
	}
	t := v.cfg.Meta.Image().Topic(VotedTopic)
	if t == nil {
		done(partition.Verified{}, partition.ErrNotCoordinator)
		return
	}
	node := leaderOf(t, ShardOf(q.TransactionalID, len(t.Partitions)))
	if node == meta.NoLeader || node == v.cfg.Self || !v.post.question(func() { done(v.askNode(node, q)) }) {
		done(partition.Verified{}, partition.ErrNotCoordinator)
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

// askNode asks the machine on another node.
func (v *Voted) askNode(node rpc.NodeID, q partition.Question) (partition.Verified, error) {
	patience := v.patience(q.Deadline).Sub(v.cfg.Now())
	w := field.Writer{Flexible: true}
	w.Int8(askVersion)
	writeQuestion(&w, q, patience)
	ctx, cancel := context.WithTimeout(v.post.ctx, patience+voteCallTime)
	defer cancel()
	answer, err := v.cfg.Node.Call(ctx, node, askMethod, w.Bytes)
	if err != nil {
		v.cfg.Logger.Debug("no answer to a question about a voted transaction", "node", node, "id", q.TransactionalID, "error", err)
		return partition.Verified{}, partition.ErrNotCoordinator
	}
	r := &field.Reader{Flexible: true, Bytes: answer}
	a := twopc.Answer{Result: twopc.Result(r.Int8()), Txn: twopc.ReadTxn(r), Timeout: time.Duration(r.Int32()) * time.Millisecond}
	if err := r.End(); err != nil {
		v.cfg.Logger.Warn("malformed answer about a voted transaction", "node", node, "error", err)
		return partition.Verified{}, partition.ErrNotCoordinator
	}
	return wordOf(a)
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
	v.verify(q, func(a twopc.Answer) { answers <- a })
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
