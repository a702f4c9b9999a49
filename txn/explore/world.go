package explore

import "encoding/binary"

// world turns a System into numbers. Everything that an actor, a record or a message can be is interned once, and what a node does with an
// event is worked out once and remembered: the search itself moves integers.
type world struct {
	sys     System
	limits  Limits
	mortal  []bool
	leader  []bool
	locals  table[Local]
	records table[Record]
	flights table[Message]
	nodes   []node
	nodeIDs map[string]uint32
	moves   map[uint64][]move // by node and trigger
	handled map[uint64]handled
	memo    int64 // bytes of what is remembered, about
}

// node is one actor with its durable log, as an element of a state.
type node struct {
	actor   ID
	term    int
	local   uint32
	deposed uint32 // a local, plus one; 0 is none
	log     []Record
	pending []Record
	logIDs  []uint32
	pendIDs []uint32
	digest  any
}

type triggerKind uint8

const (
	onMessage triggerKind = iota
	onMessageDeposed
	onOwn
)

// move is one thing that a node may do on a trigger: a step, as seen by everybody else.
type move struct {
	to    uint32 // node
	sends []uint32
	fault bool // nothing may depend on it
	crash bool // counts as one of Limits.Crashes
	lazy  bool // says nothing new
	account
}

// account is what traces tell of a move; the words are found when a trace is printed.
type account struct {
	event      Event    // nil: a crash by itself
	does       []Effect // what the event led to, as far as it was done
	boots      []Effect // what the next incarnation does at once, after a crash
	byDeposed  bool
	depose     bool
	keep, lose uint8 // crash: pending records that are durable, and that are not
}

type handled struct {
	local   uint32
	effects []Effect
}

// maxActors fit with the receiver into the byte that keeps equal messages apart.
const maxActors = 16

// table interns canonical values.
type table[T interface{ String() string }] struct {
	ids    map[string]uint32
	values []T
	key    []byte // reused
}

func (t *table[T]) id(scope byte, v T) uint32 {
	t.key = append(append(t.key[:0], scope), v.String()...)
	if id, ok := t.ids[string(t.key)]; ok {
		return id
	}
	if t.ids == nil {
		t.ids = map[string]uint32{}
	}
	id := uint32(len(t.values))
	t.ids[string(t.key)], t.values = id, append(t.values, v)
	return id
}

func newWorld(s System, l Limits) *world {
	fits("actors", len(s.Actors), maxActors)
	w := &world{sys: s, limits: l, nodeIDs: map[string]uint32{}, moves: map[uint64][]move{}, handled: map[uint64]handled{}}
	for _, a := range s.Actors {
		m, mortal := a.(Mortal)
		mortal = mortal && (l.Only == "" || l.Only == a.Name())
		w.mortal = append(w.mortal, mortal)
		w.leader = append(w.leader, mortal && m.Deposable())
	}
	return w
}

// start is the state in which every actor has just begun.
func (w *world) start() state {
	var st state
	for i := range w.sys.Actors {
		local, fx := w.sys.Actors[i].Boot(1, nil)
		n := node{actor: ID(i), term: 1, local: w.locals.id(byte(i), local)}
		id, sends := w.perform(n, fx, false)
		st.nodes = append(st.nodes, id)
		st.net = put(st.net, sends)
	}
	return st
}

func (w *world) intern(n node) uint32 {
	key := make([]byte, 0, 64)
	key = append(key, byte(n.actor), byte(n.term))
	key = binary.AppendUvarint(key, uint64(n.local))
	key = binary.AppendUvarint(key, uint64(n.deposed))
	key = binary.AppendUvarint(key, uint64(len(n.logIDs)))
	for _, r := range n.logIDs {
		key = binary.AppendUvarint(key, uint64(r))
	}
	for _, r := range n.pendIDs {
		key = binary.AppendUvarint(key, uint64(r))
	}
	if id, ok := w.nodeIDs[string(key)]; ok {
		return id
	}
	n.log, n.pending = w.recordsOf(n.logIDs), w.recordsOf(n.pendIDs)
	if w.sys.Digest != nil {
		n.digest = w.sys.Digest(n.actor, n.log, n.pending, w.locals.values[n.local])
	}
	id := uint32(len(w.nodes))
	w.nodes, w.nodeIDs[string(key)] = append(w.nodes, n), id
	w.memo += int64(2*len(key) + 256 + 20*(len(n.log)+len(n.pending)))
	return id
}

func (w *world) recordsOf(ids []uint32) []Record {
	out := make([]Record, len(ids))
	for i, id := range ids {
		out[i] = w.records.values[id]
	}
	return out
}

// perform does the effects for the node; those of a deposed incarnation never become durable.
func (w *world) perform(n node, fx []Effect, deposed bool) (id uint32, sends []uint32) {
	n.pendIDs = append([]uint32(nil), n.pendIDs...)
	for _, f := range fx {
		switch f := f.(type) {
		case Send:
			if !f.Confirm || !deposed {
				sends = append(sends, w.flights.id(byte(n.actor)<<4|byte(f.To), Message{From: n.actor, To: f.To, Body: f.Body}))
			}
		case Append:
			if !deposed {
				n.pendIDs = append(n.pendIDs, w.records.id(byte(n.actor), f.Record))
			}
		}
	}
	return w.intern(n), sends
}

// handle asks the machine, once per local state and event.
func (w *world) handle(actor ID, local uint32, tag uint64, e Event) handled {
	key := uint64(local)<<32 | tag
	if h, ok := w.handled[key]; ok {
		return h
	}
	after, fx := w.sys.Actors[actor].Handle(w.locals.values[local], e)
	h := handled{local: w.locals.id(byte(actor), after), effects: fx}
	w.handled[key] = h
	return h
}

// on works out what a node may do with an event: all of it, or, if it is mortal, the first effects and then a crash.
func (w *world) on(n node, deposed bool, tag uint64, e Event, out []move) []move {
	local := n.local
	if deposed {
		local = n.deposed - 1
	}
	h := w.handle(n.actor, local, tag, e)
	after := n
	if deposed {
		after.deposed = h.local + 1
	} else {
		after.local = h.local
	}
	id, sends := w.perform(after, h.effects, deposed)
	_, mishap := e.(Mishap)
	_, lazy := e.(Lazy)
	out = append(out, move{to: id, sends: sends, fault: mishap, lazy: lazy, account: account{event: e, does: h.effects, byDeposed: deposed}})
	if !w.mortal[n.actor] || w.limits.Crashes == 0 || deposed {
		return out
	}
	for k := 1; k < len(h.effects); k++ {
		half, sends := w.perform(after, h.effects[:k], false)
		if len(sends) == 0 {
			continue // nobody saw anything: the same as a crash before
		}
		for keep := 0; keep <= len(w.nodes[half].pendIDs); keep++ {
			m := w.crash(w.nodes[half], keep, false)
			m.sends = append(append([]uint32(nil), sends...), m.sends...)
			m.event, m.does = e, h.effects[:k]
			out = append(out, m)
		}
	}
	return out
}

// crash starts the next incarnation. keep of the pending records are durable, in order.
func (w *world) crash(n node, keep int, depose bool) move {
	log := append(append([]uint32(nil), n.logIDs...), n.pendIDs[:keep]...)
	local, fx := w.sys.Actors[n.actor].Boot(n.term+1, w.recordsOf(log))
	next := node{actor: n.actor, term: n.term + 1, local: w.locals.id(byte(n.actor), local), logIDs: log}
	if depose {
		next.deposed = n.local + 1
	}
	id, sends := w.perform(next, fx, false)
	return move{to: id, sends: sends, fault: true, crash: true, account: account{
		boots: fx, depose: depose, keep: uint8(keep), lose: uint8(len(n.pendIDs) - keep),
	}}
}

const (
	tagMessage uint64 = iota << 28
	tagDurable
	tagOwn
)

// deliver is what the node does with a message; deposed: its old incarnation does.
func (w *world) deliver(id, flight uint32, deposed bool) []move {
	kind := onMessage
	if deposed {
		kind = onMessageDeposed
	}
	key := uint64(id)<<32 | uint64(kind)<<28 | uint64(flight)
	if m, ok := w.moves[key]; ok {
		return m
	}
	m := w.on(w.nodes[id], deposed, tagMessage|uint64(flight), w.flights.values[flight], nil)
	w.remember(key, m)
	return m
}

func (w *world) remember(key uint64, m []move) {
	w.moves[key] = m
	w.memo += 32 + 144*int64(cap(m))
}

// alone is what the node may do without a message.
func (w *world) alone(id uint32) []move {
	key := uint64(id)<<32 | uint64(onOwn)<<28
	if m, ok := w.moves[key]; ok {
		return m
	}
	n := w.nodes[id]
	var out []move
	if len(n.pendIDs) > 0 {
		after := n
		after.logIDs = append(append([]uint32(nil), n.logIDs...), n.pendIDs[0])
		after.pendIDs = n.pendIDs[1:]
		out = w.on(after, false, tagDurable|uint64(n.pendIDs[0]), Durable{n.pending[0]}, out)
	}
	out = w.ownEvents(n, false, out)
	if n.deposed > 0 {
		out = w.ownEvents(n, true, out)
	}
	if w.mortal[n.actor] && w.limits.Crashes > 0 {
		for keep := 0; keep <= len(n.pendIDs); keep++ {
			if w.leader[n.actor] && w.limits.Depositions {
				out = append(out, w.crash(n, keep, true))
			}
			if !w.limits.Depositions || !w.leader[n.actor] {
				out = append(out, w.crash(n, keep, false))
			}
		}
	}
	w.remember(key, out)
	return out
}

func (w *world) ownEvents(n node, deposed bool, out []move) []move {
	local := n.local
	if deposed {
		local = n.deposed - 1
	}
	for i, e := range w.sys.Actors[n.actor].Own(w.locals.values[local]) {
		out = w.on(n, deposed, tagOwn|uint64(i), e, out)
	}
	return out
}
