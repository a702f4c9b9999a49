package voted

import (
	"fmt"

	"gopherlog/txn/explore"
	"gopherlog/txn/twopc"
)

// client runs its transactions one after the other: it writes one batch to each partition, waits until it is acknowledged, and asks for
// commit or abort. It does what real clients do: it repeats what is not answered, aborts what cannot commit, and takes a new epoch after
// that if its version needs one.
type client struct{ Setting }

// move is what the client waits for.
type move uint8

const (
	adding move = iota // version 0: AddPartitionsToTxn
	producing
	choosing
	committing
	aborting
	renewing // InitProducerId with the identity that it holds
	joining  // the same as a new instance
	finished
	dead // something that a client cannot go on from
)

// clientLocal is what the client knows and what it was told, by transaction.
type clientLocal struct {
	Txn    int
	Part   int
	Move   move
	Owner  twopc.Identity
	Told   string // per transaction: c committed, a aborted, ? neither
	Asked  uint16 // bit n: commit of transaction n was asked for
	Sick   bool   // version 0: after this abort a new epoch is needed
	Reborn bool
}

var moves = [...]string{"adding", "producing", "choosing", "committing", "aborting", "renewing", "joining", "finished", "dead"}

func (l clientLocal) String() string {
	s := fmt.Sprintf("%s transaction %d as %s told %s asked%s", moves[l.Move], l.Txn, l.Owner, l.Told, set(l.Asked))
	if l.Move == adding || l.Move == producing {
		s += fmt.Sprintf(" p%d", l.Part)
	}
	if l.Sick {
		s += " sick"
	}
	if l.Reborn {
		s += " reborn"
	}
	return s
}

func (client) Name() string { return "client" }

func (c client) Boot(int, []explore.Record) (explore.Local, []explore.Effect) {
	return c.begin(clientLocal{Owner: firstEpoch.Owner, Told: ""})
}

// begin starts the next transaction, if there is one left.
func (c client) begin(l clientLocal) (explore.Local, []explore.Effect) {
	if l.Txn = len(l.Told); l.Txn == c.Transactions {
		l.Move = finished
		return l, nil
	}
	l.Part, l.Told = c.first(l.Txn), l.Told+"?"
	return c.touch(l)
}

// first is the first partition that a transaction writes to.
func (s Setting) first(txn int) int {
	if s.Narrow && txn > 0 {
		return 1
	}
	return 0
}

// touch goes on to partition l.Part.
func (c client) touch(l clientLocal) (explore.Local, []explore.Effect) {
	switch {
	case l.Part == c.Partitions:
		l.Move = choosing
	case c.Version < 2:
		l.Move = adding
	default:
		l.Move = producing
	}
	return l, c.ask(l)
}

// ask sends what the client waits for the answer of.
func (c client) ask(l clientLocal) []explore.Effect {
	req := clientRequest(l.Txn, int(l.Move)*10+l.Part)
	to, body := coordinatorID, explore.Body(nil)
	switch l.Move {
	case adding:
		body = add{req, l.Owner, l.Part}
	case producing:
		to, body = partitionID(l.Part), produce{l.Txn, l.Owner}
	case committing, aborting:
		body = end{req, l.Owner, l.Move == committing}
	case renewing:
		body = initialise{req, l.Owner}
	case joining:
		body = initialise{req, twopc.Nobody}
	default:
		return nil
	}
	return []explore.Effect{explore.Send{To: to, Body: body}}
}

func (c client) Own(local explore.Local) []explore.Event {
	l := local.(clientLocal)
	var out []explore.Event
	switch l.Move {
	case choosing:
		out = append(out, own("decides to commit"), own("decides to abort"))
	case finished, dead:
		return nil
	default:
		out = append(out, again("repeats its request"))
	}
	if c.Replaced && !l.Reborn {
		out = append(out, mishap("is replaced by a new instance"))
	}
	return out
}

func (c client) Handle(local explore.Local, e explore.Event) (explore.Local, []explore.Effect) {
	l := local.(clientLocal)
	switch e := e.(type) {
	case own:
		switch e {
		case "decides to commit":
			l.Move, l.Asked = committing, l.Asked|1<<l.Txn
		case "decides to abort":
			l.Move = aborting
		}
		return l, c.ask(l)
	case again:
		return l, c.ask(l)
	case mishap:
		l.Move, l.Reborn, l.Sick = joining, true, false
		return l, c.ask(l)
	case explore.Message:
		switch m := e.Body.(type) {
		case answer:
			if m.Request == clientRequest(l.Txn, int(l.Move)*10+l.Part) {
				return c.answered(l, m)
			}
		case produced:
			if l.Move == producing && m.Txn == l.Txn && m.Part == l.Part {
				return c.produced(l, m)
			}
		}
	}
	return l, nil
}

func (c client) produced(l clientLocal, m produced) (explore.Local, []explore.Effect) {
	switch m.Result {
	case twopc.Done:
		l.Part++
		return c.touch(l)
	case twopc.Fenced, twopc.BadID:
		return c.die(l)
	}
	return c.giveUp(l)
}

// giveUp aborts a transaction that failed before its end was asked for.
func (c client) giveUp(l clientLocal) (explore.Local, []explore.Effect) {
	l.Move, l.Sick = aborting, c.Version < 2
	return l, c.ask(l)
}

func (c client) die(l clientLocal) (explore.Local, []explore.Effect) {
	l.Move = dead
	return l, nil
}

func (c client) answered(l clientLocal, m answer) (explore.Local, []explore.Effect) {
	if m.Result == twopc.Busy {
		return l, nil
	}
	switch l.Move {
	case adding:
		return c.added(l, m)
	case committing, aborting:
		return c.endAnswered(l, m)
	case renewing, joining:
		if m.Result != twopc.Done {
			return c.die(l)
		}
		l.Owner = m.Owner
		return c.begin(l)
	}
	return l, nil
}

func (c client) added(l clientLocal, m answer) (explore.Local, []explore.Effect) {
	switch m.Result {
	case twopc.Done:
		l.Move = producing
		return l, c.ask(l)
	case twopc.Aborted:
		return c.giveUp(l)
	case twopc.Stale:
		l.Move = renewing
		return l, c.ask(l)
	}
	return c.die(l)
}

func (c client) endAnswered(l clientLocal, m answer) (explore.Local, []explore.Effect) {
	switch {
	case m.Result == twopc.Done && l.Move == committing:
		l.Told, l.Owner = l.tell('c'), m.Owner
		return c.begin(l)
	case m.Result == twopc.Done:
		l.Told, l.Owner = l.tell('a'), m.Owner
		if l.Sick {
			l.Move, l.Sick = renewing, false
			return l, c.ask(l)
		}
		return c.begin(l)
	case m.Result == twopc.Aborted && l.Move == committing:
		l.Told = l.tell('a')
		return c.giveUp(l)
	}
	return c.die(l)
}

// tell is Told with the outcome of the current transaction.
func (l clientLocal) tell(outcome byte) string {
	return l.Told[:l.Txn] + string(outcome) + l.Told[l.Txn+1:]
}
