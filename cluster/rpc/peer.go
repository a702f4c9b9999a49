package rpc

import (
	"context"
	"errors"
	"sync"
	"time"
)

// peer is another node as this one sees it. One goroutine (run) owns the
// connections; everything else reads them under mu.
type peer struct {
	node *Node
	id   NodeID
	stop context.CancelFunc

	mu      sync.Mutex
	addr    string
	link    *link         // the gRPC connection; nil while down
	stream  *outStream    // the plain stream; nil while down
	up      chan struct{} // closed and replaced whenever either changes
	refusal error         // why the last attempt failed

	heard    bool // a pong came at least once, or the verdict was reached
	dead     bool
	lastPong time.Time
	trips    roundTrips
	silence  *time.Timer
	reports  reports // whom this peer reports dead

	beats   []*beat
	beating bool
}

// errMoved ends a link whose peer got another address.
var errMoved = errors.New("rpc: the peer's address changed")

func newPeer(n *Node, id NodeID, addr string) *peer {
	return &peer{node: n, id: id, addr: addr, up: make(chan struct{})}
}

// run keeps the peer connected until ctx ends.
func (p *peer) run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		l, err := p.dialLink(ctx)
		if err != nil {
			p.lost(err)
			sleep(ctx, pause)
			pause = min(2*pause, p.node.cfg.RedialEvery)
			continue
		}
		pause = firstPause
		p.connected(l)
		p.keepStream(ctx, l)
		p.disconnected(l)
	}
	p.mu.Lock()
	if p.silence != nil {
		p.silence.Stop()
	}
	beats := p.beats
	p.beats = nil
	p.mu.Unlock()
	for _, b := range beats {
		beatReply{b}.reply(nil, ErrClosed)
	}
}

const firstPause = 10 * time.Millisecond

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// keepStream keeps a plain stream beside l until l ends.
func (p *peer) keepStream(ctx context.Context, l *link) {
	pause := firstPause
	for {
		s, err := p.dialStream(l)
		if err == nil {
			pause = firstPause
			p.setStream(s)
			select {
			case <-s.closed:
			case <-l.closed:
				s.close(ErrDown)
			}
			p.setStream(nil)
			s.wait()
		} else {
			p.node.cfg.Logger.Debug("plain stream not open", "peer", p.id, "error", err)
		}
		select {
		case <-l.closed:
			return
		default:
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-l.closed:
			t.Stop()
			return
		}
		pause = min(2*pause, p.node.cfg.RedialEvery)
	}
}

func (p *peer) connected(l *link) {
	p.mu.Lock()
	p.link, p.refusal = l, nil
	p.lastPong = time.Now() // its hello counts as one, but is no verdict
	p.listenLocked()
	p.changedLocked()
	p.mu.Unlock()
	p.node.cfg.Logger.Info("peer connected", "peer", p.id)
	l.ping()
	p.sendBeats()
}

func (p *peer) disconnected(l *link) {
	p.mu.Lock()
	p.link = nil
	p.node.counts.linksLost.Add(1)
	p.changedLocked()
	p.mu.Unlock()
	l.wait()
	p.node.cfg.Logger.Info("peer disconnected", "peer", p.id, "error", l.reason())
}

func (p *peer) setStream(s *outStream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stream = s
	p.changedLocked()
}

func (p *peer) changedLocked() {
	close(p.up)
	p.up = make(chan struct{})
}

// carrier returns what moves AppendEntries, or nil and a channel that is
// closed at the next change.
func (p *peer) carrier(bulk bool) (carrier, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case bulk && p.stream != nil:
		return p.stream, nil
	case !bulk && p.link != nil:
		return p.link, nil
	}
	return nil, p.up
}

func (p *peer) current() (*link, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link, p.up
}

// lost is told of a failed dial. The peer is dead at once: nobody answers at
// its address.
func (p *peer) lost(err error) {
	p.mu.Lock()
	if p.refusal == nil || p.refusal.Error() != err.Error() {
		p.node.cfg.Logger.Warn("peer not reached", "peer", p.id, "addr", p.addr, "error", err)
	}
	p.refusal = err
	p.mu.Unlock()
	p.judge(true)
}

// judge sets the verdict and tells it to whoever must know.
func (p *peer) judge(dead bool) {
	p.mu.Lock()
	if p.heard && p.dead == dead {
		p.mu.Unlock()
		return
	}
	p.heard, p.dead = true, dead
	p.mu.Unlock()
	p.node.verdict(p.id, !dead)
}

// ponged takes over an answer to a ping that took d.
func (p *peer) ponged(d time.Duration, r report) {
	p.mu.Lock()
	p.lastPong = time.Now()
	p.trips.add(d)
	p.listenLocked()
	p.mu.Unlock()
	p.judge(false)
	p.took(r)
}

// listenLocked starts the wait for the next pong anew.
func (p *peer) listenLocked() {
	threshold := deadThreshold(p.node.cfg.DeadAfter, p.trips.p99())
	if p.silence == nil {
		p.silence = time.AfterFunc(threshold, p.silent)
	} else {
		p.silence.Reset(threshold)
	}
}

// silent runs when no pong came for a threshold.
func (p *peer) silent() {
	if p.node.isClosed() {
		return // the timer fired while Close ran
	}
	now := time.Now()
	p.mu.Lock()
	threshold := deadThreshold(p.node.cfg.DeadAfter, p.trips.p99())
	hangUp := max(p.node.cfg.HangUpAfter, 2*threshold)
	since := now.Sub(p.lastPong)
	dead, again := silence(since, now.Sub(p.node.lastTick()), threshold, p.node.cfg.PingInterval)
	link := p.link
	switch {
	case !dead:
		p.silence.Reset(again)
	case since < hangUp && link != nil:
		p.silence.Reset(hangUp - since)
	}
	p.mu.Unlock()
	if !dead {
		return
	}
	p.judge(true)
	if since >= hangUp && link != nil {
		link.close(ErrDown) // after a cut heals, a new connection is up before the old one retransmits
	}
}

// fresh says whether the last pong is younger than d.
func (p *peer) fresh(d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link != nil && time.Since(p.lastPong) < d
}

func (p *peer) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard && !p.dead
}

func (p *peer) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard && p.dead
}

// move gives the peer another address; a connection to the old one is closed.
func (p *peer) move(addr string) {
	p.mu.Lock()
	same := p.addr == addr
	p.addr = addr
	link := p.link
	p.mu.Unlock()
	if !same && link != nil {
		link.close(errMoved)
	}
}
