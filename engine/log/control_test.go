package log

import (
	"bytes"
	"testing"

	"gopherlog/engine/record"
)

// TestHeadersOfMarkersComeWithTheirRecord: a follower's state machine reads headers, but a marker's kind is in its record. Appended,
// borrowed (only the header is cached) and read from the file.
func TestHeadersOfMarkersComeWithTheirRecord(t *testing.T) {
	marker := func(index uint64) Entry {
		b := record.BuildControl(record.Abort, 7, 1, 3, 0)
		b.SetBaseOffset(-1)
		return Entry{Index: index, Term: 1, Data: b}
	}
	r := newRig(t, nil)
	must(t, r.log.Append([]Entry{data(1, 1, 2, 10), marker(2)}))
	must(t, r.log.AppendBorrowed([]Entry{marker(3), data(4, 1, 1, 10)}))
	check := func() {
		t.Helper()
		for index := uint64(1); index <= 4; index++ {
			whole, err := r.log.Entry(index)
			must(t, err)
			head, err := r.log.EntryHeader(index)
			must(t, err)
			want := whole.Data[:record.HeaderSize]
			if index == 2 || index == 3 {
				want = whole.Data
			}
			if !bytes.Equal(head.Data, want) {
				t.Fatalf("entry %d: %d bytes, want %d", index, len(head.Data), len(want))
			}
		}
	}
	check()
	r.kill()
	check()
}
