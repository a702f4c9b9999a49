package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gopherlog/scripts/internal/child"
)

// starting bounds the wait for processes, topics and leaders.
const starting = 30 * time.Second

// spent is the processor time of processes so far.
func spent(all []*child.Process) (sum time.Duration, err error) {
	for _, p := range all {
		d, err := p.Spent()
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// servers is a running cluster of the server command.
type servers struct {
	all    []*child.Process
	addrs  []string // where clients connect
	admins []string
	dirs   []string
}

// startServers starts n nodes and waits until all are ready. stop it, also after an error.
func startServers(ctx context.Context, e *env, dir string, n int) (*servers, error) {
	s := &servers{}
	if e.server == "" {
		return s, errors.New("needs the server command: -server PATH")
	}
	free, err := child.Addrs(3 * n)
	if err != nil {
		return s, err
	}
	s.addrs, s.admins = free[:n], free[n:2*n]
	rpcs := free[2*n:]
	var peers []string
	for i := range n {
		peers = append(peers, fmt.Sprintf("%d@%s", i+1, rpcs[i]))
		s.dirs = append(s.dirs, fmt.Sprintf("%s/%d", dir, i+1))
	}
	for i := range n {
		args := []string{"-id", fmt.Sprint(i + 1), "-addr", s.addrs[i], "-admin", s.admins[i], "-data", s.dirs[i], "-log-level", "warn"}
		if n > 1 {
			args = append(args, "-rpc", rpcs[i], "-peers", strings.Join(peers, ","))
		}
		if e.profile != "" {
			args = append(args, "-pprof")
		}
		p, err := child.Start(e.server, nil, nil, args...)
		if err != nil {
			return s, err
		}
		s.all = append(s.all, p)
	}
	ctx, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	for i, a := range s.admins {
		if err := s.all[i].Ready(ctx, a); err != nil {
			return s, fmt.Errorf("node %d: %w", i+1, err)
		}
	}
	return s, nil
}

func (s *servers) stop() {
	for _, p := range s.all {
		p.Stop()
	}
}

// heapOf is what a node has allocated so far.
func (s *servers) heapOf(ctx context.Context, node int) (h heap, err error) {
	text, err := child.Get(ctx, "http://"+s.admins[node]+"/metrics")
	if err != nil {
		return h, err
	}
	for name, into := range map[string]*float64{"go_memstats_mallocs_total ": &h.objects, "go_memstats_alloc_bytes_total ": &h.bytes} {
		_, rest, ok := strings.Cut(string(text), "\n"+name)
		if !ok {
			return h, fmt.Errorf("no %samong the metrics", name)
		}
		value, _, _ := strings.Cut(rest, "\n")
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return h, err
		}
	}
	return h, nil
}
