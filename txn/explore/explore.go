package explore

import (
	"fmt"
	"slices"
	"time"
)

// Limits bound a search. What is zero does not happen or is not limited.
type Limits struct {
	Crashes     int           // crashes and depositions in all; each may come after every single effect
	Depositions bool          // a Deposable actor is succeeded while its old incarnation acts on; a crash is one that acts no more
	Only        string        // the name of the one actor that crashes; empty: all that are Mortal
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
	Bytes    int64      // memory that the search holds at its end, about
	Complete bool       // every state within the limits was visited
	Broken   *Violation // nil: nothing was found
}

// String is one line for a log.
func (r Result) String() string {
	verdict := "nothing found"
	if r.Broken != nil {
		verdict = fmt.Sprintf("found in %d steps: %s", len(r.Broken.Trace), r.Broken.What)
	}
	extent := "all"
	if !r.Complete {
		extent = "not all"
	}
	return fmt.Sprintf("%s: %d states (%s), %d steps, depth %d, %d ended, %v, %.0f states/s, %d MiB: %s", r.System, r.States, extent, r.Steps,
		r.Depth, r.Ended, r.Elapsed.Round(time.Millisecond), float64(r.States)/max(r.Elapsed.Seconds(), 1e-9), r.Bytes>>20, verdict)
}

// Violation is a broken invariant, with the shortest way to it.
type Violation struct {
	What  string
	Trace Trace
}

// search is one run of Explore.
type search struct {
	*world
	began  time.Time
	seen   *store
	result Result
	// buffers
	from, to      state
	key           []byte
	asked, before view
}

// Explore visits every state of the system within the limits, breadth first, and stops at the first broken invariant: its trace is as
// short as any. Then it asks of every state whether it leads to an end with all messages lost and no further fault. It uses the caller's
// goroutine only, and is deterministic apart from Limits.Time.
func Explore(s System, l Limits) Result {
	w := newWorld(s, l)
	x := &search{world: w, began: time.Now(), seen: newStore(), asked: view{world: w}, before: view{world: w}}
	x.result.System = s.Name
	x.run()
	if x.result.Broken == nil {
		x.settle()
	}
	x.result.States, x.result.Elapsed = x.seen.len(), time.Since(x.began)
	x.result.Bytes += x.seen.size() + w.memo
	return x.result
}

func (x *search) spent() bool {
	return x.limits.Time > 0 && time.Since(x.began) > x.limits.Time
}

func (x *search) run() {
	first := x.start()
	x.seen.add(first.encode(nil), 0, 0)
	if !x.judge(0, first) {
		return
	}
	layer := 1 // states below it are of the current depth
	for i := uint32(0); int(i) < x.seen.len(); i++ {
		if int(i) == layer {
			x.result.Depth, layer = x.result.Depth+1, x.seen.len()
		}
		if x.limits.States > 0 && x.seen.len() >= x.limits.States || i%1024 == 0 && x.spent() {
			return
		}
		x.from.decode(x.seen.bytes(i), len(x.sys.Actors))
		if !x.expand(i) {
			return
		}
	}
	x.result.Complete = true
}

// judge looks at a new state. False: an invariant is broken.
func (x *search) judge(i uint32, s state) bool {
	v := &x.asked
	v.s = s
	err := x.sys.Always(v)
	if err == nil && x.sys.Ended(v) {
		x.result.Ended++
		if x.sys.Rest != nil {
			err = x.sys.Rest(v)
		}
	}
	if err != nil {
		x.result.Broken = &Violation{err.Error(), x.trace(i)}
	}
	return err == nil
}

// expand visits every state one step after x.from, which is number i.
func (x *search) expand(i uint32) bool {
	ordinal, good := -1, true
	x.steps(x.from, func(st step) bool {
		ordinal++
		if st.move.lazy || x.idle(st) {
			return true
		}
		x.result.Steps++
		x.to = x.apply(x.from, st, x.to)
		x.key = x.to.encode(x.key[:0])
		n, fresh := x.seen.add(x.key, i, ordinal)
		if fresh && !x.judge(n, x.to) {
			good = false
		} else if n != i && x.sys.Step != nil {
			good = x.compare(i, ordinal)
		}
		return good
	})
	return good
}

func (x *search) compare(i uint32, ordinal int) bool {
	x.before.s, x.asked.s = x.from, x.to
	err := x.sys.Step(&x.before, &x.asked)
	if err != nil {
		t := x.trace(i)
		x.result.Broken = &Violation{err.Error(), append(t, x.describe(i, ordinal))}
	}
	return err == nil
}

// step is one way on from a state.
type step struct {
	at      ID
	move    *move
	message int // place in net; -1 none
}

// steps offers everything that may happen next, always in the same order, until offer says to stop.
func (x *search) steps(s state, offer func(step) bool) {
	crashes := 0
	for _, n := range s.nodes {
		crashes += x.nodes[n].term - 1
	}
	every := func(at ID, message int, moves []move) bool {
		for k := range moves {
			if moves[k].crash && crashes >= x.limits.Crashes {
				continue
			}
			if !offer(step{at, &moves[k], message}) {
				return false
			}
		}
		return true
	}
	for at, n := range s.nodes {
		if !every(ID(at), -1, x.alone(n)) {
			return
		}
	}
	for m, flight := range s.net {
		at := x.flights.values[flight].To
		n := s.nodes[at]
		if !every(at, m, x.deliver(n, flight, false)) || x.nodes[n].deposed > 0 && !every(at, m, x.deliver(n, flight, true)) {
			return
		}
	}
}

// idle says that the step leads from x.from to x.from.
func (x *search) idle(st step) bool {
	if st.move.to != x.from.nodes[st.at] {
		return false
	}
	for _, m := range st.move.sends {
		if _, found := slices.BinarySearch(x.from.net, m); !found {
			return false
		}
	}
	return true
}

// apply writes the state after the step into dst.
func (x *search) apply(s state, st step, dst state) state {
	dst.nodes = append(dst.nodes[:0], s.nodes...)
	dst.net = append(dst.net[:0], s.net...)
	dst.nodes[st.at] = st.move.to
	dst.net = put(dst.net, st.move.sends)
	if x.sys.Spent != nil {
		x.asked.s = dst
		dst.net = slices.DeleteFunc(dst.net, func(m uint32) bool { return x.sys.Spent(&x.asked, x.flights.values[m]) })
	}
	return dst
}
