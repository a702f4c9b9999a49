package rpc

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counters are what a node counts on its hot paths.
type counters struct {
	sentBytes      atomic.Int64 // of parts, on plain streams
	receivedBytes  atomic.Int64
	sentParts      atomic.Int64
	receivedParts  atomic.Int64
	refusedParts   atomic.Int64
	suppressed     atomic.Int64
	beatsSent      atomic.Int64
	beatsDropped   atomic.Int64
	linksLost      atomic.Int64
	verdictChanges atomic.Int64
}

// collectors are the node's metrics; all are read when they are asked for.
func (n *Node) collectors() []prometheus.Collector {
	counter := func(name, help string, v *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "gopherlog_rpc_" + name, Help: help},
			func() float64 { return float64(v.Load()) })
	}
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gopherlog_rpc_" + name, Help: help}, read)
	}
	c := &n.counts
	return []prometheus.Collector{
		counter("sent_bytes_total", "Bytes of entries and their frames sent to followers.", &c.sentBytes),
		counter("received_bytes_total", "Bytes of entries and their frames received from leaders.", &c.receivedBytes),
		counter("sent_parts_total", "Frames of entries sent to followers.", &c.sentParts),
		counter("received_parts_total", "Frames of entries received from leaders.", &c.receivedParts),
		counter("refused_parts_total", "Frames of entries refused: unknown group, no room.", &c.refusedParts),
		counter("suppressed_requests_total", "Empty AppendEntries that were not sent because they said nothing new.", &c.suppressed),
		counter("heartbeats_sent_total", "Heartbeats sent, before they were merged.", &c.beatsSent),
		counter("heartbeats_dropped_total", "Heartbeats that a group had no room for.", &c.beatsDropped),
		counter("links_lost_total", "Connections to peers that broke.", &c.linksLost),
		counter("verdict_changes_total", "Times that a peer was judged dead or alive.", &c.verdictChanges),
		gauge("peers_alive", "Peers that answer pings.", n.countAlive),
		gauge("groups", "Raft groups attached.", func() float64 {
			n.mu.RLock()
			defer n.mu.RUnlock()
			return float64(len(n.groups))
		}),
		gauge("receive_budget_bytes", "Bytes of received entries that wait for their groups.", func() float64 {
			return float64(n.received.inUse())
		}),
		gauge("ping_p99_seconds", "Slowest peer's 99th percentile of recent ping times.", n.slowestPing),
	}
}

func (n *Node) countAlive() (alive float64) {
	for _, p := range n.allPeers() {
		if p.alive() {
			alive++
		}
	}
	return alive
}

func (n *Node) slowestPing() (slowest float64) {
	for _, p := range n.allPeers() {
		p.mu.Lock()
		slowest = max(slowest, p.trips.p99().Seconds())
		p.mu.Unlock()
	}
	return slowest
}

func (n *Node) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range n.collectors() {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// DescribeMetrics registers what a Node registers, without one: for documentation.
func DescribeMetrics(r prometheus.Registerer) error {
	return (&Node{received: newBudget(0)}).register(r)
}
