// Package explore runs deciding code through every order of events that a bounded world allows, and shows the shortest way to a
// broken invariant.
//
// It knows actors (machines of the form state, event → state, effects, with a durable log each), a network that delivers in any order,
// loses and repeats, crashes that leave only what was durable, leaders that do not know yet that they were deposed, and breadth-first
// search. It refuses to know any protocol: what the actors are, what must hold and when a run has ended is said by a System; time,
// goroutines and I/O do not exist in it.
//
// The network is the set of all messages ever sent. Each may be delivered at any time, never, or again: this is every loss, every delay
// and every repeat at once, in fewer states than counting them would take. A machine may not rest on this network's memory, though: from
// every state that was reached, with all messages lost and no further fault, there must be a way to an end.
package explore

// Local is what one actor knows and a crash takes away: the state of its machine. It is immutable. String is canonical: two values are
// equal exactly if their strings are; traces print it when it changes, so it is short.
type Local interface{ String() string }

// Record is what an actor appends to its durable log. Canonical like Local.
type Record interface{ String() string }

// Body is what a message says. Canonical like Local; From and To of a message are not part of it.
type Body interface{ String() string }

// Event is what happens to an actor: a Message, a Durable, or one of the actor's own (a timer that it set, a choice of a client).
type Event interface{ String() string }

// Lazy marks an own event that only says again what was said before, such as a timer that resends. While messages are kept it has nothing
// to add; it happens where the search asks whether a world that lost its messages comes to an end.
type Lazy interface{ Lazy() }

// Mishap marks an own event that need not ever happen, such as the end of a client: nothing may depend on it, as on no other fault.
type Mishap interface{ Mishap() }

// ID is the place of an actor in System.Actors.
type ID int

// Message is the event that a message arrives.
type Message struct {
	From, To ID
	Body     Body
}

// String is the body alone: traces print sender and receiver beside it.
func (m Message) String() string { return m.Body.String() }

// Durable is the event that the oldest record which the actor appended and was not told about is durable now.
type Durable struct{ Record Record }

func (d Durable) String() string { return "durable: " + d.Record.String() }

// Effect is what an actor does: Send or Append. A timer is no effect here: what may happen by itself is what Actor.Own lists.
type Effect interface{ effect() }

// Send puts a message into the network, which holds it once. Confirm: only an incarnation that leads still sends it, because it asks a
// quorum first.
type Send struct {
	To      ID
	Body    Body
	Confirm bool
}

// Append asks for a record to become durable, after all that were appended before. The actor gets a Durable event when it is, unless it
// crashes first; then the record may be durable or not.
type Append struct{ Record Record }

func (Send) effect()   {}
func (Append) effect() {}

// Actor is one machine in a System. All methods are functions of their arguments: the search calls each once for the same arguments and
// remembers the answer. Neither arguments nor results are changed afterwards by anybody.
type Actor interface {
	// Name is how traces call the actor.
	Name() string
	// Boot is the state of the actor that starts with the log, and what it does at once. The term is 1 at first and grows by one with
	// every crash and every deposition, as a leader's does.
	Boot(term int, log []Record) (Local, []Effect)
	// Own lists what may happen to the actor by itself, in a fixed order: timers that are set, a client's next move.
	Own(s Local) []Event
	// Handle is the machine. An event that changes nothing and has no effects is not a step.
	Handle(s Local, e Event) (Local, []Effect)
}

// Mortal actors crash; an actor that is not Mortal, such as a client whose end is one of its own events, does not.
type Mortal interface {
	// Deposable says that the actor is a leader, which another may succeed while it still acts, without ever getting anything durable.
	Deposable() bool
}

// System is a closed world: actors, and what must hold.
type System struct {
	Name   string
	Actors []Actor
	// Always must hold in every state. Nil error: it holds. The error's text names the invariant that is broken.
	Always func(v View) error
	// Step must hold between a state and the one after it, such as that a number never goes back. May be nil.
	Step func(before, after View) error
	// Ended says that everything that was begun has ended. From every state there must be a way to such a state without further faults
	// and without any message that was sent before.
	Ended func(v View) bool
	// Rest must hold in every state in which Ended is true. May be nil.
	Rest func(v View) error
	// Spent says that a message can do nothing any more in this state nor in any later one; the network forgets it. Fewer states are the
	// only gain, a wrong answer hides faults. May be nil.
	Spent func(v View, m Message) bool
	// Digest sums up one actor for the invariants: worked out once per distinct actor state and log, where invariants are asked about
	// every state. May be nil.
	Digest func(id ID, log, pending []Record, l Local) any
}

// View is one state of a System, valid during the call that it is given to.
type View interface {
	// Local is the state of the newest incarnation of the actor.
	Local(ID) Local
	// Log holds the durable records of the actor.
	Log(ID) []Record
	// Pending holds what the newest incarnation appended and what is not durable yet.
	Pending(ID) []Record
	// Deposed is the state of an incarnation that was succeeded and still acts; nil if there is none.
	Deposed(ID) Local
	// Term counts the incarnations of the actor, from 1.
	Term(ID) int
	// Digest is what System.Digest said of the actor.
	Digest(ID) any
	// Flying says whether some message that fits is in flight.
	Flying(fits func(Message) bool) bool
}
