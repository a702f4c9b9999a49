package partition

import (
	"context"
	"math"
	"time"

	"gopherlog/engine/log"
)

// DeleteRecords makes the log start at offset, on every replica, and returns the new log start. -1 stands for the high
// watermark. It returns when this replica, the leader, has applied it; files go a little later.
func (p *Partition) DeleteRecords(ctx context.Context, offset int64) (lowWatermark int64, err error) {
	hw := p.HighWatermark()
	if offset == -1 {
		offset = hw
	}
	if offset < 0 || offset > hw {
		return -1, ErrOffsetOutOfRange
	}
	if offset <= p.LogStart() {
		if _, err := p.CheckEpoch(NoEpoch); err != nil {
			return -1, err
		}
		return p.LogStart(), nil
	}
	if err := p.control(ctx, commandTrim, offset, offset == p.EndOffset()); err != nil {
		return -1, err
	}
	return p.LogStart(), nil
}

// control replicates a command and waits until it is applied here.
func (p *Partition) control(ctx context.Context, kind commandKind, offset int64, roll bool) error {
	l := p.lead.Load()
	if l == nil {
		return ErrNotLeader
	}
	done := make(chan error, 1)
	l.proposeControl(encodeCommand(kind, offset), roll, func(err error) { done <- err })
	select {
	case err := <-done:
		return fromReplica(err)
	case <-ctx.Done():
		return ErrTimeout
	}
}

// trimFiles removes whole segments below the log start, as far as the log allows now. It is called by the Manager's one
// housekeeping goroutine.
func (p *Partition) trimFiles() error {
	start := p.LogStart()
	if start <= 0 {
		return nil
	}
	_, err := p.log.TrimTo(start, p.applied.Load())
	return err
}

// retention returns the offset at which the log shall start now, and whether the active segment must be rolled first so
// that it can go too. It returns start when nothing is due.
//
// Segments go oldest first: those whose newest record is older than the retention time, and those without which the log
// still holds the retention bytes. Nothing at or above the last stable offset goes, and the active segment goes by age only,
// when all of it is stable.
func retention(segments []log.SegmentInfo, start, stable, end int64, now time.Time, s *Settings) (trim int64, roll bool) {
	var total int64
	for _, seg := range segments {
		total += seg.Bytes
	}
	trim = start
	for i, seg := range segments {
		next := end
		if i+1 < len(segments) {
			next = segments[i+1].BaseOffset
		}
		active := i+1 == len(segments)
		aged := s.RetentionTime >= 0 && seg.MaxTimestamp >= 0 && now.UnixMilli()-seg.MaxTimestamp > s.RetentionTime.Milliseconds()
		excess := !active && s.RetentionBytes >= 0 && total-seg.Bytes >= s.RetentionBytes
		if next > stable || next <= seg.BaseOffset || !aged && !excess {
			break
		}
		total -= seg.Bytes
		if next > trim {
			trim, roll = next, active
		}
	}
	return trim, roll
}

// retentionStep is after how many more bytes a log that exceeds retention.bytes is looked at again: its followers lag, or
// its trim entry is under way.
const retentionStep = 1 << 20

// roomFor returns how much a log may grow until retention.bytes would be kept without its oldest segment.
func roomFor(segments []log.SegmentInfo, start int64, s *Settings) int64 {
	if s.RetentionBytes < 0 {
		return math.MaxInt64
	}
	var kept int64 // by the segments that the log start has not passed, without the first of them
	for i := len(segments) - 1; i > 0 && segments[i-1].BaseOffset >= start; i-- {
		kept += segments[i].Bytes
	}
	return max(s.RetentionBytes-kept, retentionStep)
}

// retain proposes what retention says. Only a leader does; mayTrim says whether live followers are far enough.
// With a zero now only retention.bytes counts.
func (p *Partition) retain(ctx context.Context, now time.Time, mayTrim func(*Partition) bool) error {
	if p.lead.Load() == nil {
		return nil
	}
	start := p.LogStart()
	segments, settings := p.log.Segments(), p.Settings()
	if now.IsZero() {
		settings.RetentionTime = -1
	}
	trim, roll := retention(segments, start, p.LastStable(), p.EndOffset(), now, &settings)
	p.room.Store(roomFor(segments, max(start, trim), &settings))
	if trim <= start || !mayTrim(p) {
		return nil
	}
	return p.control(ctx, commandTrim, trim, roll)
}
