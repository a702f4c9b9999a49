package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"
)

const (
	producePartitions = 6
	segmentBytes      = 64 << 20 // of both sides, which keep one full segment or file beside the one that is written
)

// produceRow is a real client at saturation against three server processes, beside the same client against three processes of the produce
// loop. Before anything is measured both sides are filled up to what they keep: from then on each writes into pages that its
// own removals freed, and neither measures how fast the machine hands out memory.
func produceRow(e *env, name string, size int) row {
	b := blast{topic: "produce", partitions: producePartitions, size: size, warm: 700 * time.Millisecond, run: 2500 * time.Millisecond}
	if e.short {
		b.warm, b.run = 20*time.Millisecond, 100*time.Millisecond
	}
	return row{
		name: name, unit: "rec/s", value: perSecond, limit: 0.85,
		note: fmt.Sprintf("three processes a side, brokers' CPU; each keeps %d x (%d + up to %d) MiB a node", producePartitions, segmentBytes>>20, segmentBytes>>20),
		open: func(ctx context.Context, dir string) (bare, ours side, end func(), err error) {
			loop, err := startLoop(dir)
			if err != nil {
				return nil, nil, loop.stop, err
			}
			s, err := startServers(ctx, e, filepath.Join(dir, "servers"), 3)
			end = func() { loop.stop(); s.stop() }
			bare = func(ctx context.Context, _ string) (sample, error) { return b.against(ctx, loop.addrs, loop.all) }
			ours = func(ctx context.Context, _ string) (sample, error) {
				if e.profile == "" {
					return b.against(ctx, s.addrs, s.all)
				}
				wait := s.profileNodes(ctx, e.profile, fmt.Sprintf("produce-%d", size), b.warm+b.run)
				got, err := b.against(ctx, s.addrs, s.all)
				return got, errors.Join(err, wait())
			}
			if err != nil {
				return bare, ours, end, err
			}
			if err := createTopic(ctx, s.addrs, b.topic, b.partitions, 3, fmt.Sprint(segmentBytes)); err != nil {
				return bare, ours, end, err
			}
			keeps := int64(e.pick(2*producePartitions*segmentBytes, 1))
			return bare, ours, end, errors.Join(b.fill(ctx, loop, keeps), b.fill(ctx, s, keeps))
		},
	}
}

// startLoop starts the three processes of the produce loop. stop it, also after an error.
func startLoop(dir string) (*servers, error) {
	s := &servers{}
	var clients, peers []net.Listener
	var peerAddrs []string
	for range 3 {
		for _, into := range []*[]net.Listener{&clients, &peers} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return s, err
			}
			defer l.Close()
			*into = append(*into, l)
		}
		s.addrs = append(s.addrs, clients[len(clients)-1].Addr().String())
		peerAddrs = append(peerAddrs, peers[len(peers)-1].Addr().String())
	}
	for i := range 3 {
		env := []string{
			childNode + "=" + fmt.Sprint(i), childDir + "=" + dir,
			childPeers + "=" + strings.Join(append(append([]string(nil), s.addrs...), peerAddrs...), ","),
		}
		p, err := startChild(roleLoop, env, clients[i], peers[i])
		if err != nil {
			return s, err
		}
		s.all = append(s.all, p)
	}
	return s, nil
}
