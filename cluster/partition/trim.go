package partition

import (
	"context"
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
// still holds the retention bytes. Nothing at or above the high watermark goes, and the active segment goes by age only,
// when all of it is committed.
func retention(segments []log.SegmentInfo, start, hw, end int64, now time.Time, s *Settings) (trim int64, roll bool) {
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
		if next > hw || next <= seg.BaseOffset || !aged && !excess {
			break
		}
		total -= seg.Bytes
		if next > trim {
			trim, roll = next, active
		}
	}
	return trim, roll
}

// retain proposes what retention says. Only a leader does; mayTrim says whether live followers are far enough.
func (p *Partition) retain(ctx context.Context, now time.Time, mayTrim func(*Partition) bool) error {
	if p.lead.Load() == nil {
		return nil
	}
	start := p.LogStart()
	trim, roll := retention(p.log.Segments(), start, p.HighWatermark(), p.EndOffset(), now, p.settings.Load())
	if trim <= start || !mayTrim(p) {
		return nil
	}
	return p.control(ctx, commandTrim, trim, roll)
}
