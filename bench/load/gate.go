package load

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

var errGateCut = errors.New("load: the client is cut off for good")

// A gate stands between a client and the network: while it is shut nothing leaves and nothing arrives, and the client does not learn why.
type gate struct {
	mu    sync.Mutex
	shut  chan struct{} // not nil while shut; closed when it opens
	cut   bool
	conns map[*gatedConn]struct{}
	tls   *tls.Config // nil: plain text

	source string // local address; "": any
}

func newGate() *gate { return &gate{conns: map[*gatedConn]struct{}{}} }

// hold shuts the gate.
func (g *gate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

// open lets through what waits.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// sever ends every connection without a word, and refuses new ones.
func (g *gate) sever() {
	g.mu.Lock()
	g.cut = true
	conns := g.conns
	g.conns = map[*gatedConn]struct{}{}
	g.mu.Unlock()
	for c := range conns {
		c.Close()
	}
	g.open()
}

// pass waits until the gate is open, or done is closed.
func (g *gate) pass(done <-chan struct{}) error {
	for {
		g.mu.Lock()
		shut, cut := g.shut, g.cut
		g.mu.Unlock()
		switch {
		case cut:
			return errGateCut
		case shut == nil:
			return nil
		}
		select {
		case <-shut:
		case <-done:
			return net.ErrClosed
		}
	}
}

func (g *gate) dial(ctx context.Context, network, host string) (net.Conn, error) {
	if err := g.pass(ctx.Done()); err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: dialTimeout}
	if g.source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(g.source)}
	}
	conn, err := d.DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	if g.tls != nil {
		cfg := g.tls.Clone()
		if name, _, err := net.SplitHostPort(host); err == nil && cfg.ServerName == "" {
			cfg.ServerName = name
		}
		conn = tls.Client(conn, cfg)
	}
	c := &gatedConn{Conn: conn, gate: g, closed: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cut {
		conn.Close()
		return nil, errGateCut
	}
	g.conns[c] = struct{}{}
	return c, nil
}

type gatedConn struct {
	net.Conn
	gate   *gate
	once   sync.Once
	closed chan struct{}
}

// Read hands over what arrived once the gate is open.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if passed := c.gate.pass(c.closed); passed != nil {
		return 0, passed
	}
	return n, err
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if err := c.gate.pass(c.closed); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *gatedConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.gate.mu.Lock()
		delete(c.gate.conns, c)
		c.gate.mu.Unlock()
	})
	return c.Conn.Close()
}
