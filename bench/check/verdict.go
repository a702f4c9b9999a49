// Package check judges the history of a trial: one rule a file, each counting its anomalies with a denominator and witnesses.
// It knows histories and what each guarantee promises; it knows nothing of clients, brokers or faults, and trusts nothing but the files.
package check

import (
	"fmt"
	"strings"
	"time"

	"gopherlog/bench/replicas"
	"gopherlog/bench/scenario"
)

// A Status is the judgement of a rule or of a whole history.
type Status string

// Judgements.
const (
	Pass         Status = "pass"
	Violated     Status = "violated"
	Inconclusive Status = "inconclusive" // cannot be said: too few acknowledgements, incomplete drain, ...
	NotChecked   Status = "not_checked"  // of a rule: the history holds nothing that it could look at. Neither passed nor violated
)

// A Demand is what a guarantee asks of a rule.
type Demand string

// Demands.
const (
	MustBeZero    Demand = "must_be_zero"
	Measured      Demand = "measured" // counted and reported
	NotApplicable Demand = "not_applicable"
)

// Options of Judge.
type Options struct {
	Guarantee scenario.Guarantee
	Rules     []string // nil = all rules
	Tolerate  []string // rules that are reported but do not decide
	MinAcked  int64
	Drained   bool     // the final read reached every recorded end
	Dropped   int64    // records that did not get into the history: then nothing is proven absent, and no zero is one
	Expires   bool     // the topics' retention may delete; otherwise a log that starts above 0 has lost its head
	Invalid   []string // what else makes the verdict inconclusive: an unproven fault, an interruption, ...

	RawDrained bool             // the second, uncommitted final read reached every recorded end
	Transforms []Transform      // what workers made of what; nil: no pipeline
	TxnTimeout time.Duration    // after which a broker ends an open transaction by itself; 0: unknown, C11 is not checked
	Grace      time.Duration    // how long after a fault, or after the timeout, things may still be on their way (B12, C11, D2)
	Votes      *Votes           // what coordinator and participants of a voted commit wrote down; nil: D1 to D6 are not checked
	Replicas   *replicas.Report // what the replicas have on disk; nil: A8 and A12 are not checked
	Require    []string         // rules without evidence that make the verdict inconclusive; nil: those of the guarantee
}

// A Transform is a pipeline: members of Group read From, and make one message in To of each.
type Transform struct{ Group, From, To string }

// A Verdict is the judgement of a trial. A violation outranks doubt: what was seen was seen.
type Verdict struct {
	Status  Status       `json:"status"`
	Reasons []string     `json:"reasons,omitempty"` // why violated or inconclusive
	Rules   []RuleResult `json:"rules"`
	Totals  Totals       `json:"totals"`
}

// Totals are the counts that give the rules their denominators.
type Totals struct {
	Sent       int64 `json:"sent"`
	Acked      int64 `json:"acked"`
	Failed     int64 `json:"failed"`
	Unknown    int64 `json:"unknown"`
	Open       int64 `json:"open"`       // sent, no outcome recorded
	Read       int64 `json:"read"`       // deliveries during the run
	Drained    int64 `json:"drained"`    // deliveries of the final read
	Recovered  int64 `json:"recovered"`  // without acknowledgement, yet in the log
	Lost       int64 `json:"lost"`       // acknowledged, proven absent (A4 + A6)
	Unseen     int64 `json:"unseen"`     // acknowledged, neither read nor proven absent (A5)
	Duplicates int64 `json:"duplicates"` // extra copies (A2)
	Expired    int64 `json:"expired"`    // acknowledged, and deleted by retention before the final read
	Lanes      int   `json:"lanes"`
	Partitions int   `json:"partitions"`

	Txns          int64 `json:"txns,omitempty"` // transactions with at least one message, or that were begun
	TxnsCommitted int64 `json:"txns_committed,omitempty"`
	TxnsAborted   int64 `json:"txns_aborted,omitempty"`
	TxnsInDoubt   int64 `json:"txns_in_doubt,omitempty"`
	Readable      int64 `json:"readable,omitempty"`    // messages of transactions that the committed final read found
	GroupReads    int64 `json:"group_reads,omitempty"` // deliveries to members of groups
}

// Judged counts the acknowledged messages of which the final read could tell whether they are there: all but what retention deleted before it.
func (t Totals) Judged() int64 { return t.Acked - t.Expired }

// A RuleResult is what one rule found.
type RuleResult struct {
	ID          string           `json:"id"`
	Name        string           `json:"name"`
	Demand      Demand           `json:"demand"`
	Status      Status           `json:"status"`
	Count       int64            `json:"count"`
	Denominator int64            `json:"denominator"`
	Of          string           `json:"of"`      // what the denominator counts
	Upper95     float64          `json:"upper95"` // upper bound of the share, one-sided 95 %
	Shapes      map[string]int64 `json:"shapes,omitempty"`
	Examples    []Example        `json:"examples,omitempty"` // at most MaxExamples
	Tolerated   bool             `json:"tolerated,omitempty"`
	Why         string           `json:"why,omitempty"` // not checked: what is missing
}

// MaxExamples is how many witnesses a rule keeps; counts are complete.
const MaxExamples = 32

// An Example is one witness of an anomaly.
type Example struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`   // -1 where there is none
	Producer  int     `json:"producer"` // -1 where there is none
	Session   int     `json:"session"`
	Sequence  uint64  `json:"sequence"`
	What      string  `json:"what"`
	Seconds   float64 `json:"seconds"` // when, on the run's clock; -1 unknown
}

// Where names the place and the message of a witness, as far as it has them.
func (e Example) Where() string {
	var out []string
	if e.Topic != "" {
		out = append(out, fmt.Sprintf("%s/%d", e.Topic, e.Partition))
		if e.Offset >= 0 {
			out[0] += fmt.Sprintf(" offset %d", e.Offset)
		}
	}
	if e.Topic != "" && e.Producer >= 0 && !strings.HasPrefix(e.What, "group ") {
		out = append(out, fmt.Sprintf("producer %d session %d sequence %d", e.Producer, e.Session, e.Sequence))
	}
	return strings.Join(out, ", ")
}

func (e Example) String() string {
	if at := e.Where(); at != "" {
		return at + ": " + e.What
	}
	return e.What
}
