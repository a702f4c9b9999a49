package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	fillBatch  = 1 << 20 // bytes of one batch
	fillAtOnce = 4       // connections that fill
	fillWait   = 30 * time.Second
)

// filled writes as much as was asked for, then kills and restarts a node: that must take as long as with nothing.
func (r *rig) filled(ctx context.Context) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(r.cluster.dir, &disk); err != nil {
		return err
	}
	if free, need := int64(disk.Bavail)*int64(disk.Bsize), int64(len(r.cluster.nodes))*int64(r.fill); free < need+need/10 {
		return fmt.Errorf("%d MiB are free, three nodes of %s need %d: choose another -dir or a smaller -fill", free>>20, &r.fill, need>>20)
	}
	if err := r.settled(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := r.write(ctx); err != nil {
		return err
	}
	wrote := time.Since(began)
	if err := r.cluster.kill(victim); err != nil {
		return err
	}
	r.cluster.gone(victim)
	held, err := r.held(victim)
	if err != nil {
		return err
	}
	r.row("bytes of the killed node", float64(held)/(1<<20), 0, "MiB", fmt.Sprintf("written to three in %.0f s", wrote.Seconds()))
	return r.restart(ctx, "restart with them")
}

// write gives each partition its share, in batches of a mebibyte at most, through its leader.
func (r *rig) write(ctx context.Context) error {
	share := max(1, int(r.fill)/len(r.partitions))
	at, err := places(ctx, r.cluster.addrs[0], r.partitions)
	if err != nil {
		return err
	}
	full, rest := batch(min(fillBatch, share)), share%fillBatch
	var wg sync.WaitGroup
	errs := make([]error, fillAtOnce)
	for w := range fillAtOnce {
		wg.Go(func() {
			for i := w; i < len(r.partitions) && errs[w] == nil; i += fillAtOnce {
				errs[w] = fillOne(ctx, r.cluster.addrs[at[r.partitions[i]].leader], r.partitions[i], max(1, share/fillBatch), full)
				if errs[w] == nil && share > fillBatch && rest > 0 {
					errs[w] = fillOne(ctx, r.cluster.addrs[at[r.partitions[i]].leader], r.partitions[i], 1, batch(rest))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func fillOne(ctx context.Context, addr string, p partition, batches int, one []byte) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for range batches {
		acked, err := c.produce(ctx, []partition{p}, one, fillWait)
		if err != nil {
			return err
		}
		if len(acked) == 0 {
			return fmt.Errorf("%v took no record while it was filled", p)
		}
	}
	return nil
}

// held is how many bytes a node's partitions have on disk.
func (r *rig) held(node int) (sum int64, err error) {
	err = filepath.WalkDir(filepath.Join(r.cluster.dir, fmt.Sprint(node+1), "topics"), func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}
