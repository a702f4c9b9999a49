package load

import (
	"context"
	"fmt"
	"time"

	"gopherlog/bench/hdr"
	"gopherlog/bench/history"
)

// reader reads all partitions and says when each message became visible.
type reader struct {
	run      *runner
	consumer Consumer
	stream   *history.Stream // nil: no history
	visible  *hdr.Recorder
	through  *hdr.Recorder  // of messages that were made from others, from when these were due
	stalls   []stallTracker // nil: nobody asks
	polls    bool           // the end of each poll is noted
	tally    *tally
	position ends // next offset to be read, per partition
	messages ends // behind the last message that was read, per partition; markers do not count
	byTopic  map[string]topicPlan
	seen     map[laneKey]*readSet // owned by the reading goroutine

	cancel context.CancelFunc // nil before start
	ended  chan struct{}
}

func newReader(r *runner, c Consumer, s *history.Stream) *reader {
	d := &reader{run: r, consumer: c, stream: s, visible: hdr.NewRecorder(r.plan.Interval), through: hdr.NewRecorder(r.plan.Interval), tally: newTally(r.plan.Phases, r.plan.Interval),
		position: make(ends, len(r.places)), messages: make(ends, len(r.places)), byTopic: map[string]topicPlan{}, seen: map[laneKey]*readSet{}, ended: make(chan struct{})}
	for _, t := range r.topics {
		d.byTopic[t.name] = t
	}
	return d
}

// start reads until stop.
func (d *reader) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	go func() {
		defer close(d.ended)
		for ctx.Err() == nil {
			d.poll(ctx)
		}
	}()
}

// poll reads once. A failing consumer is asked again after a pause, so that it cannot spin.
func (d *reader) poll(ctx context.Context) {
	const pause = 10 * time.Millisecond
	var now time.Duration
	asked := d.run.clock.Now()
	err := d.consumer.Poll(ctx, func(m Delivery) {
		if now == 0 {
			now = d.run.clock.Now() // all messages of a poll were there at once
		}
		d.read(m, now)
	})
	if now > 0 && d.polls && d.stream != nil {
		d.stream.Append(history.Record{Kind: history.Group, Step: history.PollEnd, Asked: min(asked, now), At: now})
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	d.run.errors.class(fmt.Errorf("read: %w", err))
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// stop ends the reading and closes the consumer; it may be called where start was not.
func (d *reader) stop() {
	if d.cancel != nil {
		d.cancel()
	}
	d.consumer.Close()
	if d.cancel != nil {
		<-d.ended
	}
}

func (d *reader) read(m Delivery, now time.Duration) {
	t, ok := d.byTopic[m.Topic]
	if !ok || m.Partition < 0 || int(m.Partition) >= t.partitions {
		d.run.errors.class(fmt.Errorf("read: %s/%d was never asked for", m.Topic, m.Partition))
		return
	}
	flat := t.first + int(m.Partition)
	d.position.raise(flat, m.Offset+1)
	if d.stalls != nil {
		d.stalls[flat].read(m.Offset+1, now)
	}
	if m.Control {
		return
	}
	d.messages.raise(flat, m.Offset+1)
	var h header
	ours, sound := h.open(m.Value)
	if ours && sound && h.Run == d.run.plan.RunID && h.Flags&flagProbe != 0 {
		return
	}
	r := history.Record{Kind: history.Delivered, Partition: uint32(flat), Offset: m.Offset, At: now}
	switch {
	case ours && !sound:
		r.Flags = history.BadChecksum
	case !ours || !h.fits(d.run.plan.RunID):
		r.Flags = history.Foreign
	default:
		r.Producer, r.Session, r.Sequence, r.Txn = h.Producer, h.Session, h.Sequence, h.Txn
		if h.Partition != uint32(flat) {
			r.Flags = history.WrongPartition
		}
		switch first := d.first(&h, uint32(flat)); {
		case first && h.Flags&flagDerived != 0:
			d.through.Record(h.Intended, now-h.Intended)
		case first:
			d.visible.Record(h.Intended, now-h.Intended)
			d.tally.add(h.Intended, now, func(p *PhaseCounts, k *Tick) { p.Read++; k.Read++ })
		}
	}
	d.keep(r, &h)
}

// keep writes a delivery into the history, and behind it what the message was made from.
func (d *reader) keep(r history.Record, h *header) {
	if d.stream == nil {
		return
	}
	d.stream.Append(r)
	if r.Flags&(history.BadChecksum|history.Foreign) == 0 && h.derived(len(d.run.places)) {
		d.stream.Append(history.Record{Kind: history.Origin, Partition: h.FromPartition, Offset: h.FromOffset})
	}
}

// nobody is the consumer of a load that is measured alone: it reads nothing.
type nobody struct{}

func (nobody) Poll(ctx context.Context, _ func(Delivery)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (nobody) Close() {}

// laneKey names a lane as it was read.
type laneKey struct {
	producer, session uint16
	partition         uint32
}

// readSet is a bit for each sequence of a lane that was read.
type readSet []uint64

// maxReadSet bounds what a damaged sequence could claim: 8 MiB, 64 million messages of one lane. Beyond it every read counts as the first.
const maxReadSet = 1 << 20

// first says whether a message is read for the first time: a message becomes visible once, whatever copies or second readings follow.
func (d *reader) first(h *header, partition uint32) bool {
	key := laneKey{h.Producer, h.Session, partition}
	set := d.seen[key]
	if set == nil {
		set = &readSet{}
		d.seen[key] = set
	}
	word, bit := h.Sequence>>6, uint64(1)<<(h.Sequence&63)
	if word >= maxReadSet {
		return true
	}
	for uint64(len(*set)) <= word {
		*set = append(*set, 0)
	}
	if (*set)[word]&bit != 0 {
		return false
	}
	(*set)[word] |= bit
	return true
}
