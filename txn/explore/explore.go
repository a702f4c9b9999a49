package explore

import "time"

// Limits bound a search. What is zero does not happen or is not limited.
type Limits struct {
	Crashes     int           // crashes and depositions in all; each may come after every single effect
	Depositions bool          // crashes may leave the old incarnation of a Deposable actor acting
	Losses      bool          // every message may be lost, once per time it is sent
	Repeats     bool          // every message may be delivered once more, at any later time, once per time it is sent
	States      int           // stop after so many states: the result is not Complete
	Time        time.Duration // stop after so long: the result is not Complete
}

// Result is what a search found.
type Result struct {
	System   string
	States   int // distinct states
	Steps    int // steps between them, those to known states included
	Depth    int // steps of the longest of the shortest ways
	Ended    int // states in which everything has ended
	Elapsed  time.Duration
	Bytes    int64      // memory that the search holds at its end
	Complete bool       // every state within the limits was visited
	Broken   *Violation // nil: nothing was found
}

// Violation is a broken invariant, with the shortest way to it.
type Violation struct {
	What  string
	Trace Trace
}

// Trace is a way through a System from its start.
type Trace []Step

// Step is one line of a trace.
type Step struct {
	Fault  bool   // a crash, a loss, a repeat
	Actor  string // to whom it happens
	Event  string
	Does   []string // effects, in order, as far as a crash let them happen
	Change string   // the actor's state after it; empty if it is as before
}

// Explore visits every state of the system within the limits, breadth first, and stops at the first broken invariant. It uses one
// goroutine, the caller's, and is deterministic apart from Limits.Time.
func Explore(s System, l Limits) Result { panic("explore: being written") }
