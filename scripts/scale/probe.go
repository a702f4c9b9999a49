package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	probers     = 8           // connections to each node
	produceWait = time.Second // for how long a node may hold one request
)

// probe writes to every partition through every one of these nodes until it was acknowledged, and returns when each was, since began.
type probe struct {
	addrs []string
	pause time.Duration // between two requests of a connection

	mu    sync.Mutex
	acked map[partition]time.Duration
	began time.Time
}

func (p *probe) run(ctx context.Context, partitions []partition) (map[partition]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.acked = make(map[partition]time.Duration, len(partitions))
	var wg sync.WaitGroup
	for _, addr := range p.addrs {
		for w := range min(probers, len(partitions)) {
			var share []partition
			for i := w; i < len(partitions); i += probers {
				share = append(share, partitions[i])
			}
			wg.Go(func() { p.work(ctx, addr, share) })
		}
	}
	wg.Wait()
	if missing := p.missing(partitions); len(missing) > 0 {
		return nil, errors.Join(fmt.Errorf("%d of %d partitions took no record, %v among them", len(missing), len(partitions), missing[0]), ctx.Err())
	}
	return p.acked, nil
}

func (p *probe) missing(partitions []partition) (out []partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range partitions {
		if _, ok := p.acked[x]; !ok {
			out = append(out, x)
		}
	}
	return out
}

// work asks one node about a share of the partitions until all of them have acknowledged, to whomever.
func (p *probe) work(ctx context.Context, addr string, share []partition) {
	one := batch(200)
	var c *conn
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for ctx.Err() == nil {
		share = p.missing(share)
		if len(share) == 0 {
			return
		}
		var err error
		if c == nil {
			c, err = dial(ctx, addr)
		}
		var acked []partition
		if err == nil {
			acked, err = c.produce(ctx, share, one, produceWait)
		}
		if err != nil && c != nil {
			c.Close()
			c = nil
		}
		now := time.Since(p.began)
		p.mu.Lock()
		for _, x := range acked {
			if _, ok := p.acked[x]; !ok {
				p.acked[x] = now
			}
		}
		p.mu.Unlock()
		select {
		case <-time.After(p.pause):
		case <-ctx.Done():
		}
	}
}

// halfAndAll returns when half and when all of the partitions had acknowledged.
func halfAndAll(acked map[partition]time.Duration) (half, all time.Duration) {
	var ds []time.Duration
	for _, d := range acked {
		ds = append(ds, d)
	}
	slices.Sort(ds)
	return ds[(len(ds)-1)/2], ds[len(ds)-1]
}
