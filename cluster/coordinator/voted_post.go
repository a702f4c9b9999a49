package coordinator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/rpc"
	"gopherlog/txn/field"
	"gopherlog/txn/twopc"
)

// voteMethod carries messages between coordinators and participants of voted transactions.
//
//	version i8 = 1 | count | count of { up i8 | transactional id | participant (up: empty) | message }
//
// in the flexible encoding; nothing is answered. up: from a participant to its coordinator. Messages may be lost, come twice and come late: the
// machines say them again, and know a stale one by the transaction's name.
const voteMethod = "txn.vote"

const voteVersion = 1

const (
	smallestLetter = 26 // bytes of one on the wire, about
	catchUpTime    = 2 * time.Second
	voteCallTime   = 2 * time.Second
)

// letter is a message on its way.
type letter struct {
	id      string
	up      bool
	to      twopc.Member // unless up
	message twopc.Message
}

// postOffice carries letters to other nodes, and delivers those of this node.
type postOffice struct {
	v      *Voted
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex // guards what follows
	closed    bool
	questions int                       // that other nodes are asked
	sought    map[twopc.Member][]func() // partitions that the image does not show, and who wants to know whether they are gone
}

func newPostOffice(v *Voted) *postOffice {
	p := &postOffice{v: v, sought: map[twopc.Member][]func(){}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *postOffice) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
}

// question runs fn, which asks another node, on a goroutine that close waits for; false: there are too many, or it is closed.
func (p *postOffice) question(fn func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.questions >= maxQuestions {
		return false
	}
	p.questions++
	p.wg.Go(func() {
		fn()
		p.mu.Lock()
		p.questions--
		p.mu.Unlock()
	})
	return true
}

// send begins to carry a letter. false: the partition that it goes to is not in the image. It does not block.
func (p *postOffice) send(l letter) (known bool) {
	image := p.v.cfg.Meta.Image()
	node := meta.NoLeader
	if l.up {
		node = p.v.shards.lead(p.v.cfg.Self, l.id).node
	} else {
		topic, number, ok := memberPartition(l.to)
		t := image.Topic(topic)
		if !ok || t == nil || int(number) >= len(t.Partitions) {
			return false
		}
		node = p.v.partitionLead(t, number).node
	}
	switch {
	case p.deliver(l), node == meta.NoLeader, node == p.v.cfg.Self:
	default:
		p.put(node, l)
	}
	return true
}

// deliver hands a letter to whom it is for, if they are here.
func (p *postOffice) deliver(l letter) bool {
	if l.up {
		t, _ := p.v.shards.find(l.id)
		return t != nil && t.post(func() { t.machines.(*votedTerm).hear(l.id, l.message) })
	}
	topic, number, ok := memberPartition(l.to)
	if !ok {
		return false
	}
	if at := p.v.cfg.Local(topic, number); at != nil && leads(at) {
		at.Hear(l.id, l.message)
		return true
	}
	return false
}

// leads is true of whom one cannot ask.
func leads(v Voter) bool {
	l, asks := v.(interface {
		Leader() (rpc.NodeID, int32, bool)
	})
	if !asks {
		return true
	}
	_, _, ready := l.Leader()
	return ready
}

// put sends a letter to another node. One that does not go is lost.
func (p *postOffice) put(node rpc.NodeID, l letter) {
	w := field.Writer{Flexible: true}
	w.Int8(voteVersion)
	w.Length(1)
	writeLetter(&w, l)
	p.v.stats.sent.Inc()
	if err := p.v.cfg.Node.Tell(node, voteMethod, w.Bytes); err != nil {
		p.v.cfg.Logger.Debug("a message of a voted transaction did not go", "node", node, "error", err)
		p.v.stats.lost.Inc()
	}
}

func writeLetter(w *field.Writer, l letter) {
	up := int8(0)
	if l.up {
		up = 1
	}
	w.Int8(up)
	w.Text(l.id)
	w.Text(string(l.to))
	twopc.WriteMessage(w, l.message)
}

func readLetter(r *field.Reader) (l letter, err error) {
	l.up, l.id, l.to = r.Int8() == 1, r.Text(), twopc.Member(r.Text())
	l.message, err = twopc.ReadMessage(r)
	return l, err
}

// serve delivers letters. Who does not lead what a letter is for drops it. It does not block.
func (p *postOffice) serve(from rpc.NodeID, b []byte) {
	all, err := readLetters(b)
	if err != nil {
		p.v.cfg.Logger.Warn("malformed messages of voted transactions", "node", from, "error", err)
		return
	}
	for _, l := range all {
		p.deliver(l)
	}
}

func readLetters(b []byte) ([]letter, error) {
	r := &field.Reader{Flexible: true, Bytes: b}
	if v := r.Int8(); v != voteVersion {
		return nil, fmt.Errorf("coordinator: messages of version %d, want %d", v, voteVersion)
	}
	all := make([]letter, 0, max(r.Length(smallestLetter), 0))
	for range cap(all) {
		l, err := readLetter(r)
		if err != nil {
			return nil, fmt.Errorf("coordinator: %w", err)
		}
		all = append(all, l)
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("coordinator: messages: %w", err)
	}
	return all, nil
}

// lookFor makes the image current and calls gone if it does not show the partition then.
func (p *postOffice) lookFor(m twopc.Member, gone func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	waiting, seeking := p.sought[m]
	p.sought[m] = append(waiting, gone)
	if !seeking {
		p.wg.Go(func() { p.seek(m) })
	}
}

func (p *postOffice) seek(m twopc.Member) {
	ctx, cancel := context.WithTimeout(p.ctx, catchUpTime)
	err := p.v.cfg.Meta.CatchUp(ctx)
	cancel()
	p.mu.Lock()
	waiting := p.sought[m]
	delete(p.sought, m)
	p.mu.Unlock()
	topic, number, ok := memberPartition(m)
	if t := p.v.cfg.Meta.Image().Topic(topic); err != nil || ok && t != nil && int(number) < len(t.Partitions) {
		return // it is there, or nobody can tell: the message will be repeated
	}
	for _, gone := range waiting {
		gone()
	}
}
