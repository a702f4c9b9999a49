package log

import (
	"fmt"
	"sort"
	"strings"
)

// epochRow says that the entries from index first on, and the offsets from start on, have this term,
// until the next row.
type epochRow struct {
	term  uint64
	first uint64
	start int64
}

// epochs is the table of all terms in the log, also of those that wrote no batch: a client validates
// whichever epoch it was told (KIP-320). Its first row is the log's base: the term before FirstIndex.
type epochs []epochRow

// note adds a row when the term is new. Terms never fall.
func (t *epochs) note(term, index uint64, offset int64) {
	if n := len(*t); n == 0 || term > (*t)[n-1].term {
		*t = append(*t, epochRow{term, index, offset})
	}
}

// term of an index at or above the base.
func (t epochs) term(index uint64) uint64 {
	i := sort.Search(len(t), func(i int) bool { return t[i].first > index })
	if i == 0 {
		panic(fmt.Sprintf("log: term of index %d below base %d", index, t[0].first))
	}
	return t[i-1].term
}

// cut drops the rows that begin at index from or later.
func (t *epochs) cut(from uint64) {
	i := sort.Search(len(*t), func(i int) bool { return (*t)[i].first >= from })
	*t = (*t)[:max(i, 1)]
}

// trim makes base (the index before the new first one) the first row. The old rows may still be read.
func (t *epochs) trim(base uint64, offset int64) {
	i := sort.Search(len(*t), func(i int) bool { return (*t)[i].first > base })
	out := append(epochs(nil), (*t)[max(i-1, 0):]...)
	out[0].first, out[0].start = base, max(out[0].start, offset)
	*t = out
}

// visible is the table that clients are answered from: without the row of a log that starts from nothing.
func (t epochs) visible() epochs {
	if len(t) > 0 && t[0].term == 0 {
		return t[1:]
	}
	return t
}

// end answers OffsetForLeaderEpoch as Kafka does: the largest known epoch up to the asked one and the
// offset where the next begins, the log's end for the newest; (-1, -1) for an epoch above it. An epoch
// before the table ends where the table begins.
func (t epochs) end(epoch int32, logEnd int64) (int32, int64) {
	rows := t.visible()
	if epoch < 0 || len(rows) == 0 || uint64(epoch) > rows[len(rows)-1].term {
		return -1, -1
	}
	i := sort.Search(len(rows), func(i int) bool { return rows[i].term > uint64(epoch) })
	switch i {
	case 0:
		return epoch, rows[0].start
	case len(rows):
		return int32(rows[i-1].term), logEnd
	}
	return int32(rows[i-1].term), rows[i].start
}

// encode is the text of leader-epoch-checkpoint; no start lies below the log start.
func (t epochs) encode(logStart int64) []byte {
	rows := t.visible()
	var b strings.Builder
	fmt.Fprintf(&b, "0\n%d\n", len(rows))
	for _, r := range rows {
		fmt.Fprintf(&b, "%d %d\n", r.term, max(r.start, logStart))
	}
	return []byte(b.String())
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch in the log that is not above the asked one, and
// its end offset (exclusive). (-1, -1): the log has not seen an epoch that high.
func (l *Log) EpochEnd(epoch int32) (e int32, end int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e, end = l.epochs.end(epoch, l.end)
	if end >= 0 {
		end = max(end, l.startLocked())
	}
	return e, end
}

// LastEpoch is the newest epoch in the log, -1 when it has none.
func (l *Log) LastEpoch() int32 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	rows := l.epochs.visible()
	if len(rows) == 0 {
		return -1
	}
	return int32(rows[len(rows)-1].term)
}

// RecordEpoch says that epoch begins at offset start. Append records the term of every entry by itself, so
// this only checks: an epoch that the log does not know, or knows to begin elsewhere, is ErrDivergent. An
// epoch from before the log start passes.
func (l *Log) RecordEpoch(epoch int32, start int64) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	rows := l.epochs.visible()
	i := sort.Search(len(rows), func(i int) bool { return rows[i].term >= uint64(epoch) })
	switch {
	case i == len(rows) || rows[i].term != uint64(epoch) && i > 0:
		return fmt.Errorf("%w: no entry of epoch %d", ErrDivergent, epoch)
	case i > 0 && rows[i].start != start:
		return fmt.Errorf("%w: epoch %d begins at %d, not %d", ErrDivergent, epoch, rows[i].start, start)
	}
	return nil
}
