package coordinator

import (
	"gopherlog/engine/failpoint"
	"gopherlog/txn/kafkatx"
)

// Where a coordinator of transactions can be stopped. An error before or after a record ends the machine of its transactional id as a lost
// leadership would: it is made anew of what the log says.
var (
	beforeEmpty    = failpoint.Register("txn/before-empty", "a producer id or epoch is not given out yet")
	afterEmpty     = failpoint.Register("txn/after-empty", "a producer id or epoch is durable, its client not answered")
	beforeOngoing  = failpoint.Register("txn/before-ongoing", "partitions are not part of the transaction yet")
	afterOngoing   = failpoint.Register("txn/after-ongoing", "partitions are durably part of the transaction, nobody is answered")
	beforeDecision = failpoint.Register("txn/before-decision", "the transaction is not decided yet")
	afterDecision  = failpoint.Register("txn/after-decision", "the decision is durable, nobody is answered, no marker sent")
	beforeMarkers  = failpoint.Register("txn/before-markers", "the client is answered, the marker of a partition not sent; an error drops it")
	beforeMarker   = failpoint.Register("txn/before-marker", "a partition's leader has not proposed a marker; an error refuses it")
	afterMarker    = failpoint.Register("txn/after-marker", "a marker is committed, the coordinator not told; an error keeps it from being told")
	beforeComplete = failpoint.Register("txn/before-complete", "all markers are there, the end of the transaction is not written")
	afterComplete  = failpoint.Register("txn/after-complete", "the end of the transaction is durable")
)

func (x *Transactions) hit(name failpoint.Name) error { return x.cfg.Failpoints.Hit(name) }

func beforeRecord(m *kafkatx.Meta) failpoint.Name {
	switch {
	case m == nil || m.Status == kafkatx.Empty:
		return beforeEmpty
	case m.Status == kafkatx.Ongoing:
		return beforeOngoing
	case m.Status.Decided():
		return beforeDecision
	}
	return beforeComplete
}

func afterRecord(m *kafkatx.Meta) failpoint.Name {
	switch {
	case m == nil || m.Status == kafkatx.Empty:
		return afterEmpty
	case m.Status == kafkatx.Ongoing:
		return afterOngoing
	case m.Status.Decided():
		return afterDecision
	}
	return afterComplete
}
