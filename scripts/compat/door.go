package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// door is an address behind which some node that is up is reached, as behind a load balancer.
type door struct {
	listener net.Listener
	nodes    []string
	next     atomic.Uint32
	wg       sync.WaitGroup

	mu    sync.Mutex
	over  bool
	conns map[net.Conn]bool
}

// doorDial bounds the wait for one node; the others are tried then.
const doorDial = time.Second

func openDoor(nodes []string) (*door, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &door{listener: l, nodes: nodes, conns: map[net.Conn]bool{}}
	d.wg.Go(d.accept)
	return d, nil
}

func (d *door) addr() string { return d.listener.Addr().String() }

func (d *door) close() {
	_ = d.listener.Close()
	d.mu.Lock()
	d.over = true
	for c := range d.conns {
		_ = c.Close()
	}
	d.mu.Unlock()
	d.wg.Wait()
}

func (d *door) accept() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.wg.Go(func() { d.serve(client) })
	}
}

// serve carries what a client and a node say, until one of them ends.
func (d *door) serve(client net.Conn) {
	node := d.dial()
	if node == nil || !d.keep(client, node) {
		for _, c := range []net.Conn{client, node} {
			if c != nil {
				_ = c.Close()
			}
		}
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, node}, {node, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = client.Close(), node.Close()
		})
	}
	both.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, client)
	delete(d.conns, node)
}

// dial reaches the next node that is up; nil if none is.
func (d *door) dial() net.Conn {
	for range d.nodes {
		c, err := net.DialTimeout("tcp", d.nodes[int(d.next.Add(1))%len(d.nodes)], doorDial)
		if err == nil {
			return c
		}
	}
	return nil
}

func (d *door) keep(conns ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range conns {
		d.conns[c] = true
	}
	return !d.over
}
