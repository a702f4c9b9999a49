package scenario

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HeaderBytes is what the harness needs of each value for its own header.
const HeaderBytes = 48

// OriginBytes is what it needs beyond that of a value that was made from another one.
const OriginBytes = 16

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)
	topicPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
)

// RuleIDs are the rules that a history is judged by.
func RuleIDs() []string {
	return []string{"A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A10", "A11", "A12",
		"B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "B10", "B11", "B12",
		"C1", "C2", "C3", "C5", "C7", "C8", "C9", "C10", "C11", "C12",
		"D1", "D2", "D3", "D4", "D5", "D6"}
}

// validate finds combinations that cannot be run, each at the value that one would change. What would look at a value that could not be
// read, and has its default instead, is left out: it would only add noise.
func (d *decoder) validate(s *Scenario) {
	for _, c := range []struct {
		reads string // keys of the first level
		check func(*Scenario)
	}{
		{"name", d.name},
		{"target faults guarantee", d.target},
		{"topics", d.topics},
		{"producers guarantee", d.producers},
		{"producers guarantee topics consumers", d.transaction},
		{"consumers guarantee topics load", d.consumers},
		{"load producers", d.load},
		{"phases", d.phases},
		{"runs faults target", d.runs},
		{"faults target phases guarantee consumers topics", d.faults},
		{"checks", d.checks},
		{"expect " + strings.Join(sections, " "), d.expectations}, // values of any sweep
	} {
		if !d.broken[""] && !slices.ContainsFunc(strings.Fields(c.reads), func(key string) bool { return d.broken[key] }) {
			c.check(s)
		}
	}
}

func (d *decoder) name(s *Scenario) {
	if !namePattern.MatchString(s.Name) {
		d.bad("name", "%q is not made of letters, digits, dots and dashes", s.Name)
	}
}

// bad reports a combination at path, or at the nearest place above it that the file names.
func (d *decoder) bad(path, format string, args ...any) {
	at := path
	for !d.given[at] && at != "" {
		at = at[:max(0, strings.LastIndex(at, "."))]
	}
	where, ok := d.places[at]
	if !ok {
		where = d.places["name"]
	}
	d.problems.add(where, path, fmt.Sprintf(format, args...), "")
}

func (d *decoder) target(s *Scenario) {
	t := s.Target
	d.plain("target.settings", t.Settings)
	d.plain("target.kafka.settings", t.Kafka.Settings)
	d.kafka(s)
	if slices.ContainsFunc(d.sweeps, func(w *sweep) bool { return w.path == "target.durability" && w.at == 1 }) { // told once, at the second
		d.bad("target.durability", "a run has one tier, and figures of two are never put side by side: write a scenario for each, the second with extends")
	}
	if t.System == "external" {
		if len(t.External.Bootstrap) == 0 {
			d.bad("target.external.bootstrap", "is missing: system external needs the address of at least one broker")
		}
		for i, b := range t.External.Bootstrap {
			if _, port, ok := strings.Cut(b, ":"); !ok || port == "" {
				d.bad(fmt.Sprintf("target.external.bootstrap.%d", i), "%q is not host:port", b)
			}
		}
		if len(t.Settings) > 0 {
			d.bad("target.settings", "the harness does not start an external system, so it cannot set its keys")
		}
		return
	}
	if d.given["target.external"] && !d.sweepHas("target.system", "external") {
		d.bad("target.external", "belongs to system: external, and the system is %s", t.System)
	}
	if most := 9; t.Nodes > most {
		d.bad("target.nodes", "%d brokers are more than the %d that the harness launches", t.Nodes, most)
	}
	if t.ReplicationFactor > t.Nodes {
		d.bad("target.replication_factor", "%d copies cannot live on %d nodes", t.ReplicationFactor, t.Nodes)
	}
	if t.MinInsyncReplicas > t.ReplicationFactor {
		d.bad("target.min_insync_replicas", "%d copies are required of %d", t.MinInsyncReplicas, t.ReplicationFactor)
	}
}

// kafka refuses what only another system understands, and what nobody has built for Kafka.
func (d *decoder) kafka(s *Scenario) {
	if s.Target.System != "kafka" {
		if d.given["target.kafka"] && !d.sweepHas("target.system", "kafka") {
			d.bad("target.kafka", "belongs to system: kafka, and the system is %s", s.Target.System)
		}
		return
	}
	if why := (Cell{Scenario: *s}).Absent(); why != "" && !d.sweepsOver("target.system") && !d.sweepsOver("guarantee") {
		d.bad("guarantee", "nothing would run: %s", why)
	}
	if len(s.Target.Settings) > 0 && !d.sweepHas("target.system", "gopherlog") {
		d.bad("target.settings", "broker properties of Kafka belong under target.kafka.settings")
	}
	if heap := s.Target.Kafka.Heap; heap < 256<<20 {
		d.bad("target.kafka.heap", "%v is less than the 256MiB that a Kafka node needs to start", heap)
	}
	for i, f := range s.Faults {
		if f.Kind == "partition" {
			d.bad(fmt.Sprintf("faults.%d.kind", i), "a network partition of kafka: %v", errLater)
		}
	}
}

// sweepHas says whether a key is swept and has the value somewhere in its list.
func (d *decoder) sweepHas(key, value string) bool {
	for _, w := range d.sweeps {
		if w.path == key && contains(w.written(), value) {
			return true
		}
	}
	return false
}

func (d *decoder) topics(s *Scenario) {
	seen := map[string]bool{}
	for i, t := range s.Topics {
		path := fmt.Sprintf("topics.%d.name", i)
		if !topicPattern.MatchString(t.Name) || t.Name == "." || t.Name == ".." {
			d.bad(path, "%q is not a topic name", t.Name)
		}
		if seen[t.Name] {
			d.bad(path, "topic %q is listed twice", t.Name)
		}
		seen[t.Name] = true
		d.plain(fmt.Sprintf("topics.%d.config", i), t.Config)
	}
}

func (d *decoder) producers(s *Scenario) {
	p := s.Producers
	for key, value := range p.Overrides {
		path := "producers.overrides." + key
		var err error
		switch key {
		case "acks":
			if value != "0" && value != "1" && value != "all" {
				err = fmt.Errorf("%q is not 0, 1 or all", value)
			}
		case "retries", "max_in_flight":
			_, err = strconv.ParseUint(value, 10, 31)
		case "delivery_timeout", "request_timeout":
			_, err = parseDuration(value)
		default:
			err = fmt.Errorf("is not a client setting that can be overridden%s", oneOf(key, OverrideKeys()))
		}
		if err != nil {
			d.bad(path, "%v", err)
		}
	}
	if s.Guarantee == Idempotent || s.Guarantee.Transacts() {
		if acks, ok := p.Overrides["acks"]; ok && acks != "all" {
			d.bad("producers.overrides.acks", "an idempotent producer needs acks: all")
		}
		if n, ok := p.Overrides["max_in_flight"]; ok && n != "5" {
			d.bad("producers.overrides.max_in_flight", "the client fixes five requests in flight for an idempotent producer")
		}
	}
	if p.BatchBytes < 1<<10 || p.BatchBytes > 64<<20 {
		d.bad("producers.batch_bytes", "%v is not between 1KiB and 64MiB", p.BatchBytes)
	}
}

func (d *decoder) load(s *Scenario) {
	l := s.Load
	if l.Model == "closed" {
		for _, key := range []string{"rate", "arrival"} {
			if d.given["load."+key] {
				d.bad("load."+key, "a closed loop sends when it gets answers: it has no %s", key)
			}
		}
	}
	if l.Keys.Dist == "none" && (l.Partitioner == "fnv1a" || l.Partitioner == "murmur2") {
		d.bad("load.partitioner", "%s needs keys, and load.keys.dist is none", l.Partitioner)
	}
	if l.Keys.Space < 1 {
		d.bad("load.keys.space", "must hold at least one key")
	}
	switch size := l.Value.Size; {
	case size.Fixed == 0 && size.Median < HeaderBytes, size.Fixed > 0 && size.Fixed < HeaderBytes, size.Fixed == 0 && size.Median == 0:
		d.bad("load.value.size", "%v is less than the %d bytes of the message header", size, HeaderBytes)
	case size.Fixed > s.Producers.BatchBytes-1024, size.P99 > s.Producers.BatchBytes-1024:
		d.bad("load.value.size", "%v does not fit a batch of %v", size, s.Producers.BatchBytes)
	}
	if float64(l.Rate) > 10e6 {
		d.bad("load.rate", "%v is more than this harness can offer", l.Rate)
	}
}

func (d *decoder) phases(s *Scenario) {
	if s.Phases.Steady <= 0 {
		d.bad("phases.steady", "there is nothing to measure without a steady phase")
	}
	if s.Phases.Drain < time.Second {
		d.bad("phases.drain", "the last outcomes and the final read need at least 1s")
	}
}

func (d *decoder) runs(s *Scenario) {
	if !s.Runs.FreshCluster && len(s.Faults) > 0 {
		d.bad("runs.fresh_cluster", "false: a fault would follow the cluster into the next trial")
	}
	if s.Runs.BlockCluster && s.Runs.FreshCluster {
		d.bad("runs.block_cluster", "every trial has a cluster of its own already: set runs.fresh_cluster: false as well")
	}
	if s.Runs.BlockCluster && s.Target.System == "external" {
		d.bad("runs.block_cluster", "the harness did not start this system, so it cannot start another")
	}
	if s.Runs.WarmCluster > 0 && s.Target.System == "external" {
		d.bad("runs.warm_cluster", "a system that the harness did not start is as warm as its owner keeps it")
	}
}

func (d *decoder) faults(s *Scenario) {
	for i, f := range s.Faults {
		at := fmt.Sprintf("faults.%d", i)
		if s.Target.System == "external" {
			d.bad(at, "the harness did not start this system, so it cannot break it")
			continue
		}
		if f.Kind == "partition" && f.Shape == "" {
			d.bad(at+".shape", "is missing: a network partition needs one: isolate")
		}
		if f.Kind != "partition" && f.Shape != "" {
			d.bad(at+".shape", "belongs to kind: partition, and the kind is %s", f.Kind)
		}
		d.moment(s, f, at)
		d.strikes(s, f, at)
	}
}

func (d *decoder) moment(s *Scenario, f Fault, at string) {
	begin, end := s.Phases.Moment(f.At)+time.Duration(f.Times-1)*f.Every, s.Phases.Sending()
	switch {
	case f.Times > 1 && f.Every <= f.For:
		d.bad(at+".every", "the fault would come again after %v, while it lasts %v", f.Every, f.For)
		return
	case f.Times == 1 && f.Every > 0:
		d.bad(at+".every", "needs times: how often the fault comes")
		return
	case f.At.Failpoint != "" && (f.Kind != "kill" || f.Times > 1):
		d.bad(at+".at", "at a failpoint a process can be killed, once")
		return
	case f.At.Failpoint != "" && s.Target.System != "gopherlog" && !d.sweepHas("target.system", "gopherlog"):
		d.bad(at+".at", "failpoints are in gopherlog's brokers, and the system is %s", s.Target.System)
		return
	}
	switch {
	case s.Phases.length(f.At.Phase) == 0:
		d.bad(at+".at", "the phase %s has no length", f.At.Phase)
	case begin >= end:
		d.bad(at+".at", "%v is after the end of the load at %v", f.At, end)
	case begin+f.For > end:
		d.bad(at+".for", "the fault would be undone at %v, after the end of the load at %v: lengthen phases.recovery", begin+f.For, end)
	}
}

func (d *decoder) strikes(s *Scenario, f Fault, at string) {
	switch f.Target.Role {
	case "node":
		if f.Target.Node > s.Target.Nodes {
			d.bad(at+".target", "there are only %d nodes", s.Target.Nodes)
		}
	case "txn_coordinator":
		if !s.Guarantee.Transacts() && !d.sweepHas("guarantee", string(Transactional)) && !d.sweepHas("guarantee", string(TwoPhaseCommit)) {
			d.bad(at+".target", "there is none: the guarantee %s has no transactions", s.Guarantee)
		}
	case "group_coordinator":
		if len(s.Consumers.Groups) == 0 {
			d.bad(at+".target", "there is none: consumers.groups is empty")
		}
	case "worker":
		if len(s.Consumers.Groups) == 0 || f.Target.Worker >= s.Consumers.Groups[0].Members {
			d.bad(at+".target", "the first group has no such member")
		}
		if f.Kind == "partition" {
			d.bad(at+".kind", "a worker is cut off by kind: pause")
		}
	case "leader", "follower":
		var names []string
		for _, t := range s.Topics {
			names = append(names, t.Name)
			if t.Name == f.Target.Topic {
				if int(f.Target.Partition) >= t.Partitions {
					d.bad(at+".target", "topic %s has only %d partitions, counted from 0", t.Name, t.Partitions)
				}
				return
			}
		}
		d.bad(at+".target", "there is no topic %q%s", f.Target.Topic, oneOf(f.Target.Topic, names))
	}
}

func (d *decoder) checks(s *Scenario) {
	for key, rules := range map[string][]string{"checks.rules": s.Checks.Rules, "checks.tolerate": s.Checks.Tolerate} {
		for i, id := range rules {
			if hint := oneOf(id, RuleIDs()); hint != "" {
				d.bad(fmt.Sprintf("%s.%d", key, i), "%q is not a rule%s", id, hint)
			}
		}
	}
}

func (d *decoder) expectations(s *Scenario) {
	for i, e := range s.Expect {
		at := fmt.Sprintf("expect.%d", i)
		if e.Phase != "" && s.Phases.length(e.Phase) == 0 {
			d.bad(at, "the phase %s has no length", e.Phase)
		}
		if strings.HasPrefix(e.Metric, "visible.") && !s.Load.ReadAlong {
			d.bad(at, "nothing reads along, so nothing is visible: load.read_along is false")
		}
		if why := d.inVain(e, s); why != "" {
			d.bad(at, "%s %s", e.Metric, why)
		}
		if e.A == "" {
			continue
		}
		if e.A == e.B {
			d.bad(at, "compares %s with itself", e.A)
		}
		if !d.sweepHolds(e.A, e.B) {
			d.bad(at, "%s and %s are not both values of one swept key", e.A, e.B)
		}
		for _, w := range e.Where {
			if !d.sweptWith(w) {
				d.bad(at, "%s is not a value that %s is swept over", w.Value, w.Key)
			}
		}
		if e.Metric == Half && !d.sweepsOver("producers.transaction.records") {
			d.bad(at, "%s takes transactions of several sizes: producers.transaction.records with at least two values", Half)
		}
	}
}

// inVain says why a metric would have no figure in any trial, or none that means anything, so that its line decided nothing after hours; empty where it has.
func (d *decoder) inVain(e Expect, s *Scenario) string {
	switch kind, _, _ := strings.Cut(e.Metric, "."); kind {
	case "ack", "visible":
		if s.Load.Model == "closed" && s.Load.MaxOutstanding > 1 && !d.sweepHas("load.model", "open") && !d.sweepHas("load.max_outstanding", "1") {
			return fmt.Sprintf("of a closed loop with %d outstanding is queueing, which tells of the bound alone: set load.model: open, or load.max_outstanding: 1", s.Load.MaxOutstanding)
		}
	case "commit", "end_txn", "transactions", "committed", "in_doubt", Half:
		if !s.Guarantee.Transacts() && !d.sweepHas("guarantee", string(Transactional)) && !d.sweepHas("guarantee", string(TwoPhaseCommit)) {
			return fmt.Sprintf("is of transactions, and the guarantee %s has none", s.Guarantee)
		}
	case "outage", "outage_prober", "stall", "pace_before_fault":
		if len(s.Faults) == 0 {
			return "is measured around faults, and there are none"
		}
	case "end_to_end", "transformed":
		if s.Consumers.Transform.To == "" {
			return "is of what a transform makes, and consumers.transform.to names no topic"
		}
	case "rss", "broker_cpu_per_record":
		if s.Target.System == "external" {
			return "is not known of brokers that the harness did not start"
		}
	}
	return ""
}

func (d *decoder) sweepsOver(path string) bool {
	return slices.ContainsFunc(d.sweeps, func(w *sweep) bool { return w.path == path && len(w.list.items) > 1 })
}

// sweptWith says whether a key is swept, with this value among others.
func (d *decoder) sweptWith(a Axis) bool {
	for _, w := range d.sweeps {
		if w.path == a.Key {
			return contains(w.written(), a.Value)
		}
	}
	return false
}

func (d *decoder) sweepHolds(a, b string) bool {
	for _, w := range d.sweeps {
		values := w.written()
		if contains(values, a) && contains(values, b) {
			return true
		}
	}
	return false
}
