package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// bareCopies is the files and sockets of the loop in bare_copies.go, and the goroutines at their other ends.
type bareCopies struct {
	parts  []*barePart
	window int
	files  []*os.File
	conns  []net.Conn
	ends   sync.WaitGroup
}

type barePart struct {
	file  *os.File
	pos   int64
	peers [2]net.Conn
	acks  [2]chan int // how many answers a read brought; never more than window are open
}

// openBareCopies makes everything ready. close it, also after an error.
func openBareCopies(dir string, partitions, window, size int) (*bareCopies, error) {
	b := &bareCopies{window: window}
	for p := range partitions {
		var err error
		part := &barePart{}
		if part.file, err = b.create(dir, fmt.Sprintf("%d-leader", p)); err != nil {
			return b, err
		}
		for i := range part.peers {
			f, err := b.create(dir, fmt.Sprintf("%d-peer%d", p, i))
			if err != nil {
				return b, err
			}
			near, far, err := connect()
			if err != nil {
				return b, err
			}
			b.conns = append(b.conns, near, far)
			part.peers[i], part.acks[i] = near, make(chan int, window)
			b.ends.Go(func() { follow(far, f, size); far.Close() })
			b.ends.Go(func() { count(near, part.acks[i]) })
		}
		b.parts = append(b.parts, part)
	}
	return b, nil
}

// count tells how many answers came, until the peer is gone.
func count(c net.Conn, acks chan<- int) {
	defer close(acks)
	buf := make([]byte, 64)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		acks <- n
	}
}

func (b *bareCopies) create(dir, name string) (*os.File, error) {
	f, err := os.Create(filepath.Join(dir, name))
	if err == nil {
		b.files = append(b.files, f)
	}
	return f, err
}

// copy sends n chunks, spread over the partitions, and returns when both peers have answered all.
func (b *bareCopies) copy(chunk []byte, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	var work errgroup.Group
	for _, p := range b.parts {
		work.Go(func() error { return p.lead(chunk, b.window, &left) })
	}
	return work.Wait()
}

func (b *bareCopies) close() {
	for _, c := range b.conns {
		c.Close()
	}
	b.ends.Wait()
	for _, f := range b.files {
		f.Close()
	}
}

// connect returns both ends of a loopback connection.
func connect() (near, far net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if far, err = l.Accept(); err != nil {
		near.Close()
		return nil, nil, err
	}
	return near, far, nil
}
