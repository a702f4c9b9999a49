package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gopherlog/scripts/internal/child"
)

// patience bounds the wait for anything that has no limit of its own.
const patience = 2 * time.Minute

// cluster is three nodes of the server command. A node's number is its id - 1.
type cluster struct {
	server               string
	dir                  string
	addrs, admins, links []string
	nodes                []*child.Process
}

// newCluster chooses addresses; nothing runs yet.
func newCluster(o options, dir string) (*cluster, error) {
	const n = 3
	all, err := child.Addrs(3 * n)
	if err != nil {
		return nil, err
	}
	return &cluster{server: o.server, dir: dir, addrs: all[:n], admins: all[n : 2*n], links: all[2*n:], nodes: make([]*child.Process, n)}, nil
}

func (c *cluster) start(i int) (err error) {
	var peers []string
	for j, l := range c.links {
		peers = append(peers, fmt.Sprintf("%d@%s", j+1, l))
	}
	c.nodes[i], err = child.Start(c.server, nil, nil, "-id", strconv.Itoa(i+1), "-addr", c.addrs[i], "-rpc", c.links[i], "-admin", c.admins[i], "-pprof",
		"-peers", strings.Join(peers, ","), "-data", filepath.Join(c.dir, strconv.Itoa(i+1)), "-log-level", "warn")
	return err
}

// kill sends SIGKILL and returns at once.
func (c *cluster) kill(i int) error { return c.nodes[i].Kill() }

// gone waits until a killed node is reaped.
func (c *cluster) gone(i int) { <-c.nodes[i].Gone() }

// stop kills all nodes: what they wrote is removed next.
func (c *cluster) stop() {
	for _, p := range c.nodes {
		if p != nil {
			p.Stop()
		}
	}
}

// ready waits until a node answers /readyz.
func (c *cluster) ready(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.nodes[i].Ready(ctx, c.admins[i]); err != nil {
		return fmt.Errorf("node %d: %w", i+1, err)
	}
	return nil
}
