package kafkastyle

import (
	"fmt"

	"gopherlog/txn/explore"
	"gopherlog/txn/kafkatx"
)

// invariants of the world. They read the durable logs and what the client was told; no machine is asked whether it did well.
type invariants struct{ Setting }

// fate is what became of a batch.
type fate uint8

const (
	absent fate = iota
	open
	committed
	aborted
)

// maxTransactions bounds those of a world.
const maxTransactions = 8

// partitionDigest sums up a partition's log. Only durable records count.
type partitionDigest struct {
	fates  [maxTransactions]fate
	stable int   // last stable offset
	term   int32 // of the coordinator that wrote the newest marker
	busy   bool
	fault  string
}

// coordinatorDigest sums up the coordinator's log; what waits to be durable counts.
type coordinatorDigest struct{ fault string }

func digest(id explore.ID, log, pending []explore.Record, _ explore.Local) any {
	switch id {
	case clientID:
		return nil
	case coordinatorID:
		return digestCoordinator(log, pending)
	}
	return digestPartition(log, pending)
}

// digestCoordinator: what was decided is completed as it was decided, whatever coordinator comes next, or is owed by the transaction that
// begins meanwhile, which owes nothing else and never more than before.
func digestCoordinator(log, pending []explore.Record) *coordinatorDigest {
	was := given
	for _, records := range [][]explore.Record{log, pending} {
		for _, r := range records {
			is := r.(step).Meta
			if !follows(is, was) {
				return &coordinatorDigest{fmt.Sprintf("decided again: %s follows %s", is, was)}
			}
			was = is
		}
	}
	return &coordinatorDigest{}
}

func follows(is, was *kafkatx.Meta) bool {
	owed := was.Owed
	if was.Status.Decided() {
		owed = &kafkatx.Owed{Commit: was.Status == kafkatx.PrepareCommit, Partitions: was.Partitions}
	}
	if is.Owed != nil && (owed == nil || is.Owed.Commit != owed.Commit || len(is.Owed.Partitions) > len(owed.Partitions)) {
		return false
	}
	switch was.Status {
	case kafkatx.PrepareCommit:
		return is.Status == kafkatx.CompleteCommit || is.Owed != nil
	case kafkatx.PrepareAbort:
		return is.Status == kafkatx.CompleteAbort || is.Owed != nil
	}
	return true
}

func digestPartition(log, pending []explore.Record) *partitionDigest {
	d := &partitionDigest{busy: len(pending) > 0, stable: -1}
	for i, r := range log {
		switch e := r.(entry); {
		case e.Marker && e.Coordinator < d.term:
			d.fault = fmt.Sprintf("coordinator %d ends a transaction after coordinator %d did", e.Coordinator, d.term)
		case e.Marker:
			d.term = e.Coordinator
			d.end(e.Commit)
		case d.fates[e.Txn] != absent:
			d.fault = fmt.Sprintf("batch %d was appended twice", e.Txn)
		default:
			d.fates[e.Txn] = open
			if d.stable < 0 {
				d.stable = i
			}
		}
	}
	if d.stable < 0 {
		d.stable = len(log)
	} else {
		d.busy = true
	}
	return d
}

func (d *partitionDigest) end(commit bool) {
	d.stable = -1
	for i, f := range d.fates {
		if f != open {
			continue
		}
		d.fates[i] = aborted
		if commit {
			d.fates[i] = committed
		}
	}
}

func (in invariants) partitions(v explore.View) []*partitionDigest {
	out := make([]*partitionDigest, in.Partitions)
	for i := range out {
		out[i] = v.Digest(partitionID(i)).(*partitionDigest)
	}
	return out
}

// inTurn: nothing of a transaction is written anywhere before the one before it has ended everywhere. Where epochs do not tell transactions
// apart, a batch that comes late may be anybody's.
func (in invariants) inTurn(ps []*partitionDigest) error {
	first, begun := maxTransactions, 0
	for _, p := range ps {
		for t, f := range p.fates {
			if f == absent {
				continue
			}
			begun = max(begun, t)
			if f == open {
				first = min(first, t)
			}
		}
	}
	if first < begun && in.Version >= 2 && in.Plant != OneEpoch {
		return fmt.Errorf("transaction %d has begun, and transaction %d is open", begun, first)
	}
	return nil
}

// always: nothing is decided twice or ended by a coordinator of an older term, a transaction is never torn, nothing is committed that the
// client did not ask to commit, and what it was told stays true.
func (in invariants) always(v explore.View) error {
	if c := v.Digest(coordinatorID).(*coordinatorDigest); c.fault != "" {
		return fmt.Errorf("%s", c.fault)
	}
	l, ps := v.Local(clientID).(clientLocal), in.partitions(v)
	if err := in.inTurn(ps); err != nil {
		return err
	}
	for t := range len(l.Told) {
		var seen [4]bool
		for i, p := range ps {
			if p.fault != "" {
				return fmt.Errorf("p%d: %s", i, p.fault)
			}
			seen[p.fates[t]] = true
		}
		switch {
		case seen[committed] && seen[aborted]:
			return fmt.Errorf("transaction %d is torn", t)
		case seen[committed] && l.Asked&(1<<t) == 0:
			return fmt.Errorf("transaction %d is committed, which the client never asked for", t)
		case seen[committed] && l.Told[t] == 'a':
			return fmt.Errorf("transaction %d is committed, and the client was told that it is aborted", t)
		case (seen[aborted] || seen[absent]) && l.Told[t] == 'c':
			return fmt.Errorf("transaction %d is lost: the client was told that it is committed", t)
		}
	}
	return nil
}

// step: the last stable offset never goes back.
func (in invariants) step(before, after explore.View) error {
	was, is := in.partitions(before), in.partitions(after)
	for i := range is {
		if is[i].stable < was[i].stable {
			return fmt.Errorf("the last stable offset of p%d went back from %d to %d", i, was[i].stable, is[i].stable)
		}
	}
	return nil
}

// ended: the client has stopped, and nothing is open or under way.
func (in invariants) ended(v explore.View) bool {
	if l := v.Local(clientID).(clientLocal); l.Move != finished && l.Move != dead {
		return false
	}
	s := v.Local(coordinatorID).(kafkatx.State)
	if len(s.Pending) > 0 || s.Ending() || s.Meta.Status == kafkatx.Ongoing {
		return false
	}
	for _, p := range in.partitions(v) {
		if p.busy {
			return false
		}
	}
	return true
}

// rest: at the end a transaction is committed in every partition or in none.
func (in invariants) rest(v explore.View) error {
	l, ps := v.Local(clientID).(clientLocal), in.partitions(v)
	for t := range len(l.Told) {
		n := 0
		for _, p := range ps {
			if p.fates[t] == committed {
				n++
			}
		}
		if n != 0 && n != len(ps) {
			return fmt.Errorf("transaction %d is committed in %d of %d partitions", t, n, len(ps))
		}
	}
	return nil
}

// spent: answers to what the client has stopped waiting for; and, if only EndTxn may come late, everything else that nobody waits for.
func (in invariants) spent(v explore.View, m explore.Message) bool {
	l := v.Local(clientID).(clientLocal)
	switch b := m.Body.(type) {
	case answer:
		return b.Request < clientRequest(l.Txn, 0) || b.Request != l.request() && l.past(b.Request)
	case produced:
		return b.Txn < l.Txn || b.Txn == l.Txn && (b.Part < l.Part || l.Move > producing)
	}
	return in.OnlyEndsLate && in.late(v, l, m)
}

// past says that the client will not make that request of its current transaction any more: moves within one only go forward.
func (l clientLocal) past(r kafkatx.Request) bool {
	return l.Move == finished || l.Move == dead || l.Move > producing && r < clientRequest(l.Txn, int(choosing)*10)
}

func (in invariants) late(v explore.View, l clientLocal, m explore.Message) bool {
	ending := v.Local(coordinatorID).(kafkatx.State).Ending()
	switch b := m.Body.(type) {
	case add:
		return b.Request != l.request()
	case initialise:
		return b.Request != l.request()
	case produce:
		return l.Move != producing || b.Txn != l.Txn
	case verify:
		return !v.Local(partitionID(b.Part)).(partitionLocal).asked
	case verified:
		return !v.Local(m.To).(partitionLocal).asked
	case mark:
		return !ending
	case marked:
		return !ending
	}
	return false
}
