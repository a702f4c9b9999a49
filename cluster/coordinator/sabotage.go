package coordinator

import (
	"gopherlog/engine/failpoint"
	"gopherlog/txn/kafkatx"
)

// skipEpochCheck plants a fault: who was fenced is taken for its successor.
func (t *txnTerm) skipEpochCheck(l *txn, e kafkatx.Event) kafkatx.Event {
	on, _ := t.x.cfg.Failpoints.Sabotage(failpoint.SkipEpochCheck)
	m := l.state.Meta
	if !on || m == nil || m.Status.Decided() {
		return e
	}
	switch r := e.(type) {
	case kafkatx.AddPartitions:
		if r.ProducerID == m.ProducerID {
			r.Epoch = max(r.Epoch, m.Epoch)
		}
		return r
	case kafkatx.Verify:
		if r.ProducerID == m.ProducerID {
			r.Epoch = max(r.Epoch, m.Epoch)
		}
		return r
	case kafkatx.EndTxn:
		if r.ProducerID == m.ProducerID && m.Status == kafkatx.Ongoing {
			r.Epoch = max(r.Epoch, m.Epoch)
		}
		return r
	}
	return e
}
