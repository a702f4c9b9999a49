package check

import (
	"fmt"
	"math/bits"
	"time"

	"gopherlog/bench/history"
)

// lane is what is known of one producer session's messages to one partition. Two bits a message: acknowledged, and seen in the final
// read. Everything rarer is kept in maps.
type lane struct {
	producer, session uint16
	partition         uint32
	index             uint32
	sent              uint64 // sequences below were sent
	sends             uint64 // Sent records; fewer than sent means that the history has holes
	acked, seen       bitset
	failed            map[uint64]bool
	last              uint64 // sequence of the last first delivery, plus one
	low, high         uint64 // least and greatest sequence seen
	any               bool   // something was seen

	readable bitset   // found by the committed final read; only kept where there are two final reads
	runs     []txnRun // which transaction which sequences belong to
	cursor   int      // where in runs the last look-up ended
	spans    spans    // of sends and offsets, for A10
}

// bitset grows with what is set.
type bitset []uint64

func (b bitset) has(i uint64) bool { return i>>6 < uint64(len(b)) && b[i>>6]>>(i&63)&1 != 0 }

func (b *bitset) set(i uint64) {
	for uint64(len(*b)) <= i>>6 {
		*b = append(*b, 0)
	}
	(*b)[i>>6] |= 1 << (i & 63)
}

// without counts the bits of b that are not in o.
func (b bitset) without(o bitset) (n int64) {
	for i, w := range b {
		if i < len(o) {
			w &^= o[i]
		}
		n += int64(bits.OnesCount64(w))
	}
	return n
}

// ledger is everything that several rules look at.
type ledger struct {
	files      map[string][]string
	partitions []history.Partition
	drained    bool
	expires    bool // retention may delete the head of a log
	holes      bool // the history misses records: what is not in it may have been there

	byPlace  [][]*lane // partition → producer → lane of session 0
	sessions map[laneKey]*lane
	lanes    []*lane
	next     []int64 // by partition: where the final read stands
	end      []int64 // by partition: the last answer for its end; -1 none
	start    []int64 // by partition: below it retention has deleted; -1 where it may have and nobody told
	views    []view  // by partition: which offsets the final read of the guarantee's isolation found
	final    string  // role of the final read that shows the log as it is
	raw      bool    // it is the uncommitted one; the committed one is another
	book     book
	derived  bool // some messages were made from others
	polls    *polls
	groups   groups
	grace    time.Duration

	witnesses witnesses
	order     order
	totals    Totals
	damage    []string // why the history cannot be trusted whole
}

type laneKey struct {
	producer, session uint16
	partition         uint32
}

func newLedger(dir string, o Options) (*ledger, error) {
	files, err := history.Files(dir)
	if err != nil {
		return nil, err
	}
	l := &ledger{files: files, drained: o.Drained, final: history.RoleDrain, grace: o.Grace, expires: o.Expires, holes: o.Dropped > 0, sessions: map[laneKey]*lane{}}
	for _, names := range files {
		r, err := history.OpenReader(names[0])
		if err != nil {
			return nil, err
		}
		l.partitions = r.Header().Partitions
		r.Close()
		break
	}
	if l.raw = len(files[history.RoleUncommitted]) > 0; l.raw {
		l.final, l.drained = history.RoleUncommitted, o.RawDrained
	}
	l.book = newBook()
	n := len(l.partitions)
	l.views = make([]view, n)
	l.witnesses, l.order = newWitnesses(n), order{ticks: make([]ticks, n)}
	l.byPlace, l.next, l.end, l.start = make([][]*lane, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range l.end {
		l.end[i] = -1
		if o.Expires {
			l.start[i] = -1
		}
	}
	l.totals.Partitions = n
	return l, nil
}

// each reads the records of a kind in all files of a role; kind 0 means all records.
func (l *ledger) each(role string, kind history.Kind, fn func(r *history.Record)) error {
	for _, name := range l.files[role] {
		if err := l.file(name, func(r *history.Record) {
			if kind == 0 || r.Kind == kind {
				fn(r)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// file reads one file. A damaged one is read as far as possible and noted once.
func (l *ledger) file(name string, fn func(r *history.Record)) error {
	r, err := history.OpenReader(name)
	if err != nil {
		return err
	}
	var rec history.Record
	for r.Next(&rec) {
		fn(&rec)
	}
	if err := r.Err(); err != nil {
		l.hole(err.Error())
	}
	return r.Close()
}

// delivered reads what a role's consumers were given.
func (l *ledger) delivered(role string, fn func(r *history.Record)) error {
	return l.each(role, history.Delivered, fn)
}

func (l *ledger) note(what string) {
	for _, d := range l.damage {
		if d == what {
			return
		}
	}
	l.damage = append(l.damage, what)
}

// hole notes damage that took records away.
func (l *ledger) hole(what string) {
	l.holes = true
	l.note(what)
}

// find is the lane of a record; nil where nothing was sent in it.
func (l *ledger) find(r *history.Record) *lane {
	if r.Session == 0 {
		if row := l.byPlace[r.Partition]; int(r.Producer) < len(row) {
			return row[r.Producer]
		}
		return nil
	}
	return l.sessions[laneKey{r.Producer, r.Session, r.Partition}]
}

// open is the lane of a record, made where it is new.
func (l *ledger) open(r *history.Record) *lane {
	if a := l.find(r); a != nil {
		return a
	}
	a := &lane{producer: r.Producer, session: r.Session, partition: r.Partition, index: uint32(len(l.lanes))}
	l.lanes = append(l.lanes, a)
	if r.Session != 0 {
		l.sessions[laneKey{r.Producer, r.Session, r.Partition}] = a
		return a
	}
	row := l.byPlace[r.Partition]
	for len(row) <= int(r.Producer) {
		row = append(row, nil)
	}
	row[r.Producer] = a
	l.byPlace[r.Partition] = row
	return a
}

// readSends notes what was attempted.
func (l *ledger) readSends() error {
	err := l.each(history.RoleSends, 0, func(r *history.Record) {
		if r.Kind != history.Sent {
			l.derived = l.derived || r.Kind == history.Origin
			return
		}
		a := l.open(r)
		a.sends++
		a.sent = max(a.sent, r.Sequence+1)
		s := a.spans.at(r.Sequence)
		s.sent = min(s.sent, r.At)
		l.totals.Sent++
		l.book.sent(a, r)
	})
	for _, a := range l.lanes {
		if a.sends != a.sent {
			l.hole(fmt.Sprintf("the history of producer %d in partition %d has %d sends of %d", a.producer, a.partition, a.sends, a.sent))
		}
	}
	l.totals.Lanes = len(l.lanes)
	return err
}

// readAcks notes outcomes. Outcomes without a send mean that the history has holes.
func (l *ledger) readAcks() error {
	var strangers, twice int64
	err := l.each(history.RoleAcks, history.Outcome, func(r *history.Record) {
		a := l.find(r)
		if a == nil || r.Sequence >= a.sent {
			strangers++
			return
		}
		switch r.Result {
		case history.OK:
			if a.acked.has(r.Sequence) {
				twice++
				return
			}
			if l.start[r.Partition] > max(r.Offset, 0) {
				l.book.expire(a, r)
			}
			a.acked.set(r.Sequence)
			l.totals.Acked++
			l.witnesses.acked(r, a)
			l.order.acked(a, r)
		case history.Failed:
			if a.failed == nil {
				a.failed = map[uint64]bool{}
			}
			a.failed[r.Sequence] = true
			l.totals.Failed++
			l.book.failed(a, r)
		case history.Unknown:
			l.totals.Unknown++
			if l.start[r.Partition] > 0 {
				l.book.expire(a, r)
			}
		}
	})
	if strangers > 0 {
		l.hole(fmt.Sprintf("%d outcomes belong to no send", strangers))
	}
	if twice > 0 {
		l.note(fmt.Sprintf("%d messages were acknowledged twice", twice))
	}
	l.totals.Open = l.totals.Sent - l.totals.Acked - l.totals.Failed - l.totals.Unknown
	return err
}

// finding is what a rule counts while it looks.
type finding struct {
	count, of int64
	missing   string // why nothing could be checked; "" where it could
	shapes    map[string]int64
	examples  []Example
}

func (f *finding) add(shape string, e func() Example) {
	f.count++
	if shape != "" {
		f.shape(shape)
	}
	if len(f.examples) < MaxExamples {
		f.examples = append(f.examples, e())
	}
}

// shape counts one of a shape, anomaly or not.
func (f *finding) shape(shape string) { f.shapeBy(shape, 1) }

func (f *finding) shapeBy(shape string, n int64) {
	if f.shapes == nil {
		f.shapes = map[string]int64{}
	}
	f.shapes[shape] += n
}

// example is a witness at a record.
func (l *ledger) example(r *history.Record, what string) Example {
	p := l.partitions[r.Partition]
	return Example{Topic: p.Topic, Partition: p.Partition, Offset: r.Offset, Producer: int(r.Producer), Session: int(r.Session),
		Sequence: r.Sequence, What: what, Seconds: seconds(r.At)}
}

func seconds(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }
