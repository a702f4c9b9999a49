// Package scenario reads the YAML file in which a user asks a question of a broker, and answers with cells that hold no open choice.
// It knows the vocabulary, its defaults and its limits; it knows nothing of brokers, processes, clocks or clients, and starts nothing.
package scenario

import "time"

// Guarantee names a delivery guarantee: a fixed set of client settings and the rules a run under it is judged by.
type Guarantee string

// The guarantees a scenario can ask for.
const (
	AtMostOnce  Guarantee = "at_most_once"
	AtLeastOnce Guarantee = "at_least_once"
	Idempotent  Guarantee = "idempotent"

	Transactional  Guarantee = "transactional"    // the broker's own transactions
	TwoPhaseCommit Guarantee = "two_phase_commit" // voted two-phase commit: the same client, with transactional ids of their own
)

// Transacts says whether producers send in transactions.
func (g Guarantee) Transacts() bool { return g == Transactional || g == TwoPhaseCommit }

// A Scenario is one question with every default filled in and every sweep resolved to one value.
// The Scenario that Parse returns holds the first value of each sweep; Expand lists all cells.
type Scenario struct {
	Version    int         `yaml:"version" required:"true" enum:"1" doc:"Version of this vocabulary; always 1."`
	Name       string      `yaml:"name" required:"true" doc:"Short name: letters, digits, dots and dashes. Names the run directory."`
	Question   string      `yaml:"question" doc:"What the run is to answer, as a sentence. Printed at the head of the report."`
	Hypothesis string      `yaml:"hypothesis" doc:"What you expect before you look. Printed beside the answer."`
	Seed       int64       `yaml:"seed" default:"1" doc:"Seed of everything random: arrivals, keys, payloads, trial order, bootstrap."`
	Target     Target      `yaml:"target" doc:"The system under test."`
	Guarantee  Guarantee   `yaml:"guarantee" default:"at_least_once" enum:"at_most_once|at_least_once|idempotent|transactional|two_phase_commit" doc:"Delivery guarantee: which client settings are used and which rules judge the run."`
	Topics     []Topic     `yaml:"topics" doc:"Topics that the load is spread over. Default: one topic \"load\" of 6 partitions."`
	Producers  Producers   `yaml:"producers" doc:"Producer clients."`
	Consumers  Consumers   `yaml:"consumers" doc:"Consumer groups that work on what the producers send."`
	Load       Load        `yaml:"load" doc:"What is sent, and when."`
	Phases     Phases      `yaml:"phases" doc:"How long each part of a trial lasts."`
	Faults     []Fault     `yaml:"faults" doc:"What breaks, when, and for how long."`
	Checks     Checks      `yaml:"checks" doc:"How the delivered messages are judged."`
	Runs       Runs        `yaml:"runs" doc:"Repeats and their order."`
	Expect     []Expect    `yaml:"expect" doc:"Lines that decide the exit code: 10 a violation, 99 a missed line, 3 an invalid run or an undecided line."`
	Report     ReportWants `yaml:"report" doc:"Files that the run leaves."`

	cells  []Cell
	swept  []Sweep
	faults []Fault // as written; a cell's Faults are those that come in it, each time
}

// A Target is the system under test and how much of it there is.
type Target struct {
	System            string            `yaml:"system" default:"gopherlog" enum:"gopherlog|kafka|external" later:"nats" doc:"gopherlog and kafka launch their own clusters (Kafka from jars that scripts/kafka-fetch.sh brings); external uses a running Kafka-protocol cluster, in topics of its own. Systems given as a list are compared."`
	Nodes             int               `yaml:"nodes" default:"3" min:"1" max:"31" doc:"Brokers to launch. Unused with external."`
	ReplicationFactor int               `yaml:"replication_factor" default:"0" min:"0" max:"31" doc:"Copies of each partition. Default: 3, or the number of nodes where that is less."`
	MinInsyncReplicas int               `yaml:"min_insync_replicas" default:"0" min:"0" max:"31" doc:"Copies that must exist at the acknowledgement. Default: the majority of the replication factor."`
	Durability        string            `yaml:"durability" default:"T1" enum:"T1|T2" doc:"T1: in the page cache of a majority when acknowledged. T2: synced on a majority. One for a scenario: figures of two never share a chart."`
	Timeouts          string            `yaml:"timeouts" default:"default" enum:"default" later:"equalised" doc:"Failure detection as the system ships it."`
	Nice              int               `yaml:"nice" default:"10" min:"0" max:"19" doc:"Scheduling priority of the brokers, the same for every system: 0 is that of the load client, 19 the lowest. Unused with external."`
	Settings          map[string]string `yaml:"settings" doc:"The system's own keys, passed through, printed, read back. Where systems are compared: those of gopherlog."`
	Kafka             Kafka             `yaml:"kafka" doc:"What only Kafka is told. Only with system: kafka."`
	External          External          `yaml:"external" doc:"Where a running cluster is. Only with system: external."`
}

// Kafka is what an Apache Kafka cluster is started with, beside what the harness sets itself.
type Kafka struct {
	Heap     Size              `yaml:"heap" default:"1GiB" doc:"Java heap of each node, taken from the start."`
	Settings map[string]string `yaml:"settings" doc:"Broker properties, passed through and printed."`
}

// External says how to reach a cluster that the harness did not start.
type External struct {
	Bootstrap []string `yaml:"bootstrap" doc:"host:port of at least one broker."`
	Prefix    string   `yaml:"prefix" default:"mqbench-" doc:"Every topic created begins with it, and is removed afterwards."`
	_         struct{} `later:"tls|sasl"`
}

// A Topic is one topic that the harness creates for a trial.
type Topic struct {
	Name       string            `yaml:"name" required:"true" doc:"Topic name."`
	Partitions int               `yaml:"partitions" default:"6" min:"1" max:"4096" doc:"Number of partitions."`
	Config     map[string]string `yaml:"config" doc:"Topic configuration, in Kafka's own key names."`
}

// Producers are the clients that send. Everything the guarantee fixes is absent here on purpose.
type Producers struct {
	Count       int               `yaml:"count" default:"4" min:"1" max:"256" doc:"Producer clients, each with connections of its own."`
	Linger      time.Duration     `yaml:"linger" default:"0s" doc:"How long a client waits to fill a batch."`
	BatchBytes  Size              `yaml:"batch_bytes" default:"1MiB" doc:"Largest batch of one partition."`
	Compression string            `yaml:"compression" default:"none" enum:"none|gzip|snappy|lz4|zstd" doc:"Codec of the batches."`
	Overrides   map[string]string `yaml:"overrides" doc:"Client settings that differ from the guarantee's table; printed as deviations."`
	Transaction Transaction       `yaml:"transaction" doc:"What a producer puts into one transaction. Only guarantees with transactions use it."`
}

// Transaction says how producers cut what they send into transactions. A producer has one in flight: what is due while it ends waits.
type Transaction struct {
	Records     int           `yaml:"records" default:"100" min:"1" max:"1000000" doc:"Records of a transaction."`
	Partitions  int           `yaml:"partitions" default:"0" min:"0" max:"4096" doc:"Partitions that a transaction writes to, in turn. 0: as load.partitioner chooses."`
	MaxDuration time.Duration `yaml:"max_duration" default:"1s" doc:"A transaction for which too few records are due ends this long after it began."`
	AbortShare  float64       `yaml:"abort_share" default:"0" min:"0" max:"1" doc:"Share of the transactions that the producer aborts on purpose, drawn from the seed."`
	Timeout     time.Duration `yaml:"timeout" default:"10s" doc:"Kafka's transaction.timeout.ms: when the coordinator aborts what nobody ends."`
}

// Consumers are the groups that read what the producers send.
type Consumers struct {
	Groups         []ConsumerGroup `yaml:"groups" doc:"Consumer groups. Isolation and the point of commit follow from the guarantee."`
	Transform      Transform       `yaml:"transform" doc:"The first group makes one message of each that it reads; where the guarantee has transactions, its offsets are in them."`
	Commit         string          `yaml:"commit" default:"" enum:"before_process|after_process|in_transaction" doc:"When a member commits its position. Default: before_process for at_most_once, in_transaction for a transform in transactions, else after_process."`
	PollRecords    int             `yaml:"poll_records" default:"100" min:"1" max:"100000" doc:"Most messages of one poll; what a transform makes of a poll is one transaction."`
	ProcessTime    ProcessTime     `yaml:"process_time" doc:"How long a member works on each message."`
	SessionTimeout time.Duration   `yaml:"session_timeout" default:"6s" doc:"A member that is not heard of for this long is out of its group."`
	Rebalance      time.Duration   `yaml:"rebalance_timeout" default:"6s" doc:"How long a group waits for a member to come back when its partitions are dealt anew."`
	Churn          Churn           `yaml:"churn" doc:"What members do beside working, as a chance per poll, drawn from the seed."`
}

// A ConsumerGroup is one group.
type ConsumerGroup struct {
	Name    string `yaml:"name" required:"true" doc:"Name of the group."`
	Members int    `yaml:"members" default:"3" min:"1" max:"64" doc:"Members, each a client of its own."`
}

// Transform says what the first group makes of what it reads.
type Transform struct {
	From string `yaml:"from" doc:"Topic that producers send to and the groups read. Default: every topic of the producers."`
	To   string `yaml:"to" doc:"Topic that the transform writes to; producers do not. Empty: the groups only read."`
}

// ProcessTime is a distribution of working times.
type ProcessTime struct {
	Dist string        `yaml:"dist" default:"exponential" enum:"constant|exponential" doc:"How working times are spread."`
	Mean time.Duration `yaml:"mean" default:"0s" doc:"Mean working time of a message."`
}

// Churn is what members do beside working.
type Churn struct {
	Rejoin float64 `yaml:"rejoin" default:"0" min:"0" max:"1" doc:"A member leaves its group and comes back."`
	Crash  float64 `yaml:"crash" default:"0" min:"0" max:"1" doc:"A member vanishes without a word, in the midst of a poll, and another takes its place."`
	Zombie float64 `yaml:"zombie" default:"0" min:"0" max:"1" doc:"A member is cut off in the midst of a poll until after its session timed out, another takes its place, and it goes on as if nothing had been."`
	Slow   float64 `yaml:"slow" default:"0" min:"0" max:"1" doc:"A member works on one poll for longer than the rebalance timeout."`
}

// Load says what is sent and when.
type Load struct {
	Model          string `yaml:"model" default:"open" enum:"open|closed" doc:"open: send times fixed in advance, never waiting for answers. closed: bounded outstanding; charts say \"saturation\"."`
	Arrival        string `yaml:"arrival" default:"poisson" enum:"constant|poisson" later:"ramp|burst|trace" doc:"Gaps between sends. Open model only."`
	Rate           Rate   `yaml:"rate" default:"1k/s" later:"find_max" doc:"Messages offered per second over all producers. Open model only."`
	MaxOutstanding int    `yaml:"max_outstanding" default:"20000" min:"1" max:"10000000" doc:"Messages without an outcome. Open: what would exceed it is shed and counted. Closed: the bound itself."`
	Keys           Keys   `yaml:"keys" doc:"How keys are drawn."`
	Partitioner    string `yaml:"partitioner" default:"" enum:"fnv1a|murmur2|round_robin|sticky" doc:"Which partition a message goes to. Default: fnv1a with keys, sticky without."`
	Value          Value  `yaml:"value" doc:"What a message holds besides its key."`
	ReadAlong      bool   `yaml:"read_along" default:"true" doc:"A reader follows the load and tells when records become visible. false: producing is measured alone; the final read judges it all the same."`
}

// Keys says how message keys are drawn.
type Keys struct {
	Dist     string  `yaml:"dist" default:"none" enum:"none|sequential|uniform|zipf|hotset" doc:"none: no key. sequential: counting through the space. zipf: rank r with weight r^-theta. hotset: hot_load of the messages on hot_share of the keys."`
	Space    Count   `yaml:"space" default:"100k" doc:"Number of different keys."`
	Theta    float64 `yaml:"theta" default:"0.99" min:"0" max:"5" doc:"Skew of zipf."`
	HotShare float64 `yaml:"hot_share" default:"0.01" min:"0" max:"1" doc:"Share of the keys that is hot."`
	HotLoad  float64 `yaml:"hot_load" default:"0.9" min:"0" max:"1" doc:"Share of the messages that goes to hot keys."`
}

// Value says how message values are made.
type Value struct {
	Size    SizeDist `yaml:"size" default:"1KiB" doc:"Bytes of a value, its 48-byte header included: a size, or {dist: lognormal, median: 512B, p99: 16KiB}."`
	Entropy float64  `yaml:"entropy" default:"1" min:"0" max:"1" doc:"Share of the value that does not compress."`
}

// Phases are the parts of a trial, in this order, on one clock that starts at zero with the first send.
type Phases struct {
	Warmup   time.Duration `yaml:"warmup" default:"5s" doc:"Sent but not counted."`
	Steady   time.Duration `yaml:"steady" default:"20s" doc:"Counted without faults."`
	Impact   time.Duration `yaml:"impact" default:"0s" doc:"Faults happen here."`
	Recovery time.Duration `yaml:"recovery" default:"0s" doc:"Load goes on after the last fault."`
	Drain    time.Duration `yaml:"drain" default:"60s" doc:"Longest wait for the last outcomes and for the final read; usually far shorter."`
}

// Names of the phases, in order.
const (
	PhaseWarmup   = "warmup"
	PhaseSteady   = "steady"
	PhaseImpact   = "impact"
	PhaseRecovery = "recovery"
	PhaseDrain    = "drain"
)

// A Fault is one thing that breaks.
type Fault struct {
	At     At            `yaml:"at" required:"true" doc:"When, relative to a phase: impact+5s. Or \"on failpoint NAME hit N\": when the target passes a point in its code for the Nth time in the impact phase; docs/FAILPOINTS.md lists the points of gopherlog."`
	Kind   string        `yaml:"kind" required:"true" enum:"kill|pause|partition" later:"power_loss|random|exec|slow_cpu|loss|delay|slow_link|hold_request|duplicate_request|reset_connections|disk_slow|disk_stall|disk_error|disk_full|torn_write|bit_rot|clock_jump|clock_drift|transfer_leader|force_snapshot|compact|rebalance|add_node|remove_node|wipe_node|zombie_client" doc:"kill: SIGKILL, restarted after for. pause: SIGSTOP, resumed after for. partition: cut off on the network, healed after for."`
	Shape  string        `yaml:"shape" default:"" enum:"isolate|halves" later:"ring|bridge|one_way|client_side" doc:"Of a partition: isolate cuts the target from every other node; clients still reach it. halves parts the nodes, the target on the smaller side, and lets half of the clients reach only one side each."`
	Target FaultTarget   `yaml:"target" required:"true" doc:"leader(topic/partition), follower(topic/partition), node(n), txn_coordinator (of the first producer's or worker's transactions), group_coordinator (of the first group), worker(n) (a member of the first group: kill lets it vanish, pause cuts it off while another takes its place) or all; the role is looked up when the fault begins; a partition without a leader is waited for, 10 s at most."`
	For    time.Duration `yaml:"for" default:"5s" doc:"How long until it is undone."`
	Every  time.Duration `yaml:"every" default:"0s" doc:"The fault comes again, this long after it began. Only with times."`
	Times  int           `yaml:"times" default:"1" min:"1" max:"1000" doc:"How often it comes in all."`
	Only   Guarantee     `yaml:"only" default:"" enum:"at_most_once|at_least_once|idempotent|transactional|two_phase_commit" doc:"The fault belongs to cells of this guarantee. Default: to all."`
	_      struct{}      `later:"tail|from|idle_share|inject|heal|prove|timeout"`
}

// Checks say how the history is judged.
type Checks struct {
	Rules    []string `yaml:"rules" scalar:"default" doc:"default (those of the guarantee) or a list of rule names, of those below."`
	MinAcked int64    `yaml:"min_acked" default:"1000" min:"0" doc:"Fewer acknowledged messages than this make the verdict inconclusive."`
	Tolerate []string `yaml:"tolerate" doc:"Rules that are reported but do not fail the run."`
}

// Runs say how often a cell is repeated.
type Runs struct {
	Repeats      int           `yaml:"repeats" default:"6" min:"1" max:"1000" doc:"Trials of each cell. 3: range only. 6 is the least that gives a 95 % interval."`
	Order        string        `yaml:"order" default:"interleaved" enum:"interleaved" doc:"Each block runs every cell once, in an order shuffled from the seed."`
	FreshCluster bool          `yaml:"fresh_cluster" default:"true" doc:"Each trial gets a cluster of its own. false: one cluster a system for all trials, with topics of its own for each, removed afterwards; scenarios of one call share it."`
	BlockCluster bool          `yaml:"block_cluster" default:"false" doc:"With fresh_cluster: false: each block has a cluster of its own, so that blocks differ by their clusters too."`
	WarmCluster  time.Duration `yaml:"warm_cluster" default:"0s" doc:"Full load on a cluster before its first trial, not measured: a system that compiles while it runs is slow in its first minutes."`
	Cooldown     time.Duration `yaml:"cooldown" default:"1s" doc:"Pause between trials."`
	MaxTime      time.Duration `yaml:"max_time" default:"60m" doc:"Blocks that would end later are not begun; the report says so."`
}

// ReportWants lists the files a run leaves.
type ReportWants struct {
	Formats []string `yaml:"formats" each:"html|json|hlog|md|gobench|junit" doc:"html json hlog md gobench junit. Default: all."`
}

// A Cell is one combination of a scenario's sweeps.
type Cell struct {
	Scenario
	Index int
	Axes  []Axis // what was swept and this cell's value, in file order
}

// An Axis is one swept key and the value that a cell has on it.
type Axis struct {
	Key   string // dotted path, as -set takes it
	Value string // as written in the file
}
