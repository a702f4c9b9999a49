package producer

// Ask names one question to a coordinator; the zero Ask names none.
type Ask uint64

// ask is what is known about whether a producer may open a transaction here.
type ask struct {
	id      Ask
	epoch   int16
	ongoing bool // the coordinator said so
	version TransactionVersion
}

// Ask begins to verify that the transaction of a producer is ongoing, after Check said Verify. Until Answer its batches of
// this epoch are to be held. A question about another epoch of the same producer is forgotten.
//
// A batch that came late, after its transaction was aborted, would otherwise open a transaction that nobody ends (KIP-890).
func (o *Overlay) Ask(producerID int64, epoch int16) Ask {
	o.asked++
	o.asks[producerID] = ask{id: o.asked, epoch: epoch}
	return o.asked
}

// Answer is what the coordinator said: the transaction is ongoing and has this partition, or not (or nobody answered). It
// reports whether the question still stands; a marker, the end of the term and a newer question make it void. The batches that
// were held are to be checked again, in order, in any case; if the answer was no, after the one that asked was refused.
func (o *Overlay) Answer(producerID int64, question Ask, ongoing bool, version TransactionVersion) bool {
	a, ok := o.asks[producerID]
	if !ok || a.id != question {
		return false
	}
	if !ongoing {
		delete(o.asks, producerID)
		return true
	}
	a.ongoing, a.version = true, version
	o.asks[producerID] = a
	return true
}

// Asked tells what is known of a producer's verification: for which epoch, and whether the coordinator has confirmed it. ok is false when
// nobody asked, or a marker came since.
func (o *Overlay) Asked(producerID int64) (epoch int16, confirmed bool, version TransactionVersion, ok bool) {
	a, ok := o.asks[producerID]
	return a.epoch, a.ongoing, a.version, ok
}

func (o *Overlay) forget(id int64) {
	if o != nil && len(o.asks) > 0 {
		delete(o.asks, id)
	}
}

// asking: the coordinator was asked about this producer and has not answered.
func (o *Overlay) asking(id int64, epoch int16) bool {
	if o == nil || len(o.asks) == 0 {
		return false
	}
	a, ok := o.asks[id]
	return ok && a.epoch == epoch && !a.ongoing
}

// opening is the verdict on a batch in sequence that opens a transaction. Clients of version 2 begin each epoch with sequence 0
// on every partition, so any other first sequence shows that an earlier batch is missing; known: the sequence was checked.
func (o *Overlay) opening(id int64, epoch int16, first int32, known bool) Verdict {
	if o == nil {
		return Verdict{Kind: Verify}
	}
	a, ok := o.asks[id]
	switch {
	case !ok || a.epoch != epoch || !a.ongoing:
		return Verdict{Kind: Verify}
	case !known && first >= 0 && a.version >= Version2:
		return startOfEpoch(first)
	}
	return Verdict{Kind: Append}
}
