package load

import (
	"context"
	"log/slog"
	"time"

	"gopherlog/bench/hdr"
	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

// A Clock is the one clock of a trial: load, history, faults and samples are placed on it.
type Clock struct{ soon int }

// NewClock makes a clock that has not started.
func NewClock() *Clock { panic("soon") }

// Start sets zero to now and closes Started. Run calls it with the first send.
func (c *Clock) Start() { panic("soon") }

// Started is closed when the clock runs.
func (c *Clock) Started() <-chan struct{} { panic("soon") }

// Now is the time since zero, monotonic; negative or zero before the start.
func (c *Clock) Now() time.Duration { panic("soon") }

// Zero is the wall-clock time of zero.
func (c *Clock) Zero() time.Time { panic("soon") }

// SleepUntil returns at the moment t, or earlier with ctx's error. It waits for the start first.
func (c *Clock) SleepUntil(ctx context.Context, t time.Duration) error { panic("soon") }

// A Plan is one trial's load.
type Plan struct {
	RunID          uint64
	Seed           int64
	Guarantee      scenario.Guarantee
	Topics         []TopicSpec
	Producers      scenario.Producers
	Load           scenario.Load
	Phases         scenario.Phases
	HistoryDir     string         // empty: no history is kept
	Interval       time.Duration  // of histograms and rates; default 1 s
	EndsEvery      time.Duration  // how often end offsets are asked; default 250 ms
	VisibleReaders int            // consumers that share the partitions; default 1
	DrainReader    func() Driver  // a driver with fresh connections for the final read; nil = the runner's driver
	Clock          *Clock         // nil = a clock of its own
	Progress       func(Progress) // each interval, from one goroutine; may be nil
	Logger         *slog.Logger
}

// PlanOf is the plan of a cell for one trial: topics get the prefix, the seed is the trial's.
func PlanOf(c scenario.Cell, seed int64, prefix string) Plan { panic("soon") }

// Progress is a glance at a running trial.
type Progress struct {
	At      time.Duration
	Phase   string
	Offered float64 // per second, over the last interval
	Acked   float64
	Read    float64
	P50     time.Duration // ack latency of the last interval; 0 with too few samples
	P99     time.Duration
	Waiting int64 // messages without outcome
	Failed  int64 // so far
	Shed    int64 // so far
}

// Run creates the topics, sends on schedule through all phases, reads along, drains with a fresh client, and deletes nothing.
// It returns an outcome also where ctx ended early (Partial is set); an error means that no trial took place.
func Run(ctx context.Context, d Driver, p Plan) (*Outcome, error) { panic("soon") }

// An Outcome is everything that a trial measured.
type Outcome struct {
	Zero     time.Time
	Phases   []PhaseCounts
	Seconds  []Tick // one per interval
	Ack      *hdr.Series
	Visible  *hdr.Series
	Late     *hdr.Series // handed to the client after its intended time, by how much: every message
	Failures *hdr.Series // time until a message failed or was given up
	Outages  []Outage
	Drain    Drain
	Settings []Setting
	Errors   []ErrorCount
	History  history.Stats
	Client   ClientUse
	Model    string // open or closed
	Partial  bool
	Invalid  []string // what makes the trial's figures or verdict unusable
}

// PhaseCounts are the messages whose intended time lies in a phase.
type PhaseCounts struct {
	Phase      string
	Start, End time.Duration
	Slots      int64 // scheduled
	Sent       int64
	Shed       int64 // not sent: too many outstanding
	Late       int64 // sent more than 1 ms after their time
	Acked      int64
	Failed     int64
	Unknown    int64
	Read       int64 // seen by the visible reader
	Bytes      int64 // of acknowledged values
}

// A Tick is one interval of the time series, by the moment things happened.
type Tick struct {
	At      time.Duration
	Slots   int64
	Sent    int64
	Acked   int64
	Failed  int64
	Unknown int64
	Shed    int64
	Read    int64
	Waiting int64
}

// An Outage is a span in which a partition had messages waiting and none acknowledged.
type Outage struct {
	Topic     string
	Partition int32
	Start     time.Duration // the moment from which something waited without an acknowledgement
	End       time.Duration
	Open      bool // not over when sending ended
}

// A Drain is the final read.
type Drain struct {
	Complete   bool
	Took       time.Duration
	Messages   int64
	Partitions []DrainPartition
	Why        string // of an incomplete one
}

// A DrainPartition says how far one partition was read.
type DrainPartition struct {
	Topic     string
	Partition int32
	Target    int64 // end that had to be reached
	Reached   int64
}

// An ErrorCount is how often an error was the outcome of a send or a read.
type ErrorCount struct {
	What  string
	Count int64
}

// ClientUse is what the harness itself used while sending.
type ClientUse struct {
	CPU        time.Duration // user + system
	Wall       time.Duration
	GCPause    time.Duration
	Goroutines int
}

// ConfigOf is the settings table: what guarantee g fixes for producers, with the scenario's choices filled in.
func ConfigOf(g scenario.Guarantee, p scenario.Producers, maxOutstanding int) (ProducerConfig, error) {
	panic("soon")
}

// KafkaConfig says how to reach a Kafka-protocol cluster.
type KafkaConfig struct {
	Bootstrap []string
	Logger    *slog.Logger
}

// NewKafka is the driver for the Kafka protocol.
func NewKafka(cfg KafkaConfig) (Driver, error) { panic("soon") }

// NewNull is a target that acknowledges everything at once: what is measured on it is the harness.
func NewNull() Driver { panic("soon") }

// A ProbeConfig says what a prober probes.
type ProbeConfig struct {
	Nodes      []string // host:port of every broker
	Partitions []history.Partition
	RunID      uint64
	Acks       int
	Interval   time.Duration // default 5 ms
	Timeout    time.Duration // default 200 ms
	Clock      *Clock
}

// A Prober measures when a partition accepts writes, with connections of its own to every node, apart from the load.
type Prober struct{ soon int }

// StartProber begins to probe when the clock starts.
func StartProber(ctx context.Context, cfg ProbeConfig) (*Prober, error) { panic("soon") }

// Stop ends the probing and tells the spans of each partition without an accepted probe that lasted at least min.
func (p *Prober) Stop(min time.Duration) []Outage { panic("soon") }

// Counts is the number of probes sent and accepted.
func (p *Prober) Counts() (sent, accepted int64) { panic("soon") }
