package coordinator

import (
	"fmt"
	"sync"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
	"gopherlog/txn/group"
)

// term is one leadership of a shard: the machines of its groups, and the one goroutine that runs them. Everything that happens to a group
// comes through the queue, in order; what machines append goes to the partition in order, in this term or never.
type term struct {
	s     *shard
	g     *Groups
	epoch int32

	wakeup chan struct{} // capacity 1

	mu    sync.Mutex // guards what follows
	queue []func()
	asked int // requests among queue
	over  bool

	// owned by run
	lives    map[string]*live
	timers   *timers
	answers  map[group.Request]func(group.Effect)
	last     group.Request
	grown    int64           // bytes appended since the log's size was looked at
	unknown  map[string]bool // topics that the image did not know at the last sweep
	trimming bool
}

// live is a group with its machine.
type live struct {
	id     string
	state  group.State
	flying int // appends without an outcome
	// spoiled: a record could not be appended, and the machine does not know how to go on. It answers NOT_COORDINATOR until all its appends
	// have an outcome; then another one is made of what the log says.
	spoiled bool
}

// begin starts a term. s.mu is held.
func (s *shard) begin(epoch int32) *term {
	t := &term{
		s: s, g: s.g, epoch: epoch, wakeup: make(chan struct{}, 1),
		lives: map[string]*live{}, timers: newTimers(), answers: map[group.Request]func(group.Effect){},
	}
	s.g.wg.Add(1)
	go t.run()
	return t
}

// end tells the term that it is over. It does not wait.
func (t *term) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.nudge()
}

func (t *term) nudge() {
	select {
	case t.wakeup <- struct{}{}:
	default:
	}
}

// post queues what is to happen; false: the term is over.
func (t *term) post(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.enqueue(fn)
}

func (t *term) enqueue(fn func()) bool {
	if t.over {
		return false
	}
	t.queue = append(t.queue, fn)
	if len(t.queue) == 1 {
		t.nudge()
	}
	return true
}

// ask queues a request, or returns why not.
func (t *term) ask(fn func()) group.Code {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked >= maxAsked {
		return LoadInProgress // clients come again
	}
	if !t.enqueue(fn) {
		return group.NotCoordinator
	}
	t.asked++
	return group.OK
}

// take empties the queue; last says that nothing will ever be in it again.
func (t *term) take(spare []func()) (queue []func(), last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue, t.queue, t.asked = t.queue, spare[:0], 0
	return queue, t.over
}

func (t *term) run() {
	defer t.g.wg.Done()
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	t.load()
	var spare []func()
	for {
		queue, last := t.take(spare)
		for _, fn := range queue {
			fn()
		}
		clear(queue)
		spare = queue
		if last {
			t.unload()
			return
		}
		t.fire()
		t.rest(alarm)
	}
}

// rest waits until something is queued or a timer is due.
func (t *term) rest(alarm *time.Timer) {
	if due, ok := t.timers.next(); ok {
		alarm.Reset(max(due.Sub(t.g.cfg.Now()), 0))
	} else {
		alarm.Reset(time.Hour)
	}
	select {
	case <-t.wakeup:
	case <-alarm.C:
	}
}

// load makes the machines of all groups that the log knows: all that is committed is applied.
func (t *term) load() {
	start := t.g.cfg.Now()
	recorded := t.s.table.recorded()
	for id, r := range recorded {
		t.boot(id, r)
	}
	t.timers.start(timerKey{}, start.Add(t.g.cfg.SweepEvery))
	t.g.cfg.Logger.Debug("coordinator loaded", "shard", t.s.number, "epoch", t.epoch, "groups", len(recorded), "took", t.g.cfg.Now().Sub(start))
}

// unload ends all machines: whoever waits for one is sent to the next coordinator.
func (t *term) unload() {
	for _, l := range t.lives {
		t.handle(l, group.Lost{})
	}
	if n := len(t.answers); n > 0 {
		panic(fmt.Sprintf("coordinator: shard %d, epoch %d: %d requests were never answered", t.s.number, t.epoch, n))
	}
}

// fire hands out timers that are due.
func (t *term) fire() {
	now := t.g.cfg.Now()
	for k, ok := t.timers.pop(now); ok; k, ok = t.timers.pop(now) {
		if k == (timerKey{}) {
			t.sweep()
			t.timers.start(timerKey{}, now.Add(t.g.cfg.SweepEvery))
			continue
		}
		if l := t.lives[k.group]; l != nil {
			t.handle(l, group.Timer{Kind: k.kind, Member: k.member})
		}
	}
}

// live returns a group's machine, a new one if there is none.
func (t *term) live(id string) *live {
	if l := t.lives[id]; l != nil {
		return l
	}
	r, _ := t.s.table.record(id)
	return t.boot(id, r)
}

func (t *term) boot(id string, newest *group.Record) *live {
	l := &live{id: id}
	t.lives[id] = l
	state, effects := t.g.cfg.Group.Boot(newest, t.g.cfg.Now())
	l.state = state
	t.do(l, effects)
	return l
}

// handle lets something happen to a group.
func (t *term) handle(l *live, e group.Event) {
	state, effects := t.g.cfg.Group.Handle(l.state, e, t.g.cfg.Now())
	l.state = state
	t.do(l, effects)
	t.settle(l)
}

// request is handle for an event that is answered; event gives it the request's number.
func (t *term) request(l *live, answer func(group.Effect), event func(group.Request) group.Event) {
	t.last++
	t.answers[t.last] = answer
	t.handle(l, event(t.last))
}

// settle forgets a machine that holds nothing, and replaces one that was spoiled.
func (t *term) settle(l *live) {
	if l.flying > 0 || t.lives[l.id] != l {
		return
	}
	switch {
	case l.spoiled:
		delete(t.lives, l.id)
		t.settle(t.live(l.id))
	case l.state.Blank():
		delete(t.lives, l.id)
	}
}

func (t *term) do(l *live, effects []group.Effect) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case group.Append:
			t.appendRecord(l, e.Record)
		case group.Joined:
			t.answer(e.Request, e, e.Code == group.FencedInstanceID)
		case group.Synced:
			t.answer(e.Request, e, e.Code == group.FencedInstanceID)
		case group.Left:
			t.answer(e.Request, e, fences(e.Codes))
		case group.Answer:
			t.answer(e.Request, e, e.Code == group.FencedInstanceID)
		case group.SetTimer:
			t.timers.start(timerKey{l.id, e.Kind, e.Member}, t.g.cfg.Now().Add(e.After))
		case group.ClearTimer:
			t.timers.stop(timerKey{l.id, e.Kind, e.Member})
		case group.Forget: // settle sees that it is blank
		}
	}
}

func fences(codes []group.Code) bool {
	for _, c := range codes {
		if c == group.FencedInstanceID {
			return true
		}
	}
	return false
}

// answer lets an answer go. One on which a client ends for good goes only when it is certain that this is the coordinator still: who was
// deposed does not know whom its successor took in.
func (t *term) answer(r group.Request, e group.Effect, fatal bool) {
	answer := t.answers[r]
	if answer == nil {
		return
	}
	delete(t.answers, r)
	if !fatal {
		answer(e)
		return
	}
	t.s.part.Confirm(t.epoch, func(err error) {
		if err != nil {
			e = misled(e)
		}
		answer(e)
	})
}

// misled is what is said in place of an answer that only the coordinator may give.
func misled(e group.Effect) group.Effect {
	switch e := e.(type) {
	case group.Joined:
		return group.Joined{Request: e.Request, Code: group.NotCoordinator, Generation: -1, MemberID: e.MemberID}
	case group.Synced:
		return group.Synced{Request: e.Request, Code: group.NotCoordinator}
	case group.Left:
		codes := make([]group.Code, len(e.Codes))
		for i := range codes {
			codes[i] = group.NotCoordinator
		}
		return group.Left{Request: e.Request, Codes: codes}
	case group.Answer:
		return group.Answer{Request: e.Request, Code: group.NotCoordinator}
	}
	return e
}

// appendRecord replicates a machine's record.
func (t *term) appendRecord(l *live, r *group.Record) {
	t.append(l, t.batch(pair{group.Key{Group: l.id}, r.Encode()}), func(err error) {
		switch {
		case l.spoiled:
		case err == nil:
			t.handle(l, group.Durable{})
		default:
			t.g.cfg.Logger.Warn("group's record was not appended: its members join anew", "group", l.id, "shard", t.s.number, "error", err)
			l.spoiled = true
			t.handle(l, group.Lost{})
		}
	}, nil)
}

// pair is a record of the topic; a nil value is a tombstone.
type pair struct {
	key   group.Key
	value []byte
}

func (t *term) batch(pairs ...pair) record.Batch {
	b := record.Builder{BaseTimestamp: t.g.cfg.Now().UnixMilli()}
	for _, p := range pairs {
		b.Append(record.Record{Key: p.key.Encode(), Value: p.value})
	}
	return b.Finish()
}

// append replicates a batch of a group. then is called on this goroutine with the outcome; when the term ends before there is one, lost is
// called instead, on whichever goroutine, unless it is nil.
func (t *term) append(l *live, b record.Batch, then func(error), lost func()) {
	l.flying++
	size := int64(len(b))
	t.s.part.Append(&partition.AppendRequest{Batch: b, Acks: partition.AcksAll, Epoch: t.epoch, Done: func(r partition.AppendResult) {
		there := t.post(func() {
			l.flying--
			t.count(size)
			then(r.Err)
			t.settle(l)
		})
		if !there && lost != nil {
			lost()
		}
	}})
}
