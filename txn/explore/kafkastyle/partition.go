package kafkastyle

import (
	"fmt"
	"slices"
	"strings"

	"gopherlog/engine/record"
	"gopherlog/txn/explore"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

// partition drives producer.State and producer.Overlay: a leader that checks, asks and appends.
type partition struct {
	Setting
	i int
}

// entry is a record of a partition: a batch of the client's transaction, or a marker.
type entry struct {
	Marker      bool
	Commit      bool
	Epoch       int16
	Coordinator int32
	Txn         int // the client's count: the machines do not see it
	Seq         int32
}

func (e entry) String() string {
	if e.Marker {
		return fmt.Sprintf("%s epoch %d by %d", strings.ToUpper(word(e.Commit)), e.Epoch, e.Coordinator)
	}
	return fmt.Sprintf("batch %d epoch %d sequence %d", e.Txn, e.Epoch, e.Seq)
}

// batch is the entry as the machines see it.
func (e entry) batch(offset int) record.Batch {
	var b record.Batch
	if e.Marker {
		kind := record.Abort
		if e.Commit {
			kind = record.Commit
		}
		b = record.BuildControl(kind, theProducer, e.Epoch, e.Coordinator, 0)
	} else {
		builder := record.Builder{Producer: &record.Producer{ID: theProducer, Epoch: e.Epoch, Sequence: e.Seq}, Transactional: true}
		builder.Append(record.Record{})
		b = builder.Finish()
	}
	b.SetBaseOffset(int64(offset))
	return b
}

// partitionLocal is a leader: what its log holds, what it appended, and whom it asked.
type partitionLocal struct {
	log, pending []entry
	asked        bool
	epoch        int16 // that was asked about
	confirmed    bool
	held         []entry // batches that wait for the answer
}

func (l partitionLocal) String() string {
	s := fmt.Sprint(l.log)
	if len(l.pending) > 0 {
		s += fmt.Sprintf(" +%v", l.pending)
	}
	if l.asked {
		s += fmt.Sprintf(" asked about epoch %d, confirmed %v", l.epoch, l.confirmed)
	}
	if len(l.held) > 0 {
		s += fmt.Sprintf(" holding %v", l.held)
	}
	return s
}

func (p partition) Name() string  { return fmt.Sprintf("p%d", p.i) }
func (partition) Deposable() bool { return true }

func (p partition) Boot(_ int, log []explore.Record) (explore.Local, []explore.Effect) {
	var l partitionLocal
	for _, r := range log {
		l.log = append(l.log, r.(entry))
	}
	return l, nil
}

func (p partition) Own(local explore.Local) []explore.Event {
	if l := local.(partitionLocal); l.asked && !l.confirmed {
		return []explore.Event{again("asks again")}
	}
	return nil
}

// desk is a leader at work: the machines, built from the local state.
type desk struct {
	partition
	partitionLocal
	state   *producer.State
	overlay *producer.Overlay
	ask     producer.Ask
	out     []explore.Effect
}

func (p partition) open(l partitionLocal) *desk {
	d := &desk{partition: p, partitionLocal: l, state: producer.New(), overlay: producer.NewOverlay()}
	d.log, d.pending, d.held = slices.Clip(l.log), slices.Clip(l.pending), slices.Clip(l.held)
	for i, e := range l.log {
		d.state.Apply(e.batch(i))
	}
	for i, e := range l.pending {
		d.overlay.Add(e.batch(len(l.log)+i), e)
	}
	if l.asked {
		d.ask = d.overlay.Ask(theProducer, l.epoch)
		if l.confirmed {
			d.overlay.Answer(theProducer, d.ask, true, producer.TransactionVersion(p.coordinated()))
		}
	}
	return d
}

// close is the local state after the work.
func (d *desk) close() (explore.Local, []explore.Effect) {
	d.epoch, d.confirmed, _, d.asked = d.overlay.Asked(theProducer)
	if !d.asked {
		d.epoch, d.held = 0, nil // a driver checks again what it held: here the client repeats it
	}
	return d.partitionLocal, d.out
}

func (d *desk) say(to explore.ID, body explore.Body) {
	d.out = append(d.out, explore.Send{To: to, Body: body})
}

func (p partition) Handle(local explore.Local, e explore.Event) (explore.Local, []explore.Effect) {
	d := p.open(local.(partitionLocal))
	switch e := e.(type) {
	case again:
		d.say(coordinatorID, verify{p.i, d.epoch})
	case explore.Durable:
		d.durable()
	case explore.Message:
		switch m := e.Body.(type) {
		case produce:
			d.check(entry{Txn: m.Txn, Epoch: m.Epoch, Seq: m.Seq})
		case verified:
			d.verified(m)
		case mark:
			d.mark(m)
		}
	}
	return d.close()
}

func (d *desk) append(e entry) {
	d.overlay.Add(e.batch(len(d.log)+len(d.pending)), e)
	d.pending = append(d.pending, e)
	d.out = append(d.out, explore.Append{Record: e})
}

func (d *desk) durable() {
	e := d.pending[0]
	d.state.Apply(e.batch(len(d.log)))
	d.overlay.Done(theProducer)
	d.log, d.pending = append(d.log, e), slices.Clone(d.pending[1:])
	if e.Marker {
		d.say(coordinatorID, marked{d.i, e.Epoch})
	} else {
		d.say(clientID, produced{e.Txn, d.i, kafkatx.OK})
	}
}

// check is Produce.
func (d *desk) check(e entry) {
	v := d.state.Check(e.batch(0), d.overlay)
	if v.Kind == producer.Verify && d.Plant == NoVerify {
		v.Kind = producer.Append
	}
	switch v.Kind {
	case producer.Append:
		d.append(e)
	case producer.Duplicate:
		if v.InFlight == nil { // else it is answered with the original
			d.say(clientID, produced{e.Txn, d.i, kafkatx.OK})
		}
	case producer.Verify:
		d.ask = d.overlay.Ask(theProducer, e.Epoch)
		d.held = []entry{e}
		d.say(coordinatorID, verify{d.i, e.Epoch})
	case producer.Hold: // the client repeats it
	case producer.Reject:
		if v.Reason != producer.StillEnding { // held until the marker comes: the client repeats it
			d.say(clientID, produced{e.Txn, d.i, kafkatx.InvalidProducerEpoch})
		}
	}
}

// verified is the coordinator's answer.
func (d *desk) verified(m verified) {
	if !d.asked || d.partitionLocal.confirmed || m.Epoch != d.epoch {
		return
	}
	d.overlay.Answer(theProducer, d.ask, m.Code == kafkatx.OK, producer.TransactionVersion(d.coordinated()))
	held := d.held
	d.held = nil
	for _, e := range held {
		if m.Code != kafkatx.OK {
			d.say(clientID, produced{e.Txn, d.i, m.Code})
		} else {
			d.check(e)
		}
	}
}

// mark is WriteMarker.
func (d *desk) mark(m mark) {
	switch v := d.state.CheckMarker(m.marker(d.Plant), d.overlay); {
	case v.Kind == producer.Append:
		d.append(entry{Marker: true, Commit: m.Commit, Epoch: m.Epoch, Coordinator: m.Coordinator})
	case v.Kind == producer.Duplicate && v.InFlight != nil: // acknowledged with the original
	case v.Kind == producer.Duplicate && d.Plant == RefusedMarker:
	case v.Kind == producer.Duplicate, v.Reason == producer.InvalidEpoch:
		d.say(coordinatorID, marked{d.i, m.Epoch})
	}
}
