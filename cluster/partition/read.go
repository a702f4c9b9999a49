package partition

import (
	"gopherlog/engine/log"
	"gopherlog/txn/producer"
)

// Isolation levels of a read.
const (
	ReadUncommitted int8 = 0
	ReadCommitted   int8 = 1
)

// NoEpoch stands in a request whose client does not know one.
const NoEpoch int32 = -1

// ReadRequest asks for batches from Offset on.
type ReadRequest struct {
	Offset   int64
	MaxBytes int
	// MinOne: return the first batch even if it is larger than MaxBytes.
	MinOne bool
	// CurrentEpoch is the leader epoch that the client knows; NoEpoch: not checked.
	CurrentEpoch int32
	// LastFetchedEpoch is the epoch of the last batch that the client has; NoEpoch: not checked.
	LastFetchedEpoch int32
	Isolation        int8
}

// ReadResult is what a read found. Slice is nil when there is nothing to read now; otherwise the caller releases it. The
// offsets are valid without an error only.
type ReadResult struct {
	Slice         *log.Slice
	HighWatermark int64
	LastStable    int64
	LogStart      int64
	LeaderEpoch   int32
	// DivergingEpoch and DivergingEnd are set when the client's log left the leader's: the largest epoch here that is
	// not above the client's, and where it ends. -1 otherwise.
	DivergingEpoch int32
	DivergingEnd   int64
	// Aborted are the aborted transactions that may have records in Slice, for read_committed only.
	Aborted []producer.Aborted
}

// Read returns whole batches from the one that contains Offset up to the high watermark (or the last stable offset). Only a
// leader answers. An offset between the high watermark and the log end is not an error; there is nothing to read yet.
func (p *Partition) Read(r ReadRequest) (ReadResult, error) {
	res := ReadResult{HighWatermark: -1, LastStable: -1, LogStart: -1, LeaderEpoch: NoEpoch, DivergingEpoch: -1, DivergingEnd: -1}
	epoch, err := p.CheckEpoch(r.CurrentEpoch)
	if err != nil {
		return res, err
	}
	res.LeaderEpoch = epoch
	res.HighWatermark, res.LogStart = p.HighWatermark(), p.LogStart()
	res.LastStable = p.stableBelow(res.HighWatermark)
	if r.Offset < res.LogStart {
		return res, ErrOffsetOutOfRange
	}
	if r.LastFetchedEpoch >= 0 {
		e, end, diverged := p.diverged(r.Offset, r.LastFetchedEpoch)
		if e < 0 {
			return res, ErrOffsetOutOfRange // an epoch from which nothing can be told: the client starts over by its policy
		}
		if diverged {
			res.DivergingEpoch, res.DivergingEnd = e, end
			return res, nil
		}
	}
	limit := res.HighWatermark
	if r.Isolation == ReadCommitted {
		limit = res.LastStable
	}
	switch {
	case r.Offset > p.log.EndOffset():
		return res, ErrOffsetOutOfRange
	case r.Offset >= limit:
		return res, nil
	}
	if res.Slice, err = p.slice(r, limit); err != nil || res.Slice == nil || r.Isolation != ReadCommitted {
		return res, err
	}
	aborted, ok := p.aborted(r.Offset, res.Slice.Next)
	if !ok {
		res.Slice.Release()
		res.Slice = nil
		return res, ErrOffsetOutOfRange
	}
	res.Aborted = aborted
	return res, nil
}

// slice reads on over what hide took away.
func (p *Partition) slice(r ReadRequest, limit int64) (*log.Slice, error) {
	from := r.Offset
	for from < limit {
		s, err := p.log.Slice(from, limit, r.MaxBytes, r.MinOne)
		if err != nil {
			return nil, fromLog(err)
		}
		if s == nil || s.Bytes == 0 {
			if s != nil {
				s.Release()
			}
			return nil, nil
		}
		left, next, err := p.hide(s, limit)
		if err != nil {
			return nil, fromLog(err)
		}
		if left != nil {
			return left, nil
		}
		from = max(next, from+1)
	}
	return nil, nil
}

// CheckEpoch compares the leader epoch that a client knows (NoEpoch: none) with the current one, which it returns. It is
// ErrNotLeader on a replica that does not serve.
func (p *Partition) CheckEpoch(known int32) (current int32, err error) {
	l := p.lead.Load()
	switch {
	case l == nil:
		if p.group.Status().Failed != nil {
			return NoEpoch, ErrStorage
		}
		return NoEpoch, ErrNotLeader
	case known >= 0 && known < l.epoch:
		return l.epoch, ErrFencedEpoch
	case known > l.epoch:
		return l.epoch, ErrUnknownEpoch
	}
	return l.epoch, nil
}

// diverged says whether a client whose last batch has that epoch and ends at offset has records that this log does not
// have (KIP-320).
func (p *Partition) diverged(offset int64, epoch int32) (e int32, end int64, diverged bool) {
	e, end = p.log.EpochEnd(epoch)
	return e, end, e < epoch || end < offset
}

// EpochEnd returns the largest epoch with entries here that is not above epoch, and the offset at which it ends: the start
// of the next one, or the log end. (-1, -1) if there is none.
func (p *Partition) EpochEnd(epoch int32) (e int32, end int64) { return p.log.EpochEnd(epoch) }

// LastEpoch is the epoch of the last entry of the log.
func (p *Partition) LastEpoch() int32 { return p.log.LastEpoch() }

// end is the end of what a reader may see.
func (p *Partition) end(isolation int8) int64 {
	if isolation == ReadCommitted {
		return p.LastStable()
	}
	return p.HighWatermark()
}

// OffsetForTimestamp returns the first record that a reader may see whose timestamp is at least ts; ok is false if there is none.
func (p *Partition) OffsetForTimestamp(ts int64, isolation int8) (offset, timestamp int64, epoch int32, ok bool, err error) {
	offset, timestamp, epoch, ok, err = p.log.OffsetForTimestamp(ts, p.end(isolation))
	return offset, timestamp, epoch, ok, fromLog(err)
}

// MaxTimestamp returns the record with the largest timestamp that a reader may see; offset is -1 if there is none.
func (p *Partition) MaxTimestamp(isolation int8) (offset, timestamp int64, err error) {
	offset, timestamp, err = p.log.MaxTimestamp(p.end(isolation))
	return offset, timestamp, fromLog(err)
}
