package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"gopherlog/bench/hdr"
	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

// sessionPause is between attempts to begin a session.
const sessionPause = 50 * time.Millisecond

// transactions cuts what one sender sends into transactions, one in flight: begin, records, end, and so on. What falls due while a
// transaction ends waits in due, and its latencies count from when it was due. Its goroutine owns everything but what mu guards.
type transactions struct {
	sender *sender
	shape  scenario.Transaction
	cfg    ProducerConfig
	due    chan time.Duration // open model: intended times that were accepted; closed when the schedule is over
	log    *history.Stream
	commit *hdr.Recorder // from when the end was due
	end    *hdr.Recorder // from when it was asked for
	rnd    *rand.Rand    // decides which transactions abort
	began  bool          // a session is usable

	number uint32 // of the open transaction in its session, or of the last one
	spread int    // partitions of a transaction; 0: as the partitioner chooses
	base   int    // its first partition
	nth    int    // records of it that were placed

	mu   sync.Mutex
	ends map[int]int64 // by flat partition: end of what was acknowledged in the open transaction
	have int64         // how many records of it were acknowledged
}

func newTransactions(s *sender, cfg ProducerConfig, log *history.Stream) *transactions {
	p := s.run.plan
	x := &transactions{sender: s, shape: p.Producers.Transaction, cfg: cfg, log: log, spread: p.Producers.Transaction.Partitions,
		commit: hdr.NewRecorder(p.Interval), end: hdr.NewRecorder(p.Interval), ends: map[int]int64{},
		rnd: rand.New(rand.NewPCG(uint64(p.Seed), 0x74786e<<16|uint64(s.index)))}
	if s.tokens == nil {
		x.due = make(chan time.Duration, p.Load.MaxOutstanding+1)
	}
	return x
}

// choose places the next record of the open transaction among n partitions.
func (x *transactions) choose(n int) int {
	p := (x.base + x.nth%min(x.spread, n)) % n
	x.nth++
	return p
}

func (x *transactions) acked(partition int, end int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ends[partition] = max(x.ends[partition], end)
	x.have++
}

// loop transacts until the schedule is over and everything that was due has been sent, or ctx ends.
func (x *transactions) loop(ctx context.Context, end time.Duration) error {
	for {
		if err := ctx.Err(); err != nil { // a backlog is taken without a look at it
			x.dropDue()
			return err
		}
		first, ok := x.next(ctx, end, nil)
		if !ok {
			return ctx.Err()
		}
		if err := x.transact(ctx, first, end); err != nil {
			x.dropDue()
			return err
		}
	}
}

// next waits for the next message of a transaction: due by the schedule, or, in a closed loop, as soon as there is room. It ends at
// the deadline of the transaction, with the load, and with ctx.
func (x *transactions) next(ctx context.Context, end time.Duration, deadline <-chan time.Time) (intended time.Duration, ok bool) {
	s := x.sender
	if x.due != nil {
		select {
		case intended, ok = <-x.due: // what waits already comes along, also past the deadline: one that falls behind fills its transactions
			return intended, ok
		default:
		}
		select {
		case intended, ok = <-x.due:
			return intended, ok
		case <-deadline:
		case <-ctx.Done():
		}
		return 0, false
	}
	over := time.NewTimer(end - s.run.clock.Now())
	defer over.Stop()
	select {
	case <-s.tokens:
		now := s.run.clock.Now()
		if now >= end {
			s.tokens <- struct{}{}
			return 0, false
		}
		s.accept(now, now)
		return now, true
	case <-deadline:
	case <-over.C:
	case <-ctx.Done():
	}
	return 0, false
}

// transact runs one transaction, whose first message is due.
func (x *transactions) transact(ctx context.Context, first, end time.Duration) error {
	if err := x.begin(ctx); err != nil {
		x.forget()
		return err
	}
	s := x.sender
	began := max(first, s.run.clock.Now())
	deadline := time.NewTimer(began + x.shape.MaxDuration - s.run.clock.Now())
	defer deadline.Stop()
	last := first
	s.send(first)
	n := 1
	for ; n < x.shape.Records; n++ {
		next, ok := x.next(ctx, end, deadline.C)
		if !ok {
			break
		}
		s.send(next)
		last = next
	}
	due := last
	if n < x.shape.Records {
		due = min(began+x.shape.MaxDuration, max(s.run.clock.Now(), last))
	}
	x.finish(ctx, n, due)
	return nil
}

// begin opens the next transaction, in a new session where the old one is of no use.
func (x *transactions) begin(ctx context.Context) error {
	s := x.sender
	for {
		if x.began && x.number < history.MaxTxn {
			err := s.producer.(Transactor).Begin()
			if err == nil {
				break
			}
			s.run.errors.class(err)
		}
		if err := x.renew(ctx); err != nil {
			return err
		}
	}
	x.number++
	x.nth = 0
	if x.spread > 0 {
		s.topic = (s.topic + 1) % len(s.run.inputs)
		x.base = (int(s.index) + int(x.number)*x.spread) % s.run.inputs[s.topic].partitions
	}
	x.mu.Lock()
	clear(x.ends)
	x.have = 0
	x.mu.Unlock()
	x.note(history.Begun, 0)
	now := s.run.clock.Now()
	s.done.add(now, now, func(p *PhaseCounts, _ *Tick) { p.Txns++ })
	return nil
}

// renew begins a session: a new client under the same transactional id, which fences the one before.
func (x *transactions) renew(ctx context.Context) error {
	s := x.sender
	s.producer.Close()
	for ctx.Err() == nil {
		if s.session == history.MaxSession {
			return fmt.Errorf("producer %d used up the %d sessions of the history format", s.index, history.MaxSession)
		}
		p, err := s.run.driver.NewProducer(ctx, x.cfg)
		if err == nil {
			s.producer = p
			s.session++
			x.number = 0
			clear(s.sequence)
			if err = x.init(ctx); err == nil {
				return nil
			}
			p.Close()
		}
		s.run.errors.class(err)
		pause(ctx, sessionPause)
	}
	return ctx.Err()
}

// init gets the producer id of the session.
func (x *transactions) init(ctx context.Context) error {
	t, ok := x.sender.producer.(Transactor)
	if !ok {
		return errors.New("the driver has no transactions")
	}
	epoch, err := t.Init(ctx)
	if err != nil {
		return err
	}
	x.began = true
	if x.log != nil {
		x.log.Append(history.Record{Kind: history.Transaction, Step: history.Inited, Producer: x.sender.index, Session: x.sender.session, Epoch: epoch, At: x.sender.run.clock.Now()})
	}
	return nil
}

func (x *transactions) note(step history.Step, class uint8) {
	if x.log == nil {
		return
	}
	s := x.sender
	x.log.Append(history.Record{Kind: history.Transaction, Step: step, Producer: s.index, Session: s.session, Txn: x.number, Class: class, At: s.run.clock.Now()})
}

// finish ends the open transaction of n records, which was due to end.
func (x *transactions) finish(ctx context.Context, n int, due time.Duration) {
	s := x.sender
	abort := x.shape.AbortShare > 0 && x.rnd.Float64() < x.shape.AbortShare
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience) // a question that is cut off would leave the outcome open
	defer cancel()
	var asked time.Duration
	e := s.producer.(Transactor).End(limit, !abort, func(commit bool) {
		if !commit {
			x.note(history.AskAbort, 0)
			return
		}
		asked = s.run.clock.Now()
		x.note(history.AskCommit, 0)
		x.wanted(asked)
	})
	now := s.run.clock.Now()
	var class uint8
	if e.Err != nil {
		class = s.run.errors.class(e.Err)
	}
	switch e.Result {
	case TxnCommitted:
		x.note(history.Committed, 0)
		x.commit.Record(due, now-due)
		x.end.Record(due, now-asked)
		s.done.add(due, now, func(p *PhaseCounts, k *Tick) {
			p.TxnsCommitted++
			p.Committed += int64(n)
			k.Committed += int64(n)
		})
	case TxnAborted:
		x.note(history.Aborted, class)
		x.mu.Lock()
		gone := x.have
		x.mu.Unlock()
		s.done.add(due, now, func(p *PhaseCounts, k *Tick) { p.TxnsAborted++; k.Aborted += gone })
	default:
		x.note(history.InDoubt, class)
		s.done.add(due, now, func(p *PhaseCounts, _ *Tick) { p.TxnsInDoubt++ })
	}
	if e.Broken {
		x.began = false
	}
}

// wanted tells that the transaction should become readable.
func (x *transactions) wanted(now time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p, end := range x.ends {
		x.sender.run.stalls[p].want(end, now)
	}
}

// forget books the message that was due and for which no transaction could be begun: it was never sent.
func (x *transactions) forget() {
	s := x.sender
	now := s.run.clock.Now()
	s.done.add(now, now, func(p *PhaseCounts, k *Tick) { p.Failed++; k.Failed++ })
	s.run.waiting.Add(-1)
}

// dropDue books everything else that was due.
func (x *transactions) dropDue() {
	if x.due == nil {
		return
	}
	for range x.due {
		x.forget()
	}
}
