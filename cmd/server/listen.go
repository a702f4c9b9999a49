package main

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"gopherlog/cmd/internal/cli"
)

// listen binds one address; what can go wrong becomes a sentence that names the flag.
func listen(flag, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l, nil
	}
	what, advice := err.Error(), "check the address"
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		what, advice = "the address is in use", "stop the process that listens there or give another "+flag
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		what, advice = "this machine does not have that address", "give one of its own, or :PORT for all"
	case errors.Is(err, syscall.EACCES):
		what, advice = "not permitted", "ports below 1024 need privileges: give a higher one"
	case errors.As(err, &dns):
		what, advice = "the host name is not known", "give an address of this machine, or :PORT for all"
	}
	return nil, cli.Environment(fmt.Errorf("cannot listen on %s %s: %s; %s", flag, addr, what, advice))
}

// public says whether the address can be reached from other machines.
func public(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// gate holds an address while the node is not ready: it hangs up on whoever comes, so that clients go on to another
// node at once. Open hands the listener over.
type gate struct {
	net.Listener
	wg   sync.WaitGroup
	once sync.Once
}

func newGate(l net.Listener) *gate {
	g := &gate{Listener: l}
	g.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // opened or closed
			}
			c.Close()
		}
	})
	return g
}

// Open ends the hanging up and returns the listener to accept from.
func (g *gate) Open() net.Listener {
	g.once.Do(func() {
		deadline, ok := g.Listener.(interface{ SetDeadline(time.Time) error })
		if !ok {
			panic(fmt.Sprintf("gate: listener %T has no deadline", g.Listener))
		}
		_ = deadline.SetDeadline(time.Unix(1, 0)) // fails only when closed, which ends the loop too
		g.wg.Wait()
		_ = deadline.SetDeadline(time.Time{})
	})
	return g.Listener
}

// Close ends the gate with its listener.
func (g *gate) Close() error {
	err := g.Listener.Close()
	g.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // whom it was handed over to has closed it
	}
	return err
}
