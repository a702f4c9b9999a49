package suite

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"time"

	"gopherlog/bench/fault"
	"gopherlog/bench/hdr"
	"gopherlog/bench/load"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/target"
)

// shortestGap is the shortest span without an acknowledgement that is listed.
const shortestGap = 20 * time.Millisecond

// afterFault is how long after a fault's end a gap is still laid to it.
const afterFault = 10 * time.Second

// outages lays the gaps of each partition to the faults around which they began.
func (t *oneTrial) outages() []result.Outage {
	var out []result.Outage
	for i, e := range t.events {
		if e.Injected.IsZero() {
			continue
		}
		from, to := t.window(e)
		hit := e.Target
		for _, topic := range t.cell.Topics {
			for p := range int32(topic.Partitions) {
				name := t.prefix() + topic.Name
				o := result.Outage{Fault: i, Topic: name, Partition: p, Load: longest(t.outcome.Outages, name, p, from, to), Prober: -1}
				if t.prober != nil && t.isProbed(name, p) {
					o.Prober = longest(t.probed, name, p, from, to)
				}
				o.Affected = hit == "all" || t.hits(i, topic.Name, p)
				out = append(out, o)
			}
		}
	}
	return out
}

// stalls lays the waits of the visible reader to the faults in whose windows they began.
func (t *oneTrial) stalls() (out []result.Stall) {
	for _, s := range t.outcome.Stalls {
		r := result.Stall{Topic: s.Topic, Partition: s.Partition, Start: s.Start.Seconds(), Seconds: (s.End - s.Start).Seconds(), Fault: -1, Open: s.Open}
		for i, e := range t.events {
			if e.Injected.IsZero() {
				continue
			}
			from, to := t.window(e)
			if s.Start < to && s.End > from {
				r.Fault = i
			}
		}
		out = append(out, r)
	}
	return out
}

// window is the time in which a gap is laid to a fault.
func (t *oneTrial) window(e fault.Event) (from, to time.Duration) {
	from = e.Injected.Sub(t.outcome.Zero)
	to = from + afterFault
	if !e.Healed.IsZero() {
		to = e.Healed.Sub(t.outcome.Zero) + afterFault
	}
	return from, min(to, t.nextFault(e.Injected))
}

// nextFault is when the first fault after one begins: a later gap is its doing.
func (t *oneTrial) nextFault(after time.Time) time.Duration {
	next := time.Duration(math.MaxInt64)
	for _, e := range t.events {
		if e.Injected.After(after) {
			next = min(next, e.Injected.Sub(t.outcome.Zero))
		}
	}
	return next
}

func (t *oneTrial) isProbed(topic string, p int32) bool {
	for _, f := range t.cell.Faults {
		if t.prefix()+f.Target.Topic == topic && f.Target.Partition == p {
			return true
		}
	}
	return false
}

// hits says whether the i-th fault names this very partition.
func (t *oneTrial) hits(i int, topic string, p int32) bool {
	f := t.cell.Faults[i].Target
	return f.Topic == topic && f.Partition == p
}

// longest is the longest gap of a partition that overlaps [from, to), in seconds.
func longest(gaps []load.Outage, topic string, p int32, from, to time.Duration) float64 {
	var worst time.Duration
	for _, g := range gaps {
		if g.Topic == topic && g.Partition == p && g.Start < to && g.End > from {
			worst = max(worst, g.End-g.Start)
		}
	}
	return worst.Seconds()
}

// usage is what broker processes and the client consumed in the steady phase.
func (t *oneTrial) usage() result.Usage {
	from, to := t.span(scenario.PhaseSteady)
	u := result.Usage{Seconds: (to - from).Seconds(), CopiesAtAck: t.copies()}
	for _, p := range t.outcome.Phases {
		if p.Phase == scenario.PhaseSteady {
			u.Records = p.Acked
		}
	}
	byNode := map[int][]target.Sample{}
	for _, s := range t.samples {
		u.BrokerRSS = max(u.BrokerRSS, s.Proc.RSS)
		byNode[s.Node] = append(byNode[s.Node], s)
	}
	for _, ss := range byNode {
		cpu, written := between(ss, t.outcome.Zero.Add(from), t.outcome.Zero.Add(to))
		u.BrokerCPU += cpu.Seconds()
		u.WriteBytes += written
	}
	if wall := t.outcome.Client.Wall; wall > 0 {
		u.ClientCPU = t.outcome.Client.CPU.Seconds() * (to - from).Seconds() / wall.Seconds()
	}
	return u
}

// copies is how many copies exist when a record is acknowledged, by the setting
// that the clients used; -1 where it depends on a system that is not ours.
func (t *oneTrial) copies() int {
	for _, x := range t.outcome.Settings {
		if x.Key != "acks" {
			continue
		}
		switch {
		case x.Value == "0":
			return 0
		case x.Value == "1":
			return 1
		case t.cell.Target.System == "gopherlog":
			return max(t.cell.Target.ReplicationFactor/2+1, t.cell.Target.MinInsyncReplicas)
		case t.cell.Target.System == "kafka": // the leader waits for every replica that is in sync
			if t.insync > 0 {
				return t.insync
			}
			return t.cell.Target.ReplicationFactor
		}
	}
	return -1
}

// fewestInSync asks Kafka how many replicas each partition's leader waited for, at
// the end of the load: one that fell behind leaves the set after half a minute.
func (t *oneTrial) fewestInSync(ctx context.Context, plan load.Plan) int {
	d, ok := t.driver.(interface {
		InSync(ctx context.Context, topic string) (map[int32][]int32, error)
	})
	if !ok || t.cell.Target.System != "kafka" {
		return 0
	}
	fewest := 0
	for _, topic := range plan.Topics {
		parts, err := d.InSync(ctx, topic.Name)
		if err != nil {
			t.Progress.Note("the replicas in sync could not be read: " + err.Error())
			return 0
		}
		for _, nodes := range parts {
			if n := len(nodes); fewest == 0 || n < fewest {
				fewest = n
			}
		}
	}
	return fewest
}

// between interpolates a node's counters to a span.
func between(ss []target.Sample, from, to time.Time) (cpu time.Duration, written int64) {
	at := func(when time.Time) (float64, float64) {
		i := sort.Search(len(ss), func(i int) bool { return ss[i].At.After(when) })
		switch {
		case len(ss) == 0:
			return 0, 0
		case i == 0:
			return float64(ss[0].Proc.CPU), float64(ss[0].Proc.WriteBytes)
		case i == len(ss):
			return float64(ss[i-1].Proc.CPU), float64(ss[i-1].Proc.WriteBytes)
		}
		a, b := ss[i-1], ss[i]
		share := float64(when.Sub(a.At)) / float64(b.At.Sub(a.At))
		mix := func(x, y float64) float64 { return x + (y-x)*share }
		return mix(float64(a.Proc.CPU), float64(b.Proc.CPU)), mix(float64(a.Proc.WriteBytes), float64(b.Proc.WriteBytes))
	}
	c0, w0 := at(from)
	c1, w1 := at(to)
	return time.Duration(c1 - c0), int64(w1 - w0)
}

// files writes the trial's series: seconds, histograms.
func (t *oneTrial) files() error {
	if err := t.dir.WriteSeconds(t.out.ID, t.seconds()); err != nil {
		return err
	}
	if err := t.dir.WriteNodes(t.out.ID, t.nodeSamples()); err != nil {
		return err
	}
	f, err := os.Create(t.dir.Latency(t.out.ID + ".hlog"))
	if err != nil {
		return err
	}
	if err := writeSeries(f, t.outcome); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return t.percentileFiles()
}

func (t *oneTrial) nodeSamples() []result.NodeSample {
	var out []result.NodeSample
	for _, s := range t.samples {
		out = append(out, result.NodeSample{At: s.At.Sub(t.outcome.Zero).Seconds(), Node: s.Node, CPU: s.Proc.CPU.Seconds(),
			RSS: s.Proc.RSS, WriteBytes: s.Proc.WriteBytes, Threads: s.Proc.Threads, Metrics: s.Metrics})
	}
	return out
}

// series are the histograms of an outcome by the name of what they measure.
func series(o *load.Outcome) map[string]*hdr.Series {
	out := latencies(o)
	out["lateness"], out["failures"] = o.Late, o.Failures
	return out
}

// latencies are those that the outcome has.
func latencies(o *load.Outcome) map[string]*hdr.Series {
	out := map[string]*hdr.Series{"ack": o.Ack, "visible": o.Visible}
	if o.Commit != nil {
		out["commit"], out["end_txn"] = o.Commit, o.EndTxn
	}
	if o.EndToEnd.All().Count() > 0 {
		out["end_to_end"] = o.EndToEnd
	}
	return out
}

func writeSeries(w io.Writer, o *load.Outcome) error {
	for name, s := range series(o) {
		if err := s.WriteLog(w, name, o.Zero); err != nil {
			return fmt.Errorf("write the %s histograms: %w", name, err)
		}
	}
	return nil
}

func (t *oneTrial) percentileFiles() error {
	from, to := t.span(scenario.PhaseSteady)
	for name, s := range series(t.outcome) {
		f, err := os.Create(t.dir.Latency(t.out.ID + "-" + name + ".hgrm"))
		if err != nil {
			return err
		}
		if err := s.Range(from, to).WritePercentiles(f); err != nil {
			f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// seconds joins counters and histograms of each second.
func (t *oneTrial) seconds() []result.Second {
	o := t.outcome
	var out []result.Second
	var due, read int64 // what readers of the guarantee's isolation are to see, and saw
	step := o.Ack.Interval()
	for _, k := range o.Seconds {
		due += k.Acked - k.Aborted
		read += k.Read
		s := result.Second{At: k.At.Seconds(), Sent: k.Sent, Acked: k.Acked, Failed: k.Failed + k.Unknown}
		if t.cell.Load.ReadAlong {
			s.Lag = max(0, due-read)
		}
		a, v := latencyOf(o.Ack.Range(k.At, k.At+step)), latencyOf(o.Visible.Range(k.At, k.At+step))
		s.AckP50, s.AckP99, s.AckMax = a.P50, a.P99, a.Max
		s.VisibleP50, s.VisibleP99, s.VisibleMax = v.P50, v.P99, v.Max
		out = append(out, s)
	}
	return out
}

// noteSettings writes the client's and the topics' settings into the manifest,
// once per cell.
func (t *oneTrial) noteSettings(settings []load.Setting, plan load.Plan) {
	for i := range t.manifest.Cells {
		c := &t.run.manifest.Cells[i]
		if c.ID != t.out.Cell {
			continue
		}
		for _, x := range settings {
			c.Client[x.Key] = x.Value
			if x.Deviates {
				c.Deviates[x.Key] = x.Value
			}
		}
	}
	sys := t.run.system(t.cell.Target.System)
	if sys.Effective != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	sys.Version = t.target.Version()
	if m, ok := t.target.(interface{ Launched() map[string]string }); ok {
		sys.Launched = m.Launched()
	}
	if m, err := t.driver.TopicConfig(ctx, plan.Topics[0].Name); err == nil {
		sys.Effective = m
	} else {
		t.Progress.Note("the topic's effective settings could not be read back: " + err.Error())
	}
	if sys.ReplicationFactor == 0 { // the cluster chose
		sys.ReplicationFactor = fewestCopies(ctx, t.driver, plan.Topics[0].Name)
	}
}

// fewestCopies is how many replicas the worst partition of a topic has; 0 where no broker tells.
func fewestCopies(ctx context.Context, d load.Driver, topic string) (fewest int) {
	parts, err := d.Replicas(ctx, topic)
	if err != nil {
		return 0
	}
	for _, nodes := range parts {
		if fewest == 0 || len(nodes) < fewest {
			fewest = len(nodes)
		}
	}
	return fewest
}
