package rpc

import (
	"time"

	"gopherlog/cluster/rpc/rpcpb"
)

// linkCall is an AppendEntries over the link.
type linkCall struct{ c *call }

func (lc linkCall) reply(m *rpcpb.Message, err error) {
	switch {
	case err != nil:
		lc.c.fail(err)
	case m.GetFailure() != nil:
		lc.c.fail(fromCode(code(m.GetFailure().GetCode()), m.GetFailure().GetText()))
	default:
		r := m.GetAppendReply()
		lc.c.succeed(reply{
			success: r.GetSuccess(), noBackoff: r.GetNoRetryBackoff(),
			term: r.GetTerm(), lastLog: r.GetLastLog(),
		})
	}
}

// post and forget make the link a carrier.
func (l *link) post(c *call) error {
	g, args := c.group, c.args
	if err := l.peer.node.cfg.Failpoints.Hit(failSendAppend); err != nil {
		l.close(err)
		return ErrDown
	}
	m := &rpcpb.Append{
		Target: g.target(c.peer), Term: args.Term, PrevIndex: args.PrevLogEntry, PrevTerm: args.PrevLogTerm,
		Commit: args.LeaderCommitIndex, LastIndex: g.lastIndex(),
		Entries: make([]*rpcpb.Entry, len(args.Entries)),
	}
	for i, e := range args.Entries {
		m.Entries[i] = &rpcpb.Entry{
			Index: e.Index, Term: e.Term, Type: uint32(e.Type), Data: e.Data, Extensions: e.Extensions,
			AppendedAt: unixNano(e.AppendedAt),
		}
		if c.loan != nil { // gRPC does not say when it is done
			m.Entries[i].Data = append([]byte(nil), e.Data...)
		}
	}
	c.id = l.peer.node.nextID()
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return ErrDown
	}
	l.expected[c.id] = linkCall{c}
	l.mu.Unlock()
	l.send(&rpcpb.Message{Id: c.id, Body: &rpcpb.Message_Append{Append: m}})
	return nil
}

func (l *link) forget(c *call) bool { return l.unexpect(c.id) }

// waiter takes a reply for a goroutine that waits.
type waiter struct {
	m    *rpcpb.Message
	err  error
	done chan struct{}
}

func (w *waiter) reply(m *rpcpb.Message, err error) {
	w.m, w.err = m, err
	close(w.done)
}

// ask sends m to p and waits for the reply, parking while p is down.
func (g *group) ask(p *peer, m *rpcpb.Message, timeout time.Duration) (*rpcpb.Message, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		l, up := p.current()
		if l == nil {
			select {
			case <-up:
				continue
			case <-g.aborted:
				return nil, ErrAborted
			case <-g.node.closing:
				return nil, ErrClosed
			case <-timer.C:
				return nil, ErrDown
			}
		}
		w := &waiter{done: make(chan struct{})}
		m.Id = g.node.nextID()
		l.expect(m.Id, w)
		l.send(m)
		select {
		case <-w.done:
		case <-g.aborted:
			l.unexpect(m.Id)
			return nil, ErrAborted
		case <-timer.C:
			l.unexpect(m.Id)
			return nil, ErrTimeout
		}
		if w.err != nil {
			return nil, w.err
		}
		if f := w.m.GetFailure(); f != nil {
			return nil, fromCode(code(f.GetCode()), f.GetText())
		}
		return w.m, nil
	}
}
