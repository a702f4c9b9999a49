package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gopherlog/scripts/internal/child"
)

// rig runs the steps on one cluster, in their order.
type rig struct {
	options
	cluster    *cluster
	out        io.Writer
	partitions []partition
}

type step struct {
	name   string
	always bool // the others need it
	run    func(ctx context.Context) error
}

// restartOfAll ends every process, and with it a profile of one.
const restartOfAll = "restart of all"

// victim is the node that is killed; its number.
const victim = 1

func (r *rig) steps() []step {
	all := []step{
		{"start", true, r.start},
		{"create", true, r.create},
		{"idle", false, r.idling},
		{"failover and restart of one", false, r.failover},
	}
	if r.fill > 0 {
		all = append(all, step{"fill and restart of one", false, r.filled})
	}
	return append(all, step{restartOfAll, false, r.restartAll})
}

// profiled runs a step, beside a processor profile of node 1 if one was asked for.
func (r *rig) profiled(ctx context.Context, s step) error {
	if r.profile == "" || s.name == "start" || s.name == restartOfAll {
		return s.run(ctx)
	}
	if err := os.MkdirAll(r.profile, 0o755); err != nil {
		return err
	}
	seconds := 10
	if s.name == "idle" {
		if err := pause(ctx, r.settle); err != nil {
			return err
		}
		r.settle = 0
		seconds = int(r.idle.Seconds())
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		b, err := child.Get(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", r.cluster.admins[0], seconds))
		if err == nil {
			err = os.WriteFile(filepath.Join(r.profile, strings.ReplaceAll(s.name, " ", "-")+".pprof"), b, 0o644)
		}
		if err != nil {
			fmt.Fprintln(r.out, "profile:", err)
		}
	})
	return s.run(ctx)
}

// row prints one figure. A budget of 0 is none: the figure explains others.
func (r *rig) row(name string, figure, budget float64, unit, note string) {
	limit, verdict := "-", ""
	if budget > 0 {
		limit, verdict = fmt.Sprintf("<= %.4g %s", budget, unit), "ok"
		if figure > budget {
			verdict = "MISS"
		}
	}
	fmt.Fprintf(r.out, "%-44s %12s %12s %-5s %s\n", name, fmt.Sprintf("%.3g %s", figure, unit), limit, verdict, note)
}

func (r *rig) start(ctx context.Context) error {
	for i := range r.cluster.nodes {
		if err := r.cluster.start(i); err != nil {
			return err
		}
	}
	for i := range r.cluster.nodes {
		if err := r.cluster.ready(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) create(ctx context.Context) error {
	before := r.spent()
	p := &probe{addrs: r.cluster.addrs, pause: 50 * time.Millisecond, began: time.Now()}
	if err := create(ctx, r.cluster.addrs[0], r.partitions); err != nil {
		return err
	}
	answered := time.Since(p.began)
	acked, err := p.run(ctx, r.partitions)
	if err != nil {
		return err
	}
	half, all := halfAndAll(acked)
	r.row("creation, until each partition took a record", all.Seconds(), 15, "s", fmt.Sprintf("answered after %.2f s, half after %.2f s, %.1f s of processor time in all",
		answered.Seconds(), half.Seconds(), (r.spent()-before).Seconds()))
	return r.settled(ctx)
}

// spent is the processor time of all nodes.
func (r *rig) spent() (sum time.Duration) {
	for _, p := range r.cluster.nodes {
		d, _ := p.Spent() // one that ended is noticed elsewhere
		sum += d
	}
	return sum
}

// settled waits until leaderships are spread evenly and every replica is in sync, as node 1 tells.
func (r *rig) settled(ctx context.Context) error {
	return r.eventually(ctx, func(at map[partition]place) error {
		led := make([]int, len(r.cluster.nodes))
		for p, x := range at {
			if x.leader < 0 || len(x.inSync) < len(led) {
				return fmt.Errorf("%v has leader %d, in sync %v", p, x.leader+1, x.inSync)
			}
			led[x.leader]++
		}
		if slices.Max(led)-slices.Min(led) > 1 {
			return fmt.Errorf("leaderships by node: %v", led)
		}
		return nil
	})
}

// eventually waits until what node 1 says about the partitions is as it should be.
func (r *rig) eventually(ctx context.Context, check func(map[partition]place) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		at, err := places(ctx, r.cluster.addrs[0], r.partitions)
		if err == nil && len(at) != len(r.partitions) {
			err = fmt.Errorf("%d partitions are known", len(at))
		}
		if err == nil {
			err = check(at)
		}
		if err == nil {
			return nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rig) idling(ctx context.Context) error {
	if err := pause(ctx, r.settle); err != nil {
		return err
	}
	nodes := r.cluster.nodes
	cores, memory, files := make([]float64, len(nodes)), make([]float64, len(nodes)), make([]float64, len(nodes))
	before := make([]time.Duration, len(nodes))
	began := time.Now()
	for i, p := range nodes {
		var err error
		if before[i], err = p.Spent(); err != nil {
			return err
		}
	}
	if err := pause(ctx, r.idle); err != nil {
		return err
	}
	for i, p := range nodes {
		after, err := p.Spent()
		if err != nil {
			return err
		}
		cores[i] = (after - before[i]).Seconds() / time.Since(began).Seconds()
		rss, err := p.Resident()
		if err != nil {
			return err
		}
		n, err := p.Descriptors()
		if err != nil {
			return err
		}
		memory[i], files[i] = float64(rss)/(1<<20), float64(n)
	}
	r.row("idle, a broker", slices.Max(cores), 0.08, "core", fmt.Sprintf("%.3f over %v", cores, r.idle))
	r.row("resident memory, a broker", slices.Max(memory), 200, "MiB", fmt.Sprintf("%.0f", memory))
	r.row("open files and sockets, a broker", slices.Max(files), 0, "", "")
	return r.scrape(ctx)
}

// scrape measures what one look at the metrics costs a node.
func (r *rig) scrape(ctx context.Context) error {
	const times = 5
	p := r.cluster.nodes[0]
	before, err := p.Spent()
	if err != nil {
		return err
	}
	var text []byte
	for range times {
		if text, err = child.Get(ctx, "http://"+r.cluster.admins[0]+"/metrics"); err != nil {
			return err
		}
	}
	after, err := p.Spent()
	if err != nil {
		return err
	}
	r.row("processor time of one /metrics", (after-before).Seconds()*1000/times, 0, "ms", fmt.Sprintf("%d KiB", len(text)>>10))
	return nil
}

// led returns the partitions that a node leads.
func (r *rig) led(ctx context.Context, node int) (out []partition, err error) {
	at, err := places(ctx, r.cluster.addrs[0], r.partitions)
	if err != nil {
		return nil, err
	}
	for _, p := range r.partitions {
		if at[p].leader == node {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("node %d leads nothing", node+1)
	}
	return out, nil
}

func (r *rig) failover(ctx context.Context) error {
	if err := r.settled(ctx); err != nil { // on a busy machine leaderships wander
		return err
	}
	led, err := r.led(ctx, victim)
	if err != nil {
		return err
	}
	p := &probe{addrs: []string{r.cluster.addrs[0], r.cluster.addrs[2]}, pause: 5 * time.Millisecond, began: time.Now()}
	if err := r.cluster.kill(victim); err != nil {
		return err
	}
	acked, err := p.run(ctx, led)
	if err != nil {
		return err
	}
	half, all := halfAndAll(acked)
	r.row(fmt.Sprintf("SIGKILL of a node that led %d partitions", len(led)), all.Seconds(), 0.5, "s", fmt.Sprintf("until each took a record; half after %.3f s", half.Seconds()))
	r.cluster.gone(victim)
	return r.restart(ctx, "restart of it")
}

// restart starts the victim and measures until it is ready, and until it is in sync everywhere.
func (r *rig) restart(ctx context.Context, name string) error {
	began := time.Now()
	if err := r.cluster.start(victim); err != nil {
		return err
	}
	if err := r.cluster.ready(ctx, victim); err != nil {
		return err
	}
	ready := time.Since(began)
	cpu, err := r.cluster.nodes[victim].Spent()
	if err != nil {
		return err
	}
	r.row(name+", until /readyz", ready.Seconds(), 5, "s", fmt.Sprintf("%.2f s of its processor time", cpu.Seconds()))
	err = r.eventually(ctx, func(at map[partition]place) error {
		for p, x := range at {
			if !slices.Contains(x.inSync, victim) {
				return fmt.Errorf("node %d is not in sync in %v", victim+1, p)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.row(name+", until in sync everywhere", time.Since(began).Seconds(), 0, "s", "")
	return nil
}

func (r *rig) restartAll(ctx context.Context) error {
	for i := range r.cluster.nodes {
		if err := r.cluster.kill(i); err != nil {
			return err
		}
	}
	for i := range r.cluster.nodes {
		r.cluster.gone(i)
	}
	p := &probe{addrs: r.cluster.addrs, pause: 50 * time.Millisecond, began: time.Now()}
	for i := range r.cluster.nodes {
		if err := r.cluster.start(i); err != nil {
			return err
		}
	}
	for i := range r.cluster.nodes {
		if err := r.cluster.ready(ctx, i); err != nil {
			return err
		}
	}
	r.row("SIGKILL and restart of all, until /readyz", time.Since(p.began).Seconds(), 0, "s", "three nodes at once on these cores")
	acked, err := p.run(ctx, r.partitions)
	if err != nil {
		return err
	}
	half, all := halfAndAll(acked)
	r.row("the same, until each partition took a record", all.Seconds(), 0, "s", fmt.Sprintf("half after %.2f s", half.Seconds()))
	return nil
}
