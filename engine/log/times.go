package log

import (
	"errors"
	"fmt"

	"gopherlog/engine/record"
)

// headerWindow is how much a scan for timestamps reads at once.
const headerWindow = 64 << 10

var errStop = errors.New("stop")

// OffsetForTimestamp returns the first record below limit whose timestamp is at least ts, with its offset,
// timestamp and epoch; ok is false when there is none. limit as for Slice.
func (l *Log) OffsetForTimestamp(ts, limit int64) (offset, timestamp int64, epoch int32, ok bool, err error) {
	err = l.stable(func() error {
		offset, timestamp, epoch, ok, err = l.offsetForTimestamp(ts, limit)
		return err
	})
	return offset, timestamp, epoch, ok, err
}

func (l *Log) offsetForTimestamp(ts, limit int64) (offset, timestamp int64, epoch int32, ok bool, err error) {
	views, start, err := l.allViews(&limit)
	if err != nil {
		return 0, 0, 0, false, err
	}
	defer unpinAll(views)
	for i := range views {
		v := &views[i]
		if v.sparse.maxTS < ts || v.end <= start {
			continue
		}
		from, err := v.timeFloor(func(at int64, _ int64) bool { return at < ts })
		if err != nil {
			return 0, 0, 0, false, err
		}
		err = v.eachHeader(from, limit, func(h record.Header, pos int64) error {
			if h.MaxTimestamp < ts || h.LastOffset() < start {
				return nil
			}
			offset, timestamp, ok, err = v.firstRecord(h, pos, start, ts)
			epoch = h.LeaderEpoch
			if err == nil && ok {
				err = errStop
			}
			return err
		})
		if ok || err != nil {
			return offset, timestamp, epoch, ok, err
		}
	}
	return 0, 0, 0, false, nil
}

// MaxTimestamp returns the first record with the largest timestamp below limit; (-1, -1) for an empty log.
func (l *Log) MaxTimestamp(limit int64) (offset, ts int64, err error) {
	err = l.stable(func() error {
		offset, ts, err = l.maxTimestamp(limit)
		return err
	})
	return offset, ts, err
}

func (l *Log) maxTimestamp(limit int64) (offset, ts int64, err error) {
	views, start, err := l.allViews(&limit)
	if err != nil {
		return -1, -1, err
	}
	defer unpinAll(views)
	offset, ts = -1, -1
	for i := range views {
		v := &views[i]
		if v.sparse.maxTS <= ts || v.end <= start {
			continue
		}
		o, at, err := v.largest(start, limit)
		if err != nil {
			return -1, -1, err
		}
		if at > ts {
			offset, ts = o, at
		}
	}
	return offset, ts, nil
}

// largest returns the first record with the largest timestamp of a segment in [start, limit).
func (v *timeView) largest(start, limit int64) (offset, ts int64, err error) {
	from := int64(0)
	switch {
	case v.end <= limit && v.base >= start && v.sparse.maxOffset < v.end: // while a suffix is cut it may lie in it
		from, err = v.positionOf(v.sparse.maxOffset)
		limit = min(limit, v.sparse.maxOffset+1)
	case v.base >= start:
		from, err = v.timeFloor(func(_, last int64) bool { return last < limit })
	}
	offset, ts = -1, -1
	if err != nil {
		return offset, ts, err
	}
	err = v.eachHeader(from, limit, func(h record.Header, pos int64) error {
		if h.MaxTimestamp <= ts || h.LastOffset() < start {
			return nil
		}
		o, at, ok, err := v.firstRecord(h, pos, start, h.MaxTimestamp)
		if ok {
			offset, ts = o, at
		}
		return err
	})
	return offset, ts, err
}

// positionOf returns where the batch that holds offset begins.
func (v *view) positionOf(offset int64) (int64, error) {
	i, err := v.holding(offset)
	if err != nil {
		return 0, err
	}
	pos, _, err := v.place(i)
	return pos, err
}

// timeView is a view with the segment's time-index state.
type timeView struct {
	view
	sparse sparse
}

// allViews pins every segment that begins below limit, which it clamps to the end.
func (l *Log) allViews(limit *int64) ([]timeView, int64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, 0, ErrClosed
	}
	*limit = min(*limit, l.end)
	var out []timeView
	for _, s := range l.segs {
		if s.base < *limit {
			out = append(out, timeView{s.view(), s.sparse})
		}
	}
	return out, l.startLocked(), nil
}

func unpinAll(views []timeView) {
	for i := range views {
		views[i].unpin()
	}
}

// timeFloor returns the position of the batch that the last time-index entry with before(timestamp, last
// offset) names, 0 without one. before must be true, then false.
func (v *timeView) timeFloor(before func(ts, last int64) bool) (int64, error) {
	data, _, err := readIfThere(v.fs, v.path(extTimeIndex))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", v.name(extTimeIndex), err)
	}
	data = append(data[:min(int64(len(data)), v.sparse.timesSize)], v.sparse.times...)
	last := int64(-1)
	for ; len(data) >= timeIndexEntry; data = data[timeIndexEntry:] {
		o := v.base + int64(be.Uint32(data[8:]))
		if !before(int64(be.Uint64(data)), o) {
			break
		}
		last = o
	}
	if last < v.base || last >= v.end {
		return 0, nil
	}
	return v.positionOf(last)
}

// eachHeader calls fn for the batches from position pos on that begin below limit; errStop ends it.
func (v *view) eachHeader(pos, limit int64, fn func(h record.Header, pos int64) error) error {
	var win []byte
	var at int64 // position of win
	for pos < v.size {
		if pos < at || pos+record.HeaderSize > at+int64(len(win)) {
			if win == nil {
				win = make([]byte, headerWindow)
			}
			at, win = pos, win[:min(headerWindow, v.size-pos)]
			if err := readFull(v.log, win, at, v.name(extLog)); err != nil {
				return err
			}
		}
		h, err := record.PeekHeader(win[pos-at:])
		if err != nil {
			return &CorruptionError{v.name(extLog), pos, err.Error()}
		}
		if h.BaseOffset >= limit {
			return nil
		}
		if err := fn(h, pos); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
		pos += int64(h.Length)
	}
	return nil
}

// firstRecord reads the batch at pos and returns its first record at or after offset start whose timestamp
// is at least ts.
func (v *view) firstRecord(h record.Header, pos, start, ts int64) (offset, timestamp int64, ok bool, err error) {
	buf := make([]byte, h.Length)
	if err := readFull(v.log, buf, pos, v.name(extLog)); err != nil {
		return 0, 0, false, err
	}
	b := record.Batch(buf)
	if b.IsLogAppendTime() {
		return max(b.BaseOffset(), start), b.MaxTimestamp(), true, nil
	}
	for rec, err := range record.Records(b) {
		if err != nil {
			return 0, 0, false, fmt.Errorf("batch at offset %d of %s: %w", b.BaseOffset(), v.name(extLog), err)
		}
		o, at := b.BaseOffset()+int64(rec.OffsetDelta), b.BaseTimestamp()+rec.TimestampDelta
		if o >= start && at >= ts {
			return o, at, true, nil
		}
	}
	return 0, 0, false, nil
}
