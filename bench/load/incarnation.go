package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gopherlog/bench/history"
)

var (
	errCrashed = errors.New("load: the member crashed")
	errLeaves  = errors.New("load: the member leaves")
)

// incarnation is one life of a member. Its goroutine owns everything but the streams; watch's callbacks come from the client's.
type incarnation struct {
	member   *member
	session  uint16
	client   Member
	sequence []uint64      // next of each lane
	number   uint32        // of the open or last transaction
	away     time.Duration // how long a fault from outside keeps it away at least
	replaced bool
	replace  chan struct{}      // closed when the place is free for another although this one lives
	ended    chan struct{}      // closed when it is over
	frozen   chan time.Duration // a fault from outside: be a zombie for so long; below zero: crash
}

func (i *incarnation) live(ctx context.Context) {
	defer close(i.ended)
	for {
		err := i.step(ctx)
		switch {
		case errors.Is(err, errCrashed):
			i.note(history.Crashed)
			i.client.Crash()
			return
		case errors.Is(err, errLeaves), ctx.Err() != nil, i.replaced:
			if err != nil && err != errLeaves && ctx.Err() == nil {
				i.member.groups.run.errors.class(err)
			}
			i.client.Close()
			i.note(history.Left)
			return
		case err != nil:
			i.member.groups.run.errors.class(err)
			pause(ctx, memberPause)
		}
	}
}

// polled is what one poll brought, in order of arrival.
type polled struct {
	flat   int
	place  Place
	key    []byte
	value  int // length
	header header
	ours   bool
}

// step polls once, works on what came, and commits as the guarantee says.
func (i *incarnation) step(ctx context.Context) error {
	m, g := i.member, i.member.groups
	got, err := i.poll(ctx)
	if len(got) == 0 {
		i.client.Release()
		return err
	}
	if err != nil { // of one partition; what came of others would be skipped if it were not worked on
		m.groups.run.errors.class(err)
	}
	t := m.trouble()
	select {
	case i.away = <-i.frozen:
		if t = turnsZombie; i.away < 0 {
			t = crashes
		}
	default:
	}
	places := reached(got)
	switch g.commit {
	case "in_transaction":
		if m.transform {
			return i.transact(ctx, got, places, t)
		}
		fallthrough
	case "after_process":
		if err := i.process(ctx, got, t); err != nil {
			return err
		}
		err = i.commit(ctx, places)
	case "before_process":
		if err = i.commit(ctx, places); err == nil {
			err = i.process(ctx, got, t)
		}
	}
	i.client.Release()
	if err == nil && t == rejoins {
		return errLeaves
	}
	return err
}

func (i *incarnation) poll(ctx context.Context) ([]polled, error) {
	m, r := i.member, i.member.groups.run
	asked := r.clock.Now()
	limit, cancel := context.WithTimeout(ctx, fetchMaxWait)
	defer cancel()
	var got []polled
	err := i.client.Poll(limit, m.groups.plan.PollRecords, func(d Delivery) {
		if flat, ok := r.flat(d.Topic, d.Partition); ok {
			p := polled{flat: flat, place: Place{d.Topic, d.Partition, d.Offset}, key: append([]byte(nil), d.Key...), value: len(d.Value)}
			i.delivered(&p, d.Value)
			got = append(got, p)
		}
	})
	if len(got) > 0 && m.log != nil {
		m.log.Append(history.Record{Kind: history.Group, Step: history.PollEnd, Producer: m.number, Session: i.session, Asked: asked, At: r.clock.Now()})
	}
	if err != nil && limit.Err() != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		err = nil // nothing came
	}
	return got, err
}

// delivered notes a message that the group gave to this member.
func (i *incarnation) delivered(p *polled, value []byte) {
	m, r := i.member, i.member.groups.run
	ours, sound := p.header.open(value)
	h := &p.header
	if ours && sound && h.Run == r.plan.RunID && h.Flags&flagProbe != 0 {
		return
	}
	rec := history.Record{Kind: history.Delivered, Partition: uint32(p.flat), Offset: p.place.Offset, At: r.clock.Now()}
	switch {
	case ours && !sound:
		rec.Flags = history.BadChecksum
	case !ours || !h.fits(r.plan.RunID):
		rec.Flags = history.Foreign
	default:
		p.ours = true
		rec.Producer, rec.Session, rec.Sequence, rec.Txn = h.Producer, h.Session, h.Sequence, h.Txn
		if h.Partition != uint32(p.flat) {
			rec.Flags = history.WrongPartition
		}
	}
	if m.log != nil {
		m.log.Append(rec)
	}
}

// reached is the next position of each partition of a poll.
func reached(got []polled) []Place {
	var out []Place
	at := map[int]int{}
	for _, p := range got {
		n, ok := at[p.flat]
		if !ok {
			n = len(out)
			at[p.flat] = n
			out = append(out, p.place)
		}
		out[n].Offset = p.place.Offset + 1
	}
	return out
}

// process works on each message; in the middle of it trouble strikes.
func (i *incarnation) process(ctx context.Context, got []polled, t trouble) error {
	m := i.member
	var outcomes sync.WaitGroup
	lost := make(chan error, 1)
	for n := range got {
		if n == len(got)/2 {
			if err := i.strike(ctx, t); err != nil {
				return err
			}
		}
		if d := m.processTime(); d > 0 {
			pause(ctx, d)
		}
		if m.transform && got[n].ours {
			outcomes.Add(1)
			i.send(&got[n], func(err error) {
				if err != nil {
					select {
					case lost <- err:
					default:
					}
				}
				outcomes.Done()
			})
		}
	}
	if m.transform {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer cancel()
		if err := i.client.Flush(limit); err != nil {
			return errors.Join(errLeaves, fmt.Errorf("load: flush: %w", err))
		}
		outcomes.Wait()
	}
	i.processed(got)
	select {
	case err := <-lost:
		if m.groups.commit == "after_process" { // what was made of these messages is not there: they may not be committed
			i.client.Release()
			return errors.Join(errLeaves, err)
		}
	default:
	}
	return nil
}

// processed notes how far this poll's messages were worked on.
func (i *incarnation) processed(got []polled) {
	m := i.member
	if m.log == nil {
		return
	}
	for _, p := range reached(got) {
		flat, _ := m.groups.run.flat(p.Topic, p.Partition)
		m.log.Append(history.Record{Kind: history.Group, Step: history.Processed, Producer: m.number, Session: i.session, Partition: uint32(flat), Offset: p.Offset - 1, At: m.groups.run.clock.Now()})
	}
}

// strike lets trouble befall the incarnation.
func (i *incarnation) strike(ctx context.Context, t trouble) error {
	g := i.member.groups
	switch t {
	case crashes:
		return errCrashed
	case dawdles:
		pause(ctx, g.plan.Rebalance*3/2)
	case turnsZombie:
		i.client.Freeze()
		i.note(history.Frozen)
		if !i.replaced {
			i.replaced = true
			close(i.replace)
		}
		pause(ctx, max(i.away, g.plan.SessionTimeout+zombieOverstay))
		i.client.Thaw()
		i.note(history.Thawed)
	}
	return nil
}

// commit commits positions outside of a transaction.
func (i *incarnation) commit(ctx context.Context, places []Place) error {
	m, r := i.member, i.member.groups.run
	i.commitAsked(places, 0)
	asked := r.clock.Now()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	var first error
	i.client.Commit(limit, places, func(p Place, err error) {
		flat, _ := r.flat(p.Topic, p.Partition)
		rec := history.Record{Kind: history.Group, Step: history.CommitAnswered, Result: history.OK, Producer: m.number, Session: i.session,
			Partition: uint32(flat), Offset: p.Offset, Asked: asked, At: r.clock.Now()}
		if err != nil {
			err = fmt.Errorf("commit of group %s: %w", m.group, err)
			rec.Class = r.errors.class(err)
			if rec.Result = history.Unknown; refusedPosition(err) {
				rec.Result = history.Failed
			}
			first = err
		}
		if m.log != nil {
			m.log.Append(rec)
		}
	})
	if first != nil {
		i.client.Release()
		return nil // counted; the group will give the messages again
	}
	return nil
}

func (i *incarnation) commitAsked(places []Place, txn uint32) {
	m, r := i.member, i.member.groups.run
	if m.log == nil {
		return
	}
	generation := i.client.Generation()
	for _, p := range places {
		flat, _ := r.flat(p.Topic, p.Partition)
		m.log.Append(history.Record{Kind: history.Group, Step: history.CommitAsked, Producer: m.number, Session: i.session, Partition: uint32(flat), Offset: p.Offset,
			Txn: txn, Epoch: generation, At: r.clock.Now()})
	}
}

// transact makes one transaction of a poll: its outputs and its positions.
func (i *incarnation) transact(ctx context.Context, got []polled, places []Place, t trouble) error {
	m, r := i.member, i.member.groups.run
	if i.number == history.MaxTxn {
		return errLeaves
	}
	if err := i.client.Begin(); err != nil {
		return errors.Join(errLeaves, err)
	}
	i.number++
	i.transaction(history.Begun, 0, -1)
	now := r.clock.Now()
	m.tally.add(now, now, func(p *PhaseCounts, _ *Tick) { p.Txns++ })
	err := i.process(ctx, got, t)
	if errors.Is(err, errCrashed) { // nobody asks for the end
		now = r.clock.Now()
		m.tally.add(now, now, func(p *PhaseCounts, _ *Tick) { p.TxnsInDoubt++ })
		return err
	}
	commit := err == nil && !m.chance(r.plan.Producers.Transaction.AbortShare)
	if commit {
		i.commitAsked(places, i.number)
		i.transaction(history.AskCommit, 0, -1)
	} else {
		i.transaction(history.AskAbort, 0, -1)
	}
	asked := r.clock.Now()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	e := i.client.End(limit, commit)
	i.transactionEnded(e, asked, made(got))
	if e.Broken {
		return errors.Join(errLeaves, e.Err)
	}
	if t == rejoins {
		return errLeaves
	}
	return nil
}

func made(got []polled) (n int64) {
	for _, p := range got {
		if p.ours {
			n++
		}
	}
	return n
}

func (i *incarnation) transactionEnded(e TxnEnd, asked time.Duration, n int64) {
	m, r := i.member, i.member.groups.run
	var class uint8
	if e.Err != nil {
		class = r.errors.class(e.Err)
	}
	now := r.clock.Now()
	switch e.Result {
	case TxnCommitted:
		i.transaction(history.Committed, 0, -1)
		m.tally.add(asked, now, func(p *PhaseCounts, _ *Tick) { p.TxnsCommitted++; p.Transformed += n })
	case TxnAborted:
		i.transaction(history.Aborted, class, -1)
		m.tally.add(asked, now, func(p *PhaseCounts, _ *Tick) { p.TxnsAborted++ })
	default:
		i.transaction(history.InDoubt, class, -1)
		m.tally.add(asked, now, func(p *PhaseCounts, _ *Tick) { p.TxnsInDoubt++ })
	}
}

// send sends what is made of one message, to the partition of the same number.
func (i *incarnation) send(p *polled, done func(error)) {
	m, r, to := i.member, i.member.groups.run, i.member.groups.to
	partition := int(p.place.Partition) % to.partitions
	flat := to.first + partition
	value := m.body()
	h := header{Flags: flagDerived, Run: r.plan.RunID, Producer: m.number, Session: i.session, Partition: uint32(flat), Sequence: i.sequence[flat],
		Intended: p.header.Intended, FromPartition: uint32(p.flat), FromOffset: p.place.Offset}
	if m.groups.commit == "in_transaction" {
		h.Txn = i.number
	}
	i.sequence[flat]++
	h.seal(value)
	if m.sends != nil {
		m.sends.Append(history.Record{Kind: history.Sent, Producer: m.number, Session: i.session, Partition: uint32(flat), Sequence: h.Sequence, Txn: h.Txn, At: h.Intended})
		m.sends.Append(history.Record{Kind: history.Origin, Partition: uint32(p.flat), Offset: p.place.Offset})
	}
	i.client.Send(&Record{Topic: to.name, Partition: int32(partition), Key: p.key, Value: value}, func(a Ack) {
		rec := history.Record{Kind: history.Outcome, Result: history.OK, Producer: m.number, Session: i.session, Partition: uint32(flat), Sequence: h.Sequence, Offset: a.Offset, At: r.clock.Now()}
		if a.Err != nil {
			rec.Class = r.errors.class(a.Err)
			if rec.Result = history.Unknown; a.Definite {
				rec.Result = history.Failed
			}
		} else {
			r.highest(flat, a.Offset+1)
			if h.Txn == 0 {
				m.tally.add(h.Intended, rec.At, func(p *PhaseCounts, _ *Tick) { p.Transformed++ })
			}
		}
		if m.acks != nil {
			m.acks.Append(rec)
		}
		done(a.Err)
	})
}
