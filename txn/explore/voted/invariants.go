package voted

import (
	"fmt"

	"gopherlog/txn/explore"
	"gopherlog/txn/twopc"
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

// partitionDigest sums up a partition's log. Fates count durable records only.
type partitionDigest struct {
	fates     [8]fate
	stable    int                // last stable offset
	forsaken  map[twopc.Txn]bool // promised, then aborted; what waits to be durable counts
	remembers bool               // something is open, or waits to be durable
}

// coordinatorDigest sums up the coordinator's log.
type coordinatorDigest struct {
	decided map[twopc.Txn]bool // what waits to be durable counts
	fault   string
}

func digest(id explore.ID, log, pending []explore.Record, l explore.Local) any {
	switch id {
	case clientID:
		return nil
	case coordinatorID:
		return digestCoordinator(log, pending, l.(twopc.Coordinator).Term)
	}
	return digestPartition(log, pending)
}

func digestCoordinator(log, pending []explore.Record, term uint64) *coordinatorDigest {
	d := &coordinatorDigest{decided: map[twopc.Txn]bool{}}
	for i := range len(log) + len(pending) {
		r := at(log, pending, i)
		c, ok := r.(record).Record.(twopc.Committed)
		if !ok {
			continue
		}
		if d.decided[c.Txn] {
			d.fault = fmt.Sprintf("transaction %s is decided twice", c.Txn)
		}
		if i >= len(log) && c.Txn.Term != term {
			d.fault = fmt.Sprintf("the coordinator of term %d decides transaction %s of another term", term, c.Txn)
		}
		d.decided[c.Txn] = true
	}
	return d
}

func at(log, pending []explore.Record, i int) explore.Record {
	if i < len(log) {
		return log[i]
	}
	return pending[i-len(log)]
}

func digestPartition(log, pending []explore.Record) *partitionDigest {
	d := &partitionDigest{forsaken: map[twopc.Txn]bool{}, stable: -1, remembers: len(pending) > 0}
	promised := map[twopc.Txn]bool{}
	offset, openAt := 0, -1
	for i := range len(log) + len(pending) {
		durable := i < len(log)
		switch r := at(log, pending, i).(type) {
		case batch:
			if durable {
				d.fates[r.Txn] = open
				if openAt < 0 {
					openAt = offset
				}
				offset++
			}
		case record:
			switch r := r.Record.(type) {
			case twopc.Promised:
				promised[r.Txn] = true
			case twopc.Marked:
				if promised[r.Txn] && !r.Commit {
					d.forsaken[r.Txn] = true
				}
				if durable {
					d.settle(r.Commit)
					openAt, offset = -1, offset+1
				}
			}
		}
	}
	if d.stable = offset; openAt >= 0 {
		d.stable, d.remembers = openAt, true
	}
	return d
}

// settle gives every open batch its fate.
func (d *partitionDigest) settle(commit bool) {
	for n := range d.fates {
		if d.fates[n] == open {
			d.fates[n] = aborted
			if commit {
				d.fates[n] = committed
			}
		}
	}
}

func (in invariants) always(v explore.View) error {
	c := v.Digest(coordinatorID).(*coordinatorDigest)
	if c.fault != "" {
		return fmt.Errorf("%s", c.fault)
	}
	l := v.Local(clientID).(clientLocal)
	for n := range l.Told {
		if err := in.fateOf(v, l, n); err != nil {
			return err
		}
	}
	s := v.Local(coordinatorID).(twopc.Coordinator)
	for i := range in.Partitions {
		for t := range in.partition(v, i).forsaken {
			if c.decided[t] || s.Txn == t && (s.Phase == twopc.Open || s.Phase == twopc.Voting) {
				return fmt.Errorf("p%d promised transaction %s and aborts it alone", i, t)
			}
		}
	}
	if l.Move == dead && !in.Replaced && in.Version >= 2 && in.Plant == None {
		return fmt.Errorf("the client is refused for good, and nobody took its place")
	}
	return nil
}

func (in invariants) partition(v explore.View, i int) *partitionDigest {
	return v.Digest(partitionID(i)).(*partitionDigest)
}

// fateOf checks transaction n of the client.
func (in invariants) fateOf(v explore.View, l clientLocal, n int) error {
	var seen [4]bool
	for i := in.first(n); i < in.Partitions; i++ {
		seen[in.partition(v, i).fates[n]] = true
	}
	asked := l.Asked&(1<<n) != 0
	switch {
	case seen[committed] && !asked:
		return fmt.Errorf("transaction %d is committed, and its client never asked for that", n)
	case seen[committed] && (seen[aborted] || seen[absent]):
		return fmt.Errorf("transaction %d is torn: committed in one partition and not in another", n)
	case seen[committed] && l.Told[n] == 'a':
		return fmt.Errorf("transaction %d is committed, and its client was told that it is aborted", n)
	case l.Told[n] == 'c' && (seen[aborted] || seen[absent]):
		return fmt.Errorf("transaction %d is lost: its client was told that it is committed", n)
	}
	return nil
}

func (in invariants) step(before, after explore.View) error {
	for i := range in.Partitions {
		b, a := in.partition(before, i), in.partition(after, i)
		if a.stable < b.stable {
			return fmt.Errorf("the last stable offset of p%d goes back from %d to %d", i, b.stable, a.stable)
		}
	}
	return nil
}

func (in invariants) ended(v explore.View) bool {
	if m := v.Local(clientID).(clientLocal).Move; m != finished && m != dead {
		return false
	}
	switch v.Local(coordinatorID).(twopc.Coordinator).Phase {
	case twopc.Ready, twopc.Raising:
	default:
		return false
	}
	for i := range in.Partitions {
		if in.partition(v, i).remembers {
			return false
		}
	}
	return len(v.Pending(coordinatorID)) == 0
}

// rest: what the client was told to be committed is visible everywhere, and what it was told to be aborted nowhere.
func (in invariants) rest(v explore.View) error {
	l := v.Local(clientID).(clientLocal)
	for n := range l.Told {
		for i := in.first(n); i < in.Partitions; i++ {
			f := in.partition(v, i).fates[n]
			if l.Told[n] == 'c' && f != committed || l.Told[n] == 'a' && f == committed {
				return fmt.Errorf("at rest transaction %d was told %c and its batch in p%d is not so", n, l.Told[n], i)
			}
		}
	}
	return nil
}
