// Package result is the run directory: what one scenario left on disk, and
// nothing else is needed to draw its report again.
//
// It knows file names, the schema version and how to write each file whole. It
// knows nothing of how the figures came about or how they are drawn.
package result

import (
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
)

// SchemaVersion is written to every manifest; a directory of another version is
// refused as a version.
const SchemaVersion = 1

// Manifest says what was run, on what, with which settings. It is written when
// the run starts and again when it ends.
type Manifest struct {
	Schema   int       `json:"schema"`
	Tool     string    `json:"tool"`   // version of mqbench
	Commit   string    `json:"commit"` // of the source, "" when unknown
	Command  string    `json:"command"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	Partial  bool      `json:"partial"`           // ended before all trials ran
	Stopped  string    `json:"stopped,omitempty"` // why it is partial
	Planted  []string  `json:"planted,omitempty"` // faults that were planted in every broker
	Scenario Scenario  `json:"scenario"`
	System   System    `json:"system"`            // the first of Systems
	Systems  []System  `json:"systems,omitempty"` // those that the cells run on, in the scenario's order
	Host     Host      `json:"host"`
	Cells    []Cell    `json:"cells"`
}

// Scenario is what the report prints of the scenario file.
type Scenario struct {
	Name       string   `json:"name"`
	File       string   `json:"file"`
	Question   string   `json:"question"`
	Hypothesis string   `json:"hypothesis"`
	Resolved   string   `json:"resolved"` // the whole file after defaults and -set, as YAML
	Seed       int64    `json:"seed"`
	Profile    string   `json:"profile"` // quick | standard | full | custom
	Blocks     int      `json:"blocks"`
	Model      string   `json:"model"` // open | closed
	Expect     []string `json:"expect"`
}

// System is the system under test.
type System struct {
	Name              string            `json:"name"`
	Version           string            `json:"version"`
	Nodes             int               `json:"nodes"`
	ReplicationFactor int               `json:"replication_factor"`
	MinInsync         int               `json:"min_insync_replicas"`
	Tier              string            `json:"tier"`
	Partitions        int               `json:"partitions"`
	RecordBytes       int               `json:"record_bytes"`
	Effective         map[string]string `json:"effective"`           // topic settings as the system reports them
	Launched          map[string]string `json:"launched,omitempty"`  // broker settings that the harness wrote
	Nice              int               `json:"nice,omitempty"`      // scheduling priority of the brokers
	Kept              bool              `json:"kept,omitempty"`      // one cluster ran through all trials, or those of a block
	PerBlock          bool              `json:"per_block,omitempty"` // of Kept: each block had a cluster of its own
	Warm              *Warm             `json:"warm,omitempty"`      // the load before the first trial
}

// Warm is the full load that a cluster had before its first trial.
type Warm struct {
	Seconds float64 `json:"seconds"`
	First   float64 `json:"first_per_s"` // records a second in its first seconds
	Last    float64 `json:"last_per_s"`  // in its last
}

// Host describes the machine, with what limits the figures' meaning.
type Host struct {
	OS          string  `json:"os"`
	Kernel      string  `json:"kernel"`
	CPU         string  `json:"cpu"`
	Cores       int     `json:"cores"`
	MemoryBytes int64   `json:"memory_bytes"`
	Go          string  `json:"go"`
	Filesystem  string  `json:"filesystem"`
	FsyncP50    float64 `json:"fsync_p50_ms"` // of 4 KiB on the data directory
	Namespace   string  `json:"namespace"`    // "own", or why there is none
}

// Cell is one configuration point of the matrix.
type Cell struct {
	ID        string            `json:"id"`
	System    string            `json:"system,omitempty"` // "" in older runs: the manifest's only one
	Guarantee string            `json:"guarantee"`
	Model     string            `json:"model"`
	Rate      float64           `json:"rate"`                  // offered records a second; 0 when closed
	Bound     int               `json:"outstanding,omitempty"` // of a closed model: records without an outcome
	Sweep     map[string]string `json:"sweep,omitempty"`
	Client    map[string]string `json:"client"`               // settings as used
	Deviates  map[string]string `json:"deviations,omitempty"` // from the guarantee's table
	Producers int               `json:"producers,omitempty"`
	Bytes     int               `json:"record_bytes,omitempty"`   // mean size of a value; 0 in older runs: that of the system
	Txn       *Txn              `json:"transaction,omitempty"`    // nil: the guarantee has none
	Absent    string            `json:"not_applicable,omitempty"` // why the system cannot do it: the cell has no trials
}

// Txn is what a producer puts into one transaction.
type Txn struct {
	Records    int     `json:"records"`
	Partitions int     `json:"partitions"` // 0: wherever the partitioner chose
	AbortShare float64 `json:"abort_share"`
}

// Span is a phase on the trial's clock, in seconds since its start.
type Span struct {
	Phase string  `json:"phase"`
	Start float64 `json:"start"`
	End   float64 `json:"end"`
}

// Latency summarises one histogram, in milliseconds. A percentile that has too
// few samples beyond it is 0 and absent from the report.
type Latency struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

// Counts are records, over the whole trial.
type Counts struct {
	Slots     int64 `json:"slots"` // that the schedule contained
	Sent      int64 `json:"sent"`
	Acked     int64 `json:"acked"`
	Failed    int64 `json:"failed"`  // certainly never visible
	Unknown   int64 `json:"unknown"` // no answer, or an ambiguous one
	Late      int64 `json:"late"`    // sent more than the lateness limit after their slot
	Shed      int64 `json:"shed"`    // never sent: too much outstanding
	Delivered int64 `json:"delivered"`

	Txns          int64 `json:"txns,omitempty"` // that were begun
	TxnsCommitted int64 `json:"txns_committed,omitempty"`
	TxnsAborted   int64 `json:"txns_aborted,omitempty"`
	TxnsInDoubt   int64 `json:"txns_in_doubt,omitempty"` // the end got no answer, or an ambiguous one, or a dead worker left it open
	Committed     int64 `json:"committed,omitempty"`     // records of committed transactions
	Transformed   int64 `json:"transformed,omitempty"`   // inputs of which a group made an output that counts
}

// Outage is the longest span without an acknowledgement on one partition
// around one fault, in seconds.
type Outage struct {
	Fault     int     `json:"fault"` // index into Faults
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Load      float64 `json:"load"`     // as the load client saw it
	Prober    float64 `json:"prober"`   // as a prober with connections to all nodes saw it; -1: not probed
	Affected  bool    `json:"affected"` // the fault hit this partition's leader
}

// Stall is a span in which the reader of the guarantee's isolation got nothing of
// a partition although acknowledged records waited there.
type Stall struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Start     float64 `json:"start"` // on the trial's clock
	Seconds   float64 `json:"seconds"`
	Fault     int     `json:"fault"` // the one around which it began, index into Faults; -1 none
	Open      bool    `json:"open,omitempty"`
}

// Usage is what the processes consumed in the steady phase.
type Usage struct {
	BrokerCPU   float64 `json:"broker_cpu_s"`
	ClientCPU   float64 `json:"client_cpu_s"`
	BrokerRSS   int64   `json:"broker_rss_max"` // largest of any node
	Seconds     float64 `json:"seconds"`
	Records     int64   `json:"records"` // acknowledged in it
	WriteBytes  int64   `json:"write_bytes"`
	CopiesAtAck int     `json:"copies_at_ack"`          // -1: not known
	BesideCores float64 `json:"beside_cores,omitempty"` // that other systems' idle clusters used meanwhile
	// Stolen is the share (0 to 1) of the machine's processor time that the host of the virtual machine gave to others; nil: not known.
	Stolen *float64 `json:"stolen,omitempty"`
}

// Trial is one run of one cell.
type Trial struct {
	ID       string                        `json:"id"`
	Cell     string                        `json:"cell"`
	Block    int                           `json:"block"`
	Order    int                           `json:"order"`
	Seed     int64                         `json:"seed"`
	Started  time.Time                     `json:"started"`
	Seconds  float64                       `json:"seconds"`
	Phases   []Span                        `json:"phases"`
	Offered  float64                       `json:"offered"`  // records a second in the steady phase
	Achieved float64                       `json:"achieved"` // acknowledged a second in the steady phase
	Counts   Counts                        `json:"counts"`
	Commits  float64                       `json:"commits,omitempty"` // records of committed transactions a second in the steady phase
	Txns     float64                       `json:"txns,omitempty"`    // committed transactions a second in the steady phase
	Stalls   []Stall                       `json:"stalls,omitempty"`
	Latency  map[string]map[string]Latency `json:"latency"` // metric → phase
	Lateness Latency                       `json:"lateness"`
	Outages  []Outage                      `json:"outages"`
	Faults   []fault.Event                 `json:"faults"`
	Check    check.Verdict                 `json:"check"`
	Usage    Usage                         `json:"usage"`
	Drift    bool                          `json:"drift"`   // the steady phase was not steady
	Invalid  []string                      `json:"invalid"` // reasons to set the trial aside
	Leaders  []LeaderChange                `json:"leaders"`
	Errors   []ErrorCount                  `json:"errors,omitempty"`
}

// ErrorCount is how often an error was the outcome of a send or a read.
type ErrorCount struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
}

// LeaderChange is a change of leadership as the harness saw it.
type LeaderChange struct {
	At        float64 `json:"at"` // seconds on the trial's clock
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Node      int32   `json:"node"`
}

// Expectation is one line of `expect`, judged.
type Expectation struct {
	Line    string `json:"line"`
	Outcome string `json:"outcome"`        // met | missed | undecided
	Open    bool   `json:"open,omitempty"` // the line says "or undecided": it need not be decided
	Got     string `json:"got"`
	Ratio   *Ratio `json:"ratio,omitempty"` // what the line says, where it compares
}

// Ratio is an expectation on metric(A) / metric(B), decided for each group of
// cells that agree in everything else.
type Ratio struct {
	Metric string       `json:"metric"`
	A      string       `json:"a"`
	B      string       `json:"b"`
	Op     string       `json:"op"`
	Value  float64      `json:"value"`
	Groups []RatioGroup `json:"groups"`
}

// RatioGroup is one group's ratio. Name holds the other swept keys as key=value.
type RatioGroup struct {
	Name    string  `json:"name"`
	Center  float64 `json:"center"`
	Lo      float64 `json:"lo"`
	Hi      float64 `json:"hi"`
	Blocks  int     `json:"blocks"`
	Outcome string  `json:"outcome"`
}

// Results is everything that was measured.
type Results struct {
	Schema       int           `json:"schema"`
	Trials       []Trial       `json:"trials"`
	Expectations []Expectation `json:"expectations"`
	Verdict      check.Status  `json:"verdict"`
	ExitCode     int           `json:"exit_code"`
}

// Judged lists the trials that have a verdict other than "cannot be said".
func (r *Results) Judged() []Trial {
	var out []Trial
	for _, t := range r.Trials {
		if t.Check.Status != check.Inconclusive {
			out = append(out, t)
		}
	}
	return out
}

// Valid lists the trials that were not set aside.
func (r *Results) Valid() []Trial {
	var out []Trial
	for _, t := range r.Trials {
		if len(t.Invalid) == 0 {
			out = append(out, t)
		}
	}
	return out
}

// SystemOf is the system that a cell ran on.
func (m *Manifest) SystemOf(c Cell) System {
	for _, s := range m.Systems {
		if s.Name == c.System {
			return s
		}
	}
	return m.System
}
