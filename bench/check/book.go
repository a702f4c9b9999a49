package check

import (
	"fmt"
	"math"
	"sort"
	"time"

	"gopherlog/bench/history"
)

// maxTxns bounds the transactions that are judged: 80 bytes each.
const maxTxns = 1 << 23

// never stands for a time at which nothing happened.
const never = time.Duration(math.MaxInt64)

// A txn is one transaction as the harness drove it and as the committed reads show it.
type txn struct {
	actor
	number              uint32
	of                  uint32        // messages sent in it, without those that failed for certain
	read                uint32        // of these, how many the committed final read found
	state               history.Step  // Begun until its end was asked; InDoubt where nobody knows the end
	commit              bool          // its commit was asked
	late                bool          // it follows one whose end was in doubt
	expired             bool          // retention deleted some of it
	begun, asked, ended time.Duration // never: not
	due, got            uint64        // sums over its messages: sent, and found by the committed final read, every copy of it (C12)
}

// mustShow says that the transaction is committed for certain, mayShow that it is not certain that it is not.
func (t *txn) mustShow() bool { return t.state == history.Committed }
func (t *txn) mayShow() bool {
	return t.state == history.Committed || t.commit && t.state != history.Aborted
}

// An actor is one incarnation of a producer, or of a member of a group.
type actor struct{ producer, session uint16 }

// A txnRun says that the messages of a lane from a sequence on belong to a transaction, up to the next run's.
type txnRun struct {
	from uint64
	txn  int32 // index in the book; -1: none
}

// A fence is the moment from which on all earlier sessions of a producer are fenced.
type fence struct {
	session uint16
	at      time.Duration
}

// book is what is known of transactions.
type book struct {
	txns   []txn
	index  map[actor][]int32 // by number, which counts from 1: index in txns plus one; 0 none
	fences map[uint16][]fence
	over   bool // there were more than maxTxns
	stable [][]history.Record
	runs   *txnReads // messages of transactions that committed readers were given while the load ran
}

func newBook() book {
	return book{index: map[actor][]int32{}, fences: map[uint16][]fence{}}
}

// open is the transaction of that number, made where it is new; -1 where the book is full.
func (b *book) open(a actor, number uint32) int32 {
	row := b.index[a]
	if int(number) < len(row) && row[number] != 0 {
		return row[number] - 1
	}
	if len(b.txns) >= maxTxns {
		b.over = true
		return -1
	}
	if int(number) >= len(row) {
		row = append(row, make([]int32, int(number)+1-len(row))...)
		b.index[a] = row
	}
	b.txns = append(b.txns, txn{actor: a, number: number, state: history.Begun, begun: never, asked: never, ended: never})
	row[number] = int32(len(b.txns))
	return row[number] - 1
}

// get is the transaction of that number; nil where there is none.
func (b *book) get(a actor, number uint32) *txn {
	if row := b.index[a]; int(number) < len(row) && row[number] != 0 {
		return &b.txns[row[number]-1]
	}
	return nil
}

// inOrder lists an actor's transactions in the order of their numbers.
func (b *book) inOrder(a actor) (list []int32) {
	for _, i := range b.index[a] {
		if i != 0 {
			list = append(list, i-1)
		}
	}
	return list
}

// judgeBegun reads how every transaction was driven.
func judgeBegun(l *ledger, _ map[string]*finding) error {
	b := &l.book
	err := l.each(history.RoleTxns, history.Transaction, func(r *history.Record) {
		if r.Step == history.Inited {
			b.fences[r.Producer] = append(b.fences[r.Producer], fence{r.Session, r.At})
			return
		}
		if i := b.open(actor{r.Producer, r.Session}, r.Txn); i >= 0 {
			b.txns[i].step(r)
		}
	})
	b.follow()
	for i := range b.txns {
		switch t := &b.txns[i]; t.state {
		case history.Committed:
			l.totals.TxnsCommitted++
		case history.Aborted:
			l.totals.TxnsAborted++
		default:
			l.totals.TxnsInDoubt++
		}
	}
	l.totals.Txns = int64(len(b.txns))
	if b.over {
		l.note(fmt.Sprintf("only %d transactions are judged", maxTxns))
	}
	return err
}

func (t *txn) step(r *history.Record) {
	switch r.Step {
	case history.Begun:
		t.begun = min(t.begun, r.At)
		return
	case history.AskCommit, history.AskAbort:
		t.asked = min(t.asked, r.At)
		t.commit = t.commit || r.Step == history.AskCommit
		if t.state != history.Begun {
			return
		}
	default:
		t.ended = r.At
	}
	t.state = r.Step
}

// follow marks what begins after an end in doubt, in the same session or as the first of the next one.
func (b *book) follow() {
	last := map[uint16]actor{}
	doubtful := func(a actor) bool {
		row := b.index[a]
		return b.txns[row[len(row)-1]-1].unsure()
	}
	var actors []actor
	for a := range b.index {
		actors = append(actors, a)
	}
	sort.Slice(actors, func(i, j int) bool { return actors[i].session < actors[j].session })
	for _, a := range actors {
		late := false
		if before, ok := last[a.producer]; ok {
			late = doubtful(before)
		}
		for _, i := range b.inOrder(a) {
			b.txns[i].late = late
			late = b.txns[i].unsure()
		}
		last[a.producer] = a
	}
}

func (t *txn) unsure() bool { return t.state != history.Committed && t.state != history.Aborted }

// sent notes a message of a transaction.
func (b *book) sent(a *lane, r *history.Record) {
	i := int32(-1)
	if r.Txn != 0 {
		i = b.open(actor{r.Producer, r.Session}, r.Txn)
	}
	if n := len(a.runs); n == 0 && i >= 0 || n > 0 && a.runs[n-1].txn != i {
		a.runs = append(a.runs, txnRun{r.Sequence, i})
	}
	if i >= 0 {
		b.txns[i].of++
		b.txns[i].due += weight(a, r.Sequence)
	}
}

// failed takes back a message that certainly never became part of the log.
func (b *book) failed(a *lane, r *history.Record) {
	if t := b.of(a, r.Sequence); t != nil && t.of > 0 {
		t.of--
		t.due -= weight(a, r.Sequence)
	}
}

// expire notes that retention deleted a message of a transaction, which then can no longer be judged as a whole.
func (b *book) expire(a *lane, r *history.Record) {
	if t := b.of(a, r.Sequence); t != nil {
		t.expired = true
	}
}

// readable notes a message that the committed final read found.
func (b *book) readable(a *lane, r *history.Record, first bool) {
	t := b.of(a, r.Sequence)
	if t == nil {
		return
	}
	t.got += weight(a, r.Sequence)
	if first {
		t.read++
	}
}

// of is the transaction of a message; nil where it has none.
func (b *book) of(a *lane, sequence uint64) *txn {
	if len(a.runs) == 0 {
		return nil
	}
	i := a.cursor
	if i >= len(a.runs) || sequence < a.runs[i].from || i+1 < len(a.runs) && sequence >= a.runs[i+1].from {
		i = sort.Search(len(a.runs), func(i int) bool { return a.runs[i].from > sequence }) - 1
		if i < 0 {
			return nil
		}
		a.cursor = i
	}
	if a.runs[i].txn < 0 {
		return nil
	}
	return &b.txns[a.runs[i].txn]
}

// fencedAt is when the sessions before the given one's successor lost their rights: when a later session of the producer was ready.
func (b *book) fencedAt(a actor) time.Duration {
	at := never
	for _, f := range b.fences[a.producer] {
		if f.session > a.session {
			at = min(at, f.at)
		}
	}
	return at
}

// weight is what a message counts in the balance.
func weight(a *lane, sequence uint64) uint64 { return mark(0, a.index, sequence) }

func (t *txn) String() string {
	return fmt.Sprintf("transaction %d of producer %d, session %d", t.number, t.producer, t.session)
}

// example is a witness that is a transaction.
func (t *txn) example(what string) Example {
	at := t.ended
	if at == never {
		at = t.asked
	}
	if at == never {
		at = t.begun
	}
	e := Example{Offset: -1, Producer: int(t.producer), Session: int(t.session), Sequence: uint64(t.number), What: t.String() + ": " + what, Seconds: -1}
	if at != never {
		e.Seconds = seconds(at)
	}
	return e
}
