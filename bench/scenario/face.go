package scenario

import (
	"errors"
	"time"
)

// Expect is one line of the expect section, parsed.
type Expect struct {
	Raw    string
	Metric string  // "visible.p99", "violations", ...
	A, B   string  // of ratio(metric, a, b): two values of one swept key; else empty
	Op     string  // < <= > >= == !=
	Value  float64 // seconds for durations, else a plain number
	Unit   Unit
	Phase  string // "" = the whole measured part
}

// Unit is the dimension of a metric.
type Unit string

// Units of metrics.
const (
	UnitCount   Unit = "count"
	UnitSeconds Unit = "seconds"
	UnitRate    Unit = "per_second"
	UnitShare   Unit = "share"
)

// Problems is every mistake of one scenario file, in file order.
type Problems []Problem

// A Problem is one mistake and where it stands.
type Problem struct {
	File         string
	Line, Column int // from 1; 0 where the mistake has no place in the file
	Path         string
	Message      string
	Hint         string // "did you mean ..."; may be empty
	Excerpt      string // the source line and a caret under it; may be empty
}

// Error lists every problem, each with its place and excerpt.
func (p Problems) Error() string { panic("soon") }

// Parse reads a scenario file, the files it extends, and the -set overrides, and reports every problem at once as Problems.
func Parse(path string, sets []string) (*Scenario, error) { panic("soon") }

// Expand lists every combination of the sweeps, in file order, last sweep fastest. A scenario without sweeps has one cell.
func (s *Scenario) Expand() []Cell { panic("soon") }

// YAML is the resolved scenario as a file that Parse reads to the same cells; it goes into the run directory.
func (s *Scenario) YAML() []byte { panic("soon") }

// Label is a short name of the cell: the values of its axes, or the scenario's name where nothing is swept.
func (c Cell) Label() string { panic("soon") }

// Holds says whether a measured value (seconds, count, share, per second) meets the line.
func (e Expect) Holds(v float64) bool { panic("soon") }

// A Plan is what running a scenario would take.
type Plan struct {
	Cells, Repeats, Trials int
	Trial                  time.Duration // load plus typical overhead, of the longest cell
	Total                  time.Duration
	Messages               int64 // offered in all, 0 with a closed model
	BrokerBytes            int64 // written by all replicas of the largest trial
	HistoryBytes           int64 // left in the run directory
	Shrunk                 bool  // max_time allows fewer repeats than asked
}

// Plan estimates time and size of all trials of s.
func (s *Scenario) Plan() Plan { panic("soon") }

// Schema is the JSON schema of a scenario file, for editors.
func Schema() []byte { panic("soon") }

// Docs is docs/SCENARIOS.md.
func Docs() []byte { panic("soon") }

var errLater = errors.New("not supported yet")

func oneOf(word string, words []string) string { panic("soon") }
