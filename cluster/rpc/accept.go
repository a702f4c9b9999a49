package rpc

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	maxSniffing  = 256             // connections that have not said yet what they are
	sniffTimeout = 5 * time.Second // in which they have to
	acceptPause  = 500 * time.Millisecond
)

// accept takes connections from the one listener and splits them by their
// first bytes.
func (n *Node) accept() {
	sniffing := make(chan struct{}, maxSniffing)
	pause := firstPause
	for {
		conn, err := n.cfg.Listen.Accept()
		if err != nil {
			if n.isClosed() || errors.Is(err, net.ErrClosed) {
				return
			}
			if pause == firstPause { // told when it begins, not with every attempt
				n.cfg.Logger.Warn("cannot accept connections of other nodes", "error", err)
			}
			time.Sleep(pause) // out of descriptors: others may free some
			pause = min(2*pause, acceptPause)
			continue
		}
		pause = firstPause
		if !n.track(conn) {
			conn.Close()
			return
		}
		sniffing <- struct{}{}
		n.wg.Go(func() {
			magic, err := sniff(conn)
			<-sniffing
			switch {
			case err != nil:
			case magic == bulkMagic:
				n.serveStream(conn)
			case magic == grpcPreface:
				n.grpcConns.hand(&sniffedConn{Conn: conn, head: []byte(magic), gone: n.untrack})
				return
			}
			n.untrack(conn)
			conn.Close()
		})
	}
}

// sniff reads the bytes that say what a connection is.
func sniff(conn net.Conn) (string, error) {
	b := make([]byte, magicSize)
	conn.SetReadDeadline(time.Now().Add(sniffTimeout))
	_, err := io.ReadFull(conn, b)
	conn.SetReadDeadline(time.Time{})
	return string(b), err
}

// sniffedConn gives back the bytes that sniff took.
type sniffedConn struct {
	net.Conn
	head []byte
	gone func(net.Conn)
}

func (c *sniffedConn) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

func (c *sniffedConn) Close() error {
	c.gone(c.Conn)
	return c.Conn.Close()
}

// handedListener is a net.Listener of connections that somebody else accepted.
type handedListener struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandedListener(addr net.Addr) *handedListener {
	return &handedListener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *handedListener) hand(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.closed:
		c.Close()
	}
}

func (l *handedListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *handedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *handedListener) Addr() net.Addr { return l.addr }
