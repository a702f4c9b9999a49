package kafkastyle

import (
	"fmt"

	"gopherlog/txn/explore"
	"gopherlog/txn/kafkatx"
)

// client runs its transactions one after the other: it writes one batch to each partition, waits until it is acknowledged, and asks for
// commit or abort. It does what real clients do: it repeats what is not answered, aborts what cannot commit, and asks for a new epoch
// after that if its version does not get one by ending.
type client struct{ Setting }

// move is what the client waits for.
type move uint8

const (
	adding move = iota // version 1: AddPartitionsToTxn
	producing
	choosing
	committing
	aborting
	renewing // InitProducerId with the epoch that it holds
	finished
	dead // something that a client cannot go on from
)

var moves = [...]string{"adding", "producing", "choosing", "committing", "aborting", "renewing", "finished", "dead"}

// clientLocal is what the client knows and what it was told, by transaction.
type clientLocal struct {
	Txn   int
	Part  int
	Move  move
	Epoch int16
	Seqs  [4]int32 // next sequence, by partition
	Told  string   // per transaction: c committed, a aborted, ? neither
	Asked uint16   // bit n: commit of transaction n was asked for
	Sick  bool     // version 1: after this abort a new epoch is needed
}

func (l clientLocal) String() string {
	s := fmt.Sprintf("%s transaction %d in epoch %d told %s asked %b sequences %v", moves[l.Move], l.Txn, l.Epoch, l.Told, l.Asked, l.Seqs)
	if l.Move == adding || l.Move == producing {
		s += fmt.Sprintf(" p%d", l.Part)
	}
	if l.Sick {
		s += " sick"
	}
	return s
}

func (client) Name() string { return "client" }

func (c client) Boot(int, []explore.Record) (explore.Local, []explore.Effect) {
	return c.begin(clientLocal{})
}

// begin starts the next transaction, if there is one left.
func (c client) begin(l clientLocal) (explore.Local, []explore.Effect) {
	if l.Txn = len(l.Told); l.Txn == c.Transactions {
		l.Move = finished
		return l, nil
	}
	l.Part, l.Told = 0, l.Told+"?"
	return c.touch(l)
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

func (l clientLocal) request() kafkatx.Request { return clientRequest(l.Txn, int(l.Move)*10+l.Part) }

// ask sends what the client waits for the answer of.
func (c client) ask(l clientLocal) []explore.Effect {
	to, body := coordinatorID, explore.Body(nil)
	switch l.Move {
	case adding:
		body = add{l.request(), l.Epoch, l.Part}
	case producing:
		to, body = partitionID(l.Part), produce{l.Txn, l.Epoch, l.Seqs[l.Part]}
	case committing, aborting:
		body = end{l.request(), l.Epoch, l.Move == committing}
	case renewing:
		body = initialise{l.request(), l.Epoch}
	default:
		return nil
	}
	return []explore.Effect{explore.Send{To: to, Body: body}}
}

func (c client) Own(local explore.Local) []explore.Event {
	switch local.(clientLocal).Move {
	case choosing:
		return []explore.Event{own("decides to commit"), own("decides to abort")}
	case finished, dead:
		return nil
	}
	return []explore.Event{again("repeats its request")}
}

func (c client) Handle(local explore.Local, e explore.Event) (explore.Local, []explore.Effect) {
	l := local.(clientLocal)
	switch e := e.(type) {
	case own:
		l.Move = aborting
		if e == "decides to commit" {
			l.Move, l.Asked = committing, l.Asked|1<<l.Txn
		}
		return l, c.ask(l)
	case again:
		return l, c.ask(l)
	case explore.Message:
		switch m := e.Body.(type) {
		case answer:
			if m.Request == l.request() {
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
	if m.Code != kafkatx.OK {
		return c.giveUp(l)
	}
	l.Seqs[l.Part]++
	l.Part++
	return c.touch(l)
}

// giveUp aborts a transaction that failed before its end was asked for.
func (c client) giveUp(l clientLocal) (explore.Local, []explore.Effect) {
	l.Move, l.Sick = aborting, c.Version < 2
	return l, c.ask(l)
}

func (c client) answered(l clientLocal, m answer) (explore.Local, []explore.Effect) {
	switch {
	case m.Code == kafkatx.OK && l.Move == adding:
		l.Move = producing
		return l, c.ask(l)
	case m.Code == kafkatx.OK && l.Move == renewing:
		return c.begin(l.raised(m.Epoch))
	case m.Code == kafkatx.OK:
		return c.ended(l, m)
	case m.Code == kafkatx.InvalidTxnState && l.Move == committing: // it was aborted: a client does not go on from here
		l.Told = l.tell('a')
	}
	l.Move = dead
	return l, nil
}

func (c client) ended(l clientLocal, m answer) (explore.Local, []explore.Effect) {
	outcome := byte('a')
	if l.Move == committing {
		outcome = 'c'
	}
	l.Told = l.tell(outcome)
	if l = l.raised(m.Epoch); l.Sick {
		l.Move, l.Sick = renewing, false
		return l, c.ask(l)
	}
	return c.begin(l)
}

// raised takes the epoch that an answer names; each has sequences of its own.
func (l clientLocal) raised(epoch int16) clientLocal {
	if epoch != kafkatx.None && epoch != l.Epoch {
		l.Epoch, l.Seqs = epoch, [4]int32{}
	}
	return l
}

// tell is Told with the outcome of the current transaction.
func (l clientLocal) tell(outcome byte) string {
	return l.Told[:l.Txn] + string(outcome) + l.Told[l.Txn+1:]
}
