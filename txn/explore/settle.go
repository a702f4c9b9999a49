package explore

// settle asks of every state that was reached: if all its messages are lost and no further fault happens, is there a way to an end? States
// that differ in their messages only are asked once. A way that exists stays one if some of the messages arrive after all, because no
// message must be delivered. The invariants must hold on these ways too.
func (x *search) settle() {
	q := &settling{search: x, good: newStore()}
	defer func() { x.result.Bytes += q.good.size() }()
	var s state
	for i := range uint32(x.seen.len()) {
		if i%1024 == 0 && x.spent() {
			x.result.Complete = false
			return
		}
		s.decode(x.seen.bytes(i), len(x.sys.Actors))
		s.net = s.net[:0]
		if q.ends(s) {
			continue
		}
		lost := Step{Fault: true, Actor: "network", Event: "loses every message"}
		what, way := "stuck: with all messages lost and no further fault nothing leads to an end", append(x.trace(i), lost)
		if q.broken != nil {
			what, way = q.broken.Error(), append(way, q.way...)
		}
		x.result.Broken = &Violation{what, way}
		return
	}
}

// settling is a depth-first search for an end. Every state on a way that was found is good, and ends every later way that meets it.
type settling struct {
	*search
	good   *store
	key    []byte
	tour   map[string]bool
	broken error // an invariant, at the end of way
	way    Trace
}

func (q *settling) ends(s state) bool {
	q.key = s.encode(q.key[:0])
	if q.good.has(q.key) {
		return true
	}
	q.tour = map[string]bool{}
	return q.visit(s) && q.broken == nil
}

func (q *settling) visit(s state) bool {
	b := s.encode(nil)
	if q.good.has(b) {
		return true
	}
	if q.tour[string(b)] {
		return false
	}
	q.tour[string(b)] = true
	q.asked.s = s
	if q.broken = q.sys.Always(&q.asked); q.broken != nil {
		return false
	}
	found := q.sys.Ended(&q.asked)
	if !found {
		q.steps(s, func(st step) bool {
			if !st.move.fault {
				found = q.visit(q.apply(s, st, state{}))
			}
			if q.broken != nil {
				q.way = append(Trace{q.tell(s, st)}, q.way...)
			}
			return !found && q.broken == nil
		})
	}
	if found {
		q.good.add(b, 0, 0)
	}
	return found
}
