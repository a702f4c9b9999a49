package coordinator

import (
	"gopherlog/engine/failpoint"
	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
)

// skipEpochCheck plants a fault: who was fenced is taken for its successor. An abort is not: it would undo what shows the fault.
func (t *txnTerm) skipEpochCheck(l *txn, e kafkatx.Event) kafkatx.Event {
	on, _ := t.x.cfg.Failpoints.Sabotage(failpoint.SkipEpochCheck)
	m := l.state.Meta
	if !on || m == nil {
		return e
	}
	raised := func(id int64, epoch int16) int16 {
		if id != m.ProducerID {
			return epoch
		}
		return max(epoch, m.Epoch)
	}
	switch r := e.(type) {
	case kafkatx.AddPartitions: // one that meets a decision is held, and comes again
		r.Epoch = raised(r.ProducerID, r.Epoch)
		return r
	case kafkatx.Verify:
		r.Epoch = raised(r.ProducerID, r.Epoch)
		return r
	case kafkatx.EndTxn:
		if r.Commit && m.Status == kafkatx.Ongoing {
			r.Epoch = raised(r.ProducerID, r.Epoch)
		}
		return r
	}
	return e
}

// defaultTorn: markers are left out of one in so many transactions.
const defaultTorn = 20

// skipMarker plants a fault: of some transactions that commit, markers to all partitions but the first count as written.
func (t *txnTerm) skipMarker(l *txn, e kafkatx.WriteMarker) bool {
	on, odds := t.x.cfg.Failpoints.Sabotage(failpoint.MarkerToOnePartition)
	if odds <= 0 {
		odds = defaultTorn
	}
	m := l.state.Shown()
	nth := m.Update
	if m.Version == kafkatx.Version2 { // each transaction has an epoch of its own
		nth = int64(m.Epoch)
	}
	if !on || !e.Commit || (nth+e.ProducerID)%odds != 0 || e.Partition == m.Partitions[0] {
		return false
	}
	t.post(func() {
		t.marked(l.id, kafkatx.Marked{Partition: e.Partition, ProducerID: e.ProducerID, Epoch: e.Epoch})
	})
	return true
}

// forgetGeneration plants a fault: who was left behind in an older generation may commit, and is told that all is well.
func (t *groupTerm) forgetGeneration(l *live, e group.Event) group.Event {
	if on, _ := t.g.cfg.Failpoints.Sabotage(failpoint.ForgetGroupGeneration); !on {
		return e
	}
	switch r := e.(type) {
	case group.Commit:
		if r.Generation >= 0 && r.Generation < l.state.Generation {
			return group.Commit{Request: r.Request, Generation: -1, Transactional: true} // which nobody checks
		}
	case group.Heartbeat:
		if r.Generation < l.state.Generation && len(l.state.Members) > 0 {
			return group.Heartbeat{Request: r.Request, MemberID: l.state.Members[0].ID, Instance: l.state.Members[0].Instance, Generation: l.state.Generation}
		}
	}
	return e
}
