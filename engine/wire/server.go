package wire

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Server accepts connections and serves them. Close ends every goroutine it started.
type Server struct {
	cfg    Config
	limits Limits
	pool   *Pool
	log    *slog.Logger
	flex   flexible
	budget *budget
	ctx    context.Context
	cancel context.CancelFunc
	epoch  time.Time
	stats  counters
	wg     sync.WaitGroup

	logSecond, logLines atomic.Int64 // for mayLog

	mu      sync.Mutex
	conns   map[*Conn]struct{}
	started bool
	closed  bool
}

// New prepares a server; it accepts nothing before Start.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, limits: cfg.Limits.WithDefaults(), pool: cfg.Pool, log: cfg.Logger, flex: newFlexible(), conns: map[*Conn]struct{}{}}
	if s.pool == nil {
		s.pool = NewPool()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.cfg.Now == nil {
		s.cfg.Now = time.Now
	}
	s.epoch = s.cfg.Now().Add(-time.Nanosecond) // so that no mark is 0
	s.budget = &budget{limit: s.limits.InflightNode}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start begins to accept. Call it once.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.started {
		return
	}
	s.started = true
	s.wg.Add(2)
	go s.accept()
	go s.watch()
}

// Close stops accepting, drops all connections and waits for every goroutine, handlers included.
func (s *Server) Close() {
	for _, c := range s.stop() {
		c.Close(ErrClosed)
	}
	s.cancel()
	s.wg.Wait()
}

// Shutdown stops accepting and reading, lets the requests that were read be answered, and then closes; it
// closes at once when ctx ends.
func (s *Server) Shutdown(ctx context.Context) {
	for _, c := range s.stop() {
		c.drain()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.Stats().Conns > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	s.Close()
}

func (s *Server) stop() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.cfg.Listener != nil {
		s.cfg.Listener.Close()
	}
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

const maxAcceptPause = time.Second

func (s *Server) accept() {
	defer s.wg.Done()
	pause := time.Duration(0)
	for {
		nc, err := s.cfg.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
				return
			}
			if pause == 0 { // told when it begins, not with every attempt
				s.log.Warn("cannot accept connections", "error", err)
			}
			pause = min(max(2*pause, 5*time.Millisecond), maxAcceptPause)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
				return
			}
			continue
		}
		pause = 0
		s.serve(nc)
	}
}

func (s *Server) serve(nc net.Conn) {
	s.mu.Lock()
	if s.closed || len(s.conns) >= s.limits.MaxConns {
		closed := s.closed
		s.mu.Unlock()
		nc.Close()
		if !closed {
			s.stats.refusedConns.Add(1)
		}
		if !closed && s.mayLog() {
			s.log.Warn("connection refused: too many", "limit", s.limits.MaxConns, "client", nc.RemoteAddr())
		}
		return
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	s.stats.accepted.Add(1)
	s.wg.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.wg.Done()
		c.serve()
	}()
}

func (s *Server) forget(c *Conn, reason error) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	switch {
	case errors.Is(reason, ErrFrame):
		s.stats.badFrames.Add(1)
	case errors.Is(reason, ErrDeadline):
		s.stats.overdue.Add(1)
	default: // the client went away, or this server does
		s.log.Debug("connection closed", "client", c.RemoteAddr(), "reason", reason)
		return
	}
	if s.mayLog() {
		s.log.Info("connection dropped", "client", c.RemoteAddr(), "reason", reason)
	}
}

// dropsLogged is how many dropped connections a second are named in the log; Stats counts all.
const dropsLogged = 5

func (s *Server) mayLog() bool {
	second := s.nanos() / int64(time.Second)
	if s.logSecond.Swap(second) != second {
		s.logLines.Store(0)
	}
	return s.logLines.Add(1) <= dropsLogged
}

// watch closes connections that overstay a deadline. One pass over all of them now and then replaces two
// timers a frame; deadlines are met to within an eighth, or a second.
func (s *Server) watch() {
	defer s.wg.Done()
	every := min(s.limits.FrameDeadline, s.limits.WriteDeadline, s.limits.IdleDeadline) / 8
	tick := time.NewTicker(min(max(every, time.Millisecond), time.Second))
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		now := s.nanos()
		for _, c := range s.list() {
			if which := c.overdue(now); which != "" {
				c.Close(deadlineError(which))
			}
		}
	}
}

func (s *Server) list() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

type deadlineError string

func (e deadlineError) Error() string        { return string(e) + " deadline passed" }
func (e deadlineError) Is(target error) bool { return target == ErrDeadline }

func (s *Server) now() time.Time { return s.cfg.Now() }
func (s *Server) nanos() int64   { return int64(s.cfg.Now().Sub(s.epoch)) }

type counters struct {
	accepted, refusedConns, badFrames, overdue, requests, bytesOut atomic.Int64
}

// Stats is a snapshot of what the server did and holds.
type Stats struct {
	Conns         int   // open now
	Accepted      int64 // connections served
	Refused       int64 // connections over the limit
	BadFrames     int64 // connections dropped for what they sent
	Overdue       int64 // connections dropped at a deadline
	Requests      int64
	BytesOut      int64
	InflightBytes int64 // request buffers in use, by capacity
}

// Stats answers from counters; it never waits for a connection.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	conns := len(s.conns)
	s.mu.Unlock()
	return Stats{
		Conns: conns, Accepted: s.stats.accepted.Load(), Refused: s.stats.refusedConns.Load(),
		BadFrames: s.stats.badFrames.Load(), Overdue: s.stats.overdue.Load(),
		Requests: s.stats.requests.Load(), BytesOut: s.stats.bytesOut.Load(), InflightBytes: s.budget.inUse(),
	}
}
