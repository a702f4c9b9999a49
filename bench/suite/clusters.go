package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/target"
)

// Clusters are the systems that run through many trials, and through many runs
// of one call: each is launched when it is first needed and warmed once. One
// goroutine uses them, that of Run. Close ends them all.
type Clusters struct {
	dir  string
	kept map[string]*kept // by scenario.Target.ClusterKey
	made int
}

// kept is a cluster that runs between trials.
type kept struct {
	target target.Target
	system string
	data   string      // its last element names this launch
	up     bool        // it was started without an error
	warm   result.Warm // the load that it has had
}

// NewClusters keeps data and logs below dir, which Close removes.
func NewClusters(dir string) *Clusters { return &Clusters{dir: dir, kept: map[string]*kept{}} }

// Close stops every cluster and removes what it left.
func (c *Clusters) Close() {
	for key, k := range c.kept {
		k.stop()
		delete(c.kept, key)
	}
	_ = os.RemoveAll(c.dir)
}

func (k *kept) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	_ = k.target.Stop(ctx) // what does not end is forced, and the kernel ends what is left when this process ends
}

// busy is the processor time that all clusters but one have used so far.
func (c *Clusters) busy(but target.Target) (sum time.Duration) {
	for _, k := range c.kept {
		if k.target == but {
			continue
		}
		for _, n := range k.target.Nodes() {
			if s, err := target.ReadProc(n.PID); err == nil {
				sum += s.CPU
			}
		}
	}
	return sum
}

// get returns a running cluster; launch makes one where there is none that is whole. One that could not be started
// stays until the next get or Close, so that its logs can be read.
func (c *Clusters) get(ctx context.Context, key, system string, launch func(dir string) (target.Target, error)) (*kept, error) {
	if k := c.kept[key]; k.whole() {
		return k, nil
	}
	c.drop(key)
	c.made++
	dir := filepath.Join(c.dir, fmt.Sprintf("%d-%s", c.made, system))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil { // an earlier call that was killed may have left data
		return nil, err
	}
	t, err := launch(dir)
	if err != nil {
		return nil, err
	}
	k := &kept{target: t, system: system, data: dir}
	c.kept[key] = k
	if err := t.Start(ctx); err != nil {
		k.stop()
		return nil, fmt.Errorf("start the target: %w", err)
	}
	k.up = true
	return k, nil
}

// whole says whether the cluster can be used; it may be nil.
func (k *kept) whole() bool { return k != nil && k.up && len(k.target.Deaths()) == 0 }

// drop ends a cluster that is not whole any more: the next trial gets another.
func (c *Clusters) drop(key string) {
	if k := c.kept[key]; k != nil {
		k.stop()
		delete(c.kept, key)
	}
}

// acquire returns the trial's target, running and warm, and what gives it back.
func (s *run) acquire(ctx context.Context, c scenario.Cell, id string) (target.Target, func(), error) {
	if c.Runs.FreshCluster || c.Target.System == "external" {
		return s.fresh(ctx, c, id)
	}
	k, err := s.keep(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	return k.target, func() {
		if !k.whole() { // the next trial gets another
			s.giveUp(k, c)
		}
	}, nil
}

// giveUp keeps the logs of a cluster that is not whole and drops it.
func (s *run) giveUp(k *kept, c scenario.Cell) {
	why := "it could not be started"
	if d := k.target.Deaths(); len(d) > 0 {
		why = d[0]
	}
	s.Progress.Note(fmt.Sprintf("the cluster of %s is not used again: %s", c.Target.System, why))
	s.keepLogs()
	s.Clusters.drop(c.Target.ClusterKey())
}

// fresh launches a cluster for one trial.
func (s *run) fresh(ctx context.Context, c scenario.Cell, id string) (target.Target, func(), error) {
	data := filepath.Join(s.dir.Path, "data", id)
	tgt, err := s.newTarget(c, data, s.dir.Logs(id+"-"))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	release := func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := tgt.Stop(stop); err != nil {
			s.Progress.Note(fmt.Sprintf("trial %s: stop the target: %v", id, err))
		}
		_ = os.RemoveAll(data)
	}
	err = tgt.Start(ctx)
	if err == nil {
		err = s.warm(ctx, &kept{target: tgt, system: c.Target.System}, c)
	}
	if err != nil {
		release()
		return nil, nil, fmt.Errorf("%w: start the target: %w", ErrEnvironment, err)
	}
	return tgt, release, nil
}

// keep returns the cell's kept cluster, running and warm.
func (s *run) keep(ctx context.Context, c scenario.Cell) (*kept, error) {
	if k := s.Clusters.kept[c.Target.ClusterKey()]; k != nil && !k.whole() {
		s.giveUp(k, c) // it ended between two trials
	}
	k, err := s.Clusters.get(ctx, c.Target.ClusterKey(), c.Target.System, func(dir string) (target.Target, error) {
		s.Progress.Note(fmt.Sprintf("starting %s: %d nodes", c.Target.System, c.Target.Nodes))
		return s.newTarget(c, dir, dir+string(filepath.Separator))
	})
	if err == nil {
		err = s.warm(ctx, k, c)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	return k, nil
}

// warmAll launches and warms every kept cluster before the first trial, so that
// no trial of one system runs while another has not even started.
func (s *run) warmAll(ctx context.Context) error {
	for _, c := range s.cells {
		if c.Runs.FreshCluster || c.Target.System == "external" {
			continue
		}
		if s.controlled() {
			s.stop("planted faults would follow a cluster from trial to trial")
			return fmt.Errorf("%w: planted faults need runs.fresh_cluster: true", ErrEnvironment)
		}
		if _, err := s.keep(ctx, c); err != nil {
			s.stop(fmt.Sprintf("the cluster of %s could not be made ready: %v", c.Target.System, err))
			return err
		}
	}
	return nil
}

// renew gives the next block clusters of its own, started and warm, where they are asked for.
func (s *run) renew(ctx context.Context) error {
	own := slices.DeleteFunc(slices.Clone(s.cells), func(c scenario.Cell) bool { return !c.Runs.BlockCluster })
	if len(own) == 0 {
		return nil
	}
	s.keepLogs()
	for _, c := range own {
		s.Clusters.drop(c.Target.ClusterKey())
	}
	return s.warmAll(ctx)
}

// keepLogs copies what the kept clusters of this run printed into its directory, named after their launch.
func (s *run) keepLogs() {
	seen := map[string]bool{}
	for _, c := range s.cells {
		key := c.Target.ClusterKey()
		if c.Runs.FreshCluster || seen[key] {
			continue
		}
		seen[key] = true
		k := s.Clusters.kept[key]
		if k == nil {
			continue
		}
		for _, n := range k.target.Nodes() {
			if err := copyFile(s.dir.Logs(fmt.Sprintf("kept-%s-node%d.log", filepath.Base(k.data), n.ID)), n.Log); err != nil {
				s.Progress.Note(fmt.Sprintf("the log of node %d of %s could not be kept: %v", n.ID, c.Target.System, err))
			}
		}
	}
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}

// newTarget makes a target; nothing runs yet. What its nodes print is kept from
// the first line on.
func (s *run) newTarget(c scenario.Cell, dataDir, logs string) (target.Target, error) {
	switch c.Target.System {
	case "external":
		return target.NewExternal(c.Target.External.Bootstrap), nil
	case "kafka":
		settings, err := plainOf("target.kafka.settings", c.Target.Kafka.Settings)
		if err != nil {
			return nil, err
		}
		return target.NewKafka(target.KafkaConfig{Heap: int64(c.Target.Kafka.Heap), Nodes: c.Target.Nodes, Nice: c.Target.Nice, Dir: dataDir, Logs: logs, Settings: settings})
	}
	settings, err := plainOf("target.settings", c.Target.Settings)
	if err != nil {
		return nil, err
	}
	return target.NewGopherlog(target.GopherlogConfig{Server: s.Server, Nodes: c.Target.Nodes, Nice: c.Target.Nice, Dir: dataDir, Logs: logs,
		Settings: settings, Control: s.opensControl(c)})
}

// opensControl says whether a cell's brokers open their control port. Those that are kept do: a scenario that comes later may read there
// what they wrote down of votes.
func (s *run) opensControl(c scenario.Cell) bool {
	return s.controlled() || s.voting() || !c.Runs.FreshCluster
}

// plainOf turns values with units into the numbers that a system reads.
func plainOf(path string, settings map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for k, v := range settings {
		plain, err := scenario.Plain(k, v)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", path, k, err)
		}
		out[k] = plain
	}
	return out, nil
}
