package load

import (
	"time"

	"gopherlog/bench/hdr"
	"gopherlog/bench/history"
)

// An Outcome is everything that a trial measured.
type Outcome struct {
	Zero     time.Time
	Phases   []PhaseCounts
	Seconds  []Tick // one per interval
	Ack      *hdr.Series
	Visible  *hdr.Series
	Commit   *hdr.Series // from when the end of a transaction was due until it was committed; nil without transactions
	EndTxn   *hdr.Series // the same from when the broker was asked
	EndToEnd *hdr.Series // from when the input of a transform was due until its output was read
	Late     *hdr.Series // how long after its intended time each message was handed to the client
	Failures *hdr.Series // time until a message failed or was given up
	Outages  []Outage
	Stalls   []Outage // of the visible reader
	Paces    []Pace
	Drain    Drain
	Settings []Setting
	Errors   []ErrorCount
	History  history.Stats
	Client   ClientUse
	Model    string // open or closed
	Partial  bool   // interrupted
	Invalid  []string
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

	Txns          int64 // begun in the phase
	TxnsCommitted int64 // due to end in it
	TxnsAborted   int64
	TxnsInDoubt   int64 // its end got no clear answer, or its worker died before it asked for one
	Committed     int64 // records of committed transactions
	Transformed   int64 // inputs of which a group made an output that counts
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
	Waiting int64 // without outcome at the end of the interval

	Committed int64 // records of transactions that were committed
	Aborted   int64 // acknowledged records of transactions that were aborted: no reader of committed records will see them
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
	Raw        bool   // a second read, which also reads what was never committed, was complete; only with transactions
}

// A DrainPartition says how far one partition was read.
type DrainPartition struct {
	Topic     string
	Partition int32
	Target    int64 // end that had to be reached; -1 where no broker told it
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
