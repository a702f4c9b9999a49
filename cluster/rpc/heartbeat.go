package rpc

import (
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc/rpcpb"
)

// maxBeats bounds the heartbeats that wait for one peer.
const maxBeats = 1 << 16

// beat is one heartbeat that a group waits for.
type beat struct {
	group *group
	to    ServerID
	term  uint64
	done  chan *rpcpb.HeartbeatReply // room for one
}

// heartbeat merges this heartbeat with those of other groups to the same peer
// and waits for its answer; while the peer is down it parks. A peer that follows
// and whose pings are fresh gets it GroupOptions.Rest later.
func (g *group) heartbeat(p *peer, to ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := g.mayLead(args.Term); err != nil {
		return err
	}
	if g.opts.Suppress && g.opts.Rest > 0 && p.fresh(freshPing) && g.continues(to, args.Term) {
		rest := time.NewTimer(g.node.restUntil(g.opts.Rest))
		g.idle(rest.C, args.Term, nil, nil)
		rest.Stop()
		if err := g.mayLead(args.Term); err != nil {
			return err
		}
	}
	b := &beat{group: g, to: to, term: args.Term, done: make(chan *rpcpb.HeartbeatReply, 1)}
	if err := p.addBeat(b); err != nil {
		return err
	}
	r, err := b.wait()
	switch {
	case err != nil:
		return err
	case r.GetCode() != 0:
		return fromCode(code(r.GetCode()), "")
	}
	g.beatAnswered(to, args.Term, r.GetFresh())
	*resp = raft.AppendEntriesResponse{Term: r.GetTerm(), Success: r.GetSuccess()}
	return nil
}

// wait returns the answer. Until the beat has left there is no limit but a
// newer term: the peer may be down for long. Once it has, the link ends it.
func (b *beat) wait() (*rpcpb.HeartbeatReply, error) {
	for {
		newer, err := b.group.outdated(b.term)
		if err != nil {
			return nil, err
		}
		select {
		case r := <-b.done:
			return r, nil
		case <-newer:
		case <-b.group.aborted: // as by Node.Close
			return nil, ErrAborted
		}
	}
}

// addBeat queues b until the window ends or the link comes up.
func (p *peer) addBeat(b *beat) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.beats) >= maxBeats {
		return ErrBusy
	}
	p.beats = append(p.beats, b)
	if !p.beating && p.link != nil {
		p.beating = true
		time.AfterFunc(p.node.cfg.BeatEvery, p.sendBeats)
	}
	return nil
}

// sendBeats ends the window: all that wait leave in one message.
func (p *peer) sendBeats() {
	p.mu.Lock()
	p.beating = false
	link := p.link
	if link == nil || len(p.beats) == 0 {
		p.mu.Unlock()
		return
	}
	list := p.beats
	p.beats = nil
	p.mu.Unlock()

	m := &rpcpb.Heartbeats{Beats: make([]*rpcpb.Heartbeat, 0, len(list))}
	for _, b := range list {
		if err := b.group.mayLead(b.term); err != nil {
			c, _ := toCode(err)
			b.done <- &rpcpb.HeartbeatReply{Code: uint32(c)}
			continue
		}
		p.node.counts.beatsSent.Add(1)
		id := p.node.nextID()
		link.expectBeat(id, b)
		m.Beats = append(m.Beats, &rpcpb.Heartbeat{
			Id: id, Target: b.group.target(b.to), Term: b.term, LastIndex: b.group.lastIndex(),
		})
	}
	link.send(&rpcpb.Message{Body: &rpcpb.Message_Heartbeats{Heartbeats: m}})
}

// beatReply completes a beat; expected by id on a link.
type beatReply struct{ b *beat }

func (r beatReply) reply(m *rpcpb.Message, err error) {
	if err != nil {
		c, _ := toCode(err)
		r.b.done <- &rpcpb.HeartbeatReply{Code: uint32(c)}
		return
	}
	r.b.done <- m.GetHeartbeatReplies().GetReplies()[0]
}

func (g *group) target(to ServerID) *rpcpb.Target {
	return &rpcpb.Target{Group: g.id.Bytes(), From: string(g.self), To: string(to)}
}

func (g *group) lastIndex() uint64 {
	if g.log == nil {
		return 0
	}
	return g.log.LastIndex()
}

// beaten handles heartbeats that arrived: those of the leader that we follow
// are answered at once, the others when the group has answered.
func (n *Node) beaten(out *sender, m *rpcpb.Heartbeats, serving bool) {
	now := &rpcpb.HeartbeatReplies{}
	for _, b := range m.GetBeats() {
		if r := n.beatenOne(out, b, serving); r != nil {
			now.Replies = append(now.Replies, r)
		}
	}
	if len(now.Replies) > 0 {
		out.send(&rpcpb.Message{Body: &rpcpb.Message_HeartbeatReplies{HeartbeatReplies: now}})
	}
}

// beatenOne returns the answer if it is known already. The heartbeat goes to
// the group's own goroutine in any case, never around it; it is dropped when
// the group does not keep up, since what it has to do first is contact too.
func (n *Node) beatenOne(out *sender, b *rpcpb.Heartbeat, serving bool) *rpcpb.HeartbeatReply {
	refuse := func(err error) *rpcpb.HeartbeatReply {
		c, _ := toCode(err)
		return &rpcpb.HeartbeatReply{Id: b.GetId(), Code: uint32(c)}
	}
	g, err := n.receiver(b.GetTarget(), serving)
	if err != nil {
		return refuse(err)
	}
	from, fromBytes := g.intern([]byte(b.GetTarget().GetFrom()))
	if g.opts.LeaderEnd != nil {
		g.opts.LeaderEnd(from, b.GetTerm(), b.GetLastIndex())
	}
	before := g.observation()
	early := before.term == b.GetTerm() && before.leader == from
	fresh := before.leader == ""
	g.followed(b.GetTerm())
	req := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raftProtocol, ID: fromBytes, Addr: fromBytes},
		Term:      b.GetTerm(),
	}
	err = g.deliver(req, nil, beatDepth, answerFunc(func(r raft.RPCResponse) {
		resp, _ := r.Response.(*raft.AppendEntriesResponse)
		if r.Error == nil && resp != nil {
			g.answered(resp, req.Term, from)
		}
		if early {
			return
		}
		late := &rpcpb.HeartbeatReply{Id: b.GetId(), Fresh: fresh}
		if r.Error != nil || resp == nil {
			late.Code = uint32(codeClosed)
		} else {
			late.Term, late.Success = resp.Term, resp.Success
		}
		out.send(&rpcpb.Message{Body: &rpcpb.Message_HeartbeatReplies{
			HeartbeatReplies: &rpcpb.HeartbeatReplies{Replies: []*rpcpb.HeartbeatReply{late}},
		}})
	}))
	if err != nil {
		n.counts.beatsDropped.Add(1)
	}
	if early {
		return &rpcpb.HeartbeatReply{Id: b.GetId(), Term: b.GetTerm(), Success: true}
	}
	if err != nil {
		return refuse(err)
	}
	return nil
}

// answered notes what the answer to a heartbeat of leader makes public.
func (g *group) answered(resp *raft.AppendEntriesResponse, term uint64, leader ServerID) {
	if resp.Success {
		g.observe(term, leader)
	} else {
		g.raise(resp.Term)
	}
}

// accepted notes what the answer to an AppendEntries of leader makes public.
func (g *group) accepted(resp *raft.AppendEntriesResponse, req *raft.AppendEntriesRequest, leader ServerID) {
	g.answered(resp, req.Term, leader)
	if resp.Success && g.opts.Accepted != nil {
		g.opts.Accepted(req.Term, req.PrevLogEntry+uint64(len(req.Entries)))
	}
}

// sentBeat says when a beat left, so that the link can end those without an
// answer: a timer for each would cost more than the heartbeats.
type sentBeat struct {
	id uint64
	at time.Time
}

// expectBeat is expect for a beat; sweepBeats ends it.
func (l *link) expectBeat(id uint64, b *beat) {
	l.mu.Lock()
	if l.err == nil {
		l.expected[id] = beatReply{b}
		l.beats = append(l.beats, sentBeat{id, time.Now()})
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	beatReply{b}.reply(nil, ErrDown)
}

// sweepBeats fails the beats that have waited too long for their answer.
func (l *link) sweepBeats() {
	limit := time.Now().Add(-l.peer.node.cfg.VoteTimeout)
	var late []expecter
	l.mu.Lock()
	for len(l.beats) > 0 && !l.beats[0].at.After(limit) {
		if e := l.expected[l.beats[0].id]; e != nil {
			late = append(late, e)
			delete(l.expected, l.beats[0].id)
		}
		l.beats = l.beats[1:]
	}
	l.mu.Unlock()
	for _, e := range late {
		e.reply(nil, ErrTimeout)
	}
}
