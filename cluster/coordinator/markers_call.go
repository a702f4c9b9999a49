package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/txn/field"
	"gopherlog/txn/producer"
)

// markersMethod carries markers from a coordinator's node to a node that leads their partitions.
//
//	call:    version i8 = 1 | session i64 | number i64 | floor i64 | count i32
//	         | count of { topic string | partition i32 | producer id i64 | epoch i16 | coordinator epoch i32 | version i16 | commit i8 }
//	answer:  count of i8, an outcome each
//
// Strings have a length of two bytes. session names the run of the sending process, number the call in it, and floor the oldest one that it
// still waits for: a call below that is one which the sender gave up, and comes too late. At transaction version 0 its markers could end a
// later transaction.
const markersMethod = "txn.markers"

const markersVersion = 1

// outcomes of a marker.
const (
	markerThere    int8 = 0
	markerAgain    int8 = 1 // try again, perhaps elsewhere
	markerOutdated int8 = 2 // the producer has gone on
	markerFenced   int8 = 3 // another coordinator took over
)

func outcomeOf(err error) int8 {
	switch {
	case err == nil:
		return markerThere
	case errors.Is(err, partition.ErrInvalidProducerEpoch):
		return markerOutdated
	case errors.Is(err, partition.ErrCoordinatorFenced):
		return markerFenced
	}
	return markerAgain
}

func errorOf(outcome int8) error {
	switch outcome {
	case markerThere:
		return nil
	case markerOutdated:
		return partition.ErrInvalidProducerEpoch
	case markerFenced:
		return partition.ErrCoordinatorFenced
	}
	return partition.ErrNotLeader
}

// post queues a marker for another node.
func (m *markers) post(f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	to := f.to.node // the flight may be elsewhere when its box is emptied
	box := m.boxes[to]
	if box == nil {
		box = &outbox{}
		m.boxes[to] = box
	}
	box.queue = append(box.queue, f)
	if box.calls < markerCalls {
		box.calls++
		m.wg.Go(func() { m.empty(to, box) })
	}
}

// empty calls a node until nothing waits for it any more.
func (m *markers) empty(to rpc.NodeID, box *outbox) {
	for {
		m.mu.Lock()
		n := min(len(box.queue), markersPerCall)
		if n == 0 || m.closed {
			box.calls--
			m.mu.Unlock()
			return
		}
		batch := append([]*flight(nil), box.queue[:n]...)
		box.queue = box.queue[n:]
		m.mu.Unlock()
		outcomes := m.call(to, batch)
		for i, f := range batch {
			m.finish(f, errorOf(outcomes[i]))
		}
	}
}

// call carries a batch and returns an outcome for each.
func (m *markers) call(to rpc.NodeID, batch []*flight) []int8 {
	outcomes := make([]int8, len(batch))
	for i := range outcomes {
		outcomes[i] = markerAgain
	}
	number, floor := m.fence.begin()
	defer m.fence.end(number)
	w := field.Writer{}
	w.Int8(markersVersion)
	w.Int64(m.fence.session)
	w.Int64(number)
	w.Int64(floor)
	w.Int32(int32(len(batch)))
	for _, f := range batch {
		writeMarker(&w, f.key, f.marker())
	}
	ctx, cancel := context.WithTimeout(m.ctx, markerCallTime)
	defer cancel()
	m.x.stats.calls.Inc()
	answer, err := m.x.cfg.Node.CallUp(ctx, to, markersMethod, w.Bytes)
	if err != nil {
		m.x.cfg.Logger.Debug("markers were not taken", "node", to, "markers", len(batch), "error", err)
		return outcomes
	}
	r := field.Reader{Bytes: answer}
	for i := range outcomes {
		got := r.Int8()
		if r.Err() != nil {
			m.x.cfg.Logger.Warn("malformed answer to markers", "node", to, "error", r.Err())
			return outcomes
		}
		outcomes[i] = got
	}
	return outcomes
}

func writeMarker(w *field.Writer, k markerKey, m producer.Marker) {
	w.Text(k.topic)
	w.Int32(k.number)
	w.Int64(m.ProducerID)
	w.Int16(m.Epoch)
	w.Int32(m.CoordinatorEpoch)
	w.Int16(int16(m.Version))
	commit := int8(0)
	if m.Commit {
		commit = 1
	}
	w.Int8(commit)
}

func readMarker(r *field.Reader) (k markerKey, m producer.Marker) {
	k.topic, k.number = r.Text(), r.Int32()
	m.ProducerID, m.Epoch, m.CoordinatorEpoch = r.Int64(), r.Int16(), r.Int32()
	m.Version = producer.TransactionVersion(r.Int16())
	m.Commit = r.Int8() == 1
	k.producer = m.ProducerID
	return k, m
}

// smallestMarker is how many bytes a marker takes at least.
const smallestMarker = 23

// serve writes the markers of a call into partitions that are led here, and answers when all have an outcome.
func (m *markers) serve(ctx context.Context, from rpc.NodeID, req []byte) ([]byte, error) {
	r := &field.Reader{Bytes: req}
	if v := r.Int8(); v != markersVersion {
		return nil, fmt.Errorf("coordinator: call of version %d, want %d", v, markersVersion)
	}
	session, number, floor := r.Int64(), r.Int64(), r.Int64()
	n := r.Length(smallestMarker)
	keys, all := make([]markerKey, max(n, 0)), make([]producer.Marker, max(n, 0))
	for i := range all {
		keys[i], all[i] = readMarker(r)
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("coordinator: markers: %w", err)
	}
	if !m.fence.admit(from, session, number, floor) {
		return nil, fmt.Errorf("coordinator: call %d of node %d comes too late", number, from)
	}
	g := gathering{outcomes: make([]byte, len(all)), left: len(all), full: make(chan struct{})}
	deadline := m.x.cfg.Now().Add(markerWait)
	var between []partition.Settling
	var of []func()
	for i := range all {
		p := m.x.cfg.Local(keys[i].topic, keys[i].number)
		if p == nil {
			g.add(i, partition.ErrNotLeader)
			continue
		}
		write := func() { m.write(p, all[i], deadline, func(err error) { g.add(i, err) }) }
		if s, settles := p.(unsettled); settles && s.Unsettled(partition.NoEpoch) {
			between, of = append(between, s), append(of, write)
			continue
		}
		write()
	}
	if len(between) > 0 { // led in a moment, here or elsewhere: their sender heard of it first
		partition.WhenSettled(between, markerWait, ctx.Done(), func(i int) { of[i]() })
	}
	return g.wait(ctx, deadline.Sub(m.x.cfg.Now()))
}

// unsettled is a participant that may be between leaders; *partition.Partition is the real one.
type unsettled interface {
	partition.Settling
	Unsettled(known int32) bool
}

// gathering collects the outcomes of a call's markers.
type gathering struct {
	full chan struct{}

	mu       sync.Mutex
	outcomes []byte
	left     int
}

func (g *gathering) add(i int, err error) {
	g.mu.Lock()
	g.outcomes[i] = byte(outcomeOf(err)) + 1 // zero: none yet
	g.left--
	last := g.left == 0
	g.mu.Unlock()
	if last {
		close(g.full)
	}
}

// wait returns the outcomes when all are there or the time is up; those that are not are to be tried again.
func (g *gathering) wait(ctx context.Context, patience time.Duration) ([]byte, error) {
	if len(g.outcomes) == 0 {
		return nil, nil
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-g.full:
	case <-t.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := make([]byte, len(g.outcomes))
	for i, o := range g.outcomes {
		if answer[i] = byte(markerAgain); o > 0 {
			answer[i] = o - 1
		}
	}
	return answer, nil
}

// callFence numbers the calls of this node, and refuses those of others that their senders gave up.
type callFence struct {
	session int64 // of this process, random

	mu     sync.Mutex
	last   int64
	open   map[int64]bool
	floors map[rpc.NodeID]sessionFloor
}

type sessionFloor struct{ session, floor int64 }

// begin gives a call its number, and the number of the oldest one that is awaited.
func (c *callFence) begin() (number, floor int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	if c.open == nil {
		c.open = map[int64]bool{}
	}
	c.open[c.last] = true
	floor = c.last
	for n := range c.open {
		floor = min(floor, n)
	}
	return c.last, floor
}

func (c *callFence) end(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, number)
}

// admit says whether a call is awaited by its sender still, as far as later calls told.
func (c *callFence) admit(from rpc.NodeID, session, number, floor int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.floors == nil {
		c.floors = map[rpc.NodeID]sessionFloor{}
	}
	known := c.floors[from]
	if session == known.session && number < known.floor {
		return false
	}
	if session != known.session || floor > known.floor {
		c.floors[from] = sessionFloor{session, floor}
	}
	return true
}
