package coordinator

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

const (
	maxMarkers     = 1 << 16 // on their way from this node; more are dropped, and sent again by their machines
	markersPerCall = 1 << 10
	markerCalls    = 8                      // under way to one node
	markerCallTime = 2 * time.Second        // how long a call waits for its answer
	markerWait     = 250 * time.Millisecond // how long a partition's leader tries
	// A marker that a leader did not take is sent to it again after a pause that doubles, unless another leader or a later term is heard of
	// before that: nothing tells that a leader can write again, or that a node is up. One whose partition has no leader rests until it has.
	firstMarkerWait = 10 * time.Millisecond
	lastMarkerWait  = 250 * time.Millisecond
)

// markers carries markers to the leaders of partitions until they are there, one at a time for each partition and producer, those for one
// node together.
type markers struct {
	x      *Transactions
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	kick   chan struct{} // capacity 1
	fence  callFence

	mu      sync.Mutex // guards what follows
	closed  bool
	flights map[markerKey]*flight
	boxes   map[rpc.NodeID]*outbox
	asking  bool // whether topics that the image does not know are gone
}

// markerKey is what one marker at a time is on its way for.
type markerKey struct {
	topic    string
	number   int32
	producer int64
}

// flight is a marker on its way, or waiting to be sent once more.
type flight struct {
	key  markerKey
	id   string
	of   *txnTerm
	m    kafkatx.WriteMarker
	next *flight // what is to go after it: of a later term or transaction

	tries int
	again time.Time // when to try again; zero: it is being tried
	to    lead      // who led the partition when it was tried, tried there or not
	lost  bool      // the image does not know the partition
}

// outbox is what waits for one node.
type outbox struct {
	queue []*flight
	calls int
}

func newMarkers(x *Transactions) *markers {
	m := &markers{x: x, kick: make(chan struct{}, 1), flights: map[markerKey]*flight{}, boxes: map[rpc.NodeID]*outbox{}}
	m.fence.session = rand.Int64()
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wg.Go(m.run)
	return m
}

func (m *markers) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
}

// send begins to carry a marker. It does not block.
func (m *markers) send(t *txnTerm, id string, w kafkatx.WriteMarker) {
	if m.x.hit(beforeMarkers) != nil {
		return
	}
	f := &flight{key: markerKey{w.Partition.Topic, w.Partition.Number, w.ProducerID}, id: id, of: t, m: w, to: lead{node: meta.NoLeader}}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	if cur := m.flights[f.key]; cur != nil {
		if cur.of != t || cur.m != w {
			cur.next = f
		}
		m.mu.Unlock()
		return
	}
	if len(m.flights) >= maxMarkers {
		m.mu.Unlock()
		return
	}
	m.flights[f.key] = f
	m.mu.Unlock()
	m.route(f)
}

// route tries a marker at its partition's leader.
func (m *markers) route(f *flight) {
	to, known := m.find(f)
	f.to = to
	switch {
	case !known:
		m.put(f, true)
	case to.node == m.x.cfg.Self:
		p := m.x.cfg.Local(f.key.topic, f.key.number)
		if p == nil {
			m.finish(f, partition.ErrNotLeader)
			return
		}
		m.write(p, f.marker(), m.x.cfg.Now().Add(markerWait), func(err error) { m.finish(f, err) })
	case to.node == meta.NoLeader, !m.x.cfg.Alive(to.node):
		m.put(f, false) // somebody else is to lead soon
	default:
		m.post(f)
	}
}

// find is who leads a marker's partition; false: the image does not know the partition.
func (m *markers) find(f *flight) (lead, bool) {
	t := m.x.cfg.Meta.Image().Topic(f.key.topic)
	if t == nil || int(f.key.number) >= len(t.Partitions) {
		return lead{node: meta.NoLeader}, false
	}
	return leadOf(m.x.cfg.Self, t, f.key.number, m.x.cfg.Local(f.key.topic, f.key.number)), true
}

func (f *flight) marker() producer.Marker {
	return producer.Marker{
		ProducerID: f.m.ProducerID, Epoch: f.m.Epoch, CoordinatorEpoch: f.m.Coordinator, Commit: f.m.Commit,
		Version: producer.TransactionVersion(f.m.Version),
	}
}

// write is what a partition's leader does with a marker.
func (m *markers) write(p Participant, w producer.Marker, deadline time.Time, done func(error)) {
	if err := m.x.hit(beforeMarker); err != nil {
		done(err)
		return
	}
	p.WriteMarker(w, deadline, func(err error) {
		if err == nil {
			err = m.x.hit(afterMarker)
		}
		done(err)
	})
}

// untilLed is longer than any pause: only the news of a leader ends it.
const untilLed = time.Hour

// put lets a marker wait until it is to be tried again; lost: its partition is not in the image.
func (m *markers) put(f *flight, lost bool) {
	pause := min(firstMarkerWait<<min(f.tries, 10), lastMarkerWait)
	if f.to.node == meta.NoLeader && !lost {
		pause = untilLed
	}
	m.mu.Lock()
	f.tries++
	f.lost = lost
	f.again = m.x.cfg.Now().Add(pause)
	m.mu.Unlock()
	m.nudge()
}

func (m *markers) nudge() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// finish is the outcome of a try.
func (m *markers) finish(f *flight, err error) {
	switch {
	case err == nil, errors.Is(err, partition.ErrInvalidProducerEpoch):
		m.done(f)
	case errors.Is(err, partition.ErrCoordinatorFenced):
		m.drop(f) // another coordinator took over, or did so once in the life of this producer id
	default:
		m.x.stats.retried.Inc()
		m.put(f, false)
	}
}

// done says that the partition has the marker, or can never need it.
func (m *markers) done(f *flight) {
	f.of.post(func() {
		f.of.marked(f.id, kafkatx.Marked{Partition: f.m.Partition, ProducerID: f.m.ProducerID, Epoch: f.m.Epoch})
	})
	m.drop(f)
}

// drop ends a flight; the one behind it begins.
func (m *markers) drop(f *flight) {
	m.mu.Lock()
	next := f.next
	if next == nil || m.closed {
		delete(m.flights, f.key)
		m.mu.Unlock()
		return
	}
	m.flights[f.key] = next
	m.mu.Unlock()
	m.route(next)
}

// look is called when the image changes or a replica here heard of its leader: a partition may have another one.
func (m *markers) look() { m.nudge() }

// run tries again what waits, when its time comes or its partition has another leader.
func (m *markers) run() {
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		ready, over, next := m.due(m.x.cfg.Now())
		for _, f := range over {
			m.drop(f)
		}
		for _, f := range ready {
			m.route(f)
		}
		alarm.Reset(next)
		select {
		case <-m.kick:
		case <-alarm.C:
		case <-m.ctx.Done():
			return
		}
	}
}

// due takes what is to be tried now, what nobody wants any more, and says when to look again.
func (m *markers) due(now time.Time) (ready, over []*flight, next time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next = time.Hour
	for _, f := range m.flights {
		if f.again.IsZero() {
			continue
		}
		to, known := m.find(f)
		moved := known && to.node != meta.NoLeader && (to != f.to || f.lost)
		if moved {
			f.tries = 0
		}
		switch {
		case f.next != nil || f.of.ended():
			over = append(over, f)
		case moved, known && !now.Before(f.again):
			ready = append(ready, f)
		case !known && m.asking:
			continue // catchUp says when it is done
		case !known && !now.Before(f.again) && !m.closed:
			m.asking = true
			m.wg.Go(m.catchUp)
			continue
		default:
			next = min(next, max(f.again.Sub(now), time.Millisecond))
			continue
		}
		f.again = time.Time{}
	}
	return ready, over, next
}

// catchUp makes the image current; partitions that it does not show then are gone for ever, and so is the need for their markers.
func (m *markers) catchUp() {
	before := m.unknown()
	ctx, cancel := context.WithTimeout(m.ctx, markerCallTime)
	err := m.x.cfg.Meta.CatchUp(ctx)
	cancel()
	m.mu.Lock()
	m.asking = false
	var gone []*flight
	for _, f := range before {
		if _, known := m.find(f); !known && err == nil && !f.again.IsZero() {
			f.again = time.Time{}
			gone = append(gone, f)
		}
	}
	m.mu.Unlock()
	for _, f := range gone {
		m.done(f)
	}
	for _, f := range before {
		m.later(f)
	}
	m.nudge()
}

// unknown are the waiting markers whose partition the image does not show.
func (m *markers) unknown() (all []*flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.flights {
		if _, known := m.find(f); !known && !f.again.IsZero() {
			all = append(all, f)
		}
	}
	return all
}

// later puts off a marker that waits.
func (m *markers) later(f *flight) {
	m.mu.Lock()
	waits := !f.again.IsZero() && m.flights[f.key] == f
	m.mu.Unlock()
	if waits {
		m.put(f, true)
	}
}
