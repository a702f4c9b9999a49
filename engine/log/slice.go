package log

import (
	"fmt"

	"gopherlog/engine/vfs"
)

// FileRange is Len bytes of File at Pos, for sendfile where File.Fd is a descriptor. The file's own
// position is never used.
type FileRange struct {
	File     vfs.File
	Pos, Len int64
}

// Slice is whole batches that hold the offsets [First, Next). It pins its files: they stay readable, even
// after retention has removed their names, until Release.
type Slice struct {
	Ranges      []FileRange
	Bytes       int
	First, Next int64

	pinned []*segment

	// Nearly every slice lies in one segment: then it is one allocation.
	oneRange  [1]FileRange
	onePinned [1]*segment
}

// Release gives the files back. It must be called exactly once; the Ranges are void afterwards.
func (s *Slice) Release() {
	for _, seg := range s.pinned {
		seg.unpin()
	}
	s.pinned, s.Ranges = nil, nil
}

// ReadAll appends the bytes of the slice to dst.
func (s *Slice) ReadAll(dst []byte) ([]byte, error) {
	at := len(dst)
	if cap(dst)-at < s.Bytes {
		dst = append(make([]byte, 0, at+s.Bytes), dst...)
	}
	dst = dst[:at+s.Bytes]
	for i, r := range s.Ranges {
		if err := readFull(r.File, dst[at:at+int(r.Len)], r.Pos, s.pinned[min(i, len(s.pinned)-1)].name(extLog)); err != nil {
			return dst[:at], err
		}
		at += int(r.Len)
	}
	return dst, nil
}

// Slice returns whole batches from the one that holds offset from, all of them below limit and together at
// most maxBytes, but with minOne at least one batch if any lies below limit. limit must be the end of a
// batch that will not be truncated: a high watermark or last stable offset. At the limit, and when nothing
// fits, the slice is empty. ErrOutOfRange below the log start or above the end. The caller must Release the
// slice.
func (l *Log) Slice(from, limit int64, maxBytes int, minOne bool) (s *Slice, err error) {
	err = l.stable(func() error {
		if s != nil {
			s.Release()
		}
		s, err = l.slice(from, limit, maxBytes, minOne)
		return err
	})
	if err != nil && s != nil {
		s.Release()
		s = nil
	}
	return s, err
}

func (l *Log) slice(from, limit int64, maxBytes int, minOne bool) (*Slice, error) {
	var room [2]view
	views, start, err := l.viewsFrom(room[:0], from, &limit)
	if err != nil {
		return nil, err
	}
	s := &Slice{First: from, Next: from}
	s.Ranges, s.pinned = s.oneRange[:0], s.onePinned[:0]
	if from < limit {
		err = s.fill(views, max(from, start), limit, int64(maxBytes), minOne)
	}
	kept := len(s.Ranges)
	if err != nil {
		kept = 0
	}
	for i := range views {
		if i < kept {
			s.pinned = append(s.pinned, views[i].segment)
		} else {
			views[i].unpin()
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// sliceSegments bounds how many segments one slice may touch.
const sliceSegments = 16

// viewsFrom pins the segments from the one that holds offset from, up to limit, which it clamps to the end, and appends their views.
func (l *Log) viewsFrom(views []view, from int64, limit *int64) ([]view, int64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, 0, ErrClosed
	}
	if from < l.startLocked() || from > l.end {
		return nil, 0, fmt.Errorf("%w: %d in [%d, %d]", ErrOutOfRange, from, l.startLocked(), l.end)
	}
	*limit = min(*limit, l.end)
	if from >= *limit {
		return nil, l.start, nil
	}
	i := len(l.segs) - 1
	for i > 0 && l.segs[i].base > from {
		i--
	}
	for ; i < len(l.segs) && l.segs[i].base < *limit && len(views) < sliceSegments; i++ {
		views = append(views, l.segs[i].view())
	}
	return views, l.start, nil
}

func (s *Slice) fill(views []view, from, limit, maxBytes int64, minOne bool) error {
	for i := range views {
		r, first, next, err := views[i].rangeOf(from, limit, maxBytes-int64(s.Bytes), minOne && i == 0)
		if err != nil {
			return err
		}
		if r.Len == 0 {
			return nil
		}
		if i == 0 {
			s.First = first
		}
		s.Ranges = append(s.Ranges, r)
		s.Bytes += int(r.Len)
		s.Next, from = next, next
		if next < views[i].end {
			return nil
		}
	}
	return nil
}

// rangeOf finds the batches of one segment from the one that holds offset from.
func (v *view) rangeOf(from, limit, maxBytes int64, minOne bool) (r FileRange, first, next int64, err error) {
	i, err := v.holding(from)
	if err != nil {
		return r, 0, 0, err
	}
	pos, first, err := v.place(i)
	if err != nil {
		return r, 0, 0, err
	}
	stop := v.n
	if limit < v.end || v.size-pos > maxBytes {
		top := v.base + maxRelative + 1
		stop, err = v.find(i, func(e ridxEntry) bool {
			return e.end() > pos+maxBytes || v.base+int64(e.rel) >= min(limit, top)
		})
		if err != nil {
			return r, 0, 0, err
		}
		if stop <= i && minOne {
			stop = i + 1
		}
	}
	if stop <= i {
		return r, first, first, nil
	}
	end, next, err := v.place(stop)
	return FileRange{File: v.log, Pos: pos, Len: end - pos}, first, next, err
}

// holding returns the entry of the batch that holds offset, which is in [base, end).
func (v *view) holding(offset int64) (int, error) {
	rel := offset - v.base
	i, err := v.find(0, func(e ridxEntry) bool { return int64(e.rel) > rel })
	return i - 1, err
}
