package producer

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"gopherlog/engine/record"
)

// TestKafkasFilesAreWrittenAndRead, byte for byte where a test can hold the bytes.
func TestKafkasFilesAreWrittenAndRead(t *testing.T) {
	s := New()
	s.Apply(at(0, batch(4, 1, 10, 3)))
	s.Apply(at(3, txnBatch(5, 0, 0, 2)))
	s.Apply(at(5, txnBatch(6, 0, 0, 1)))
	s.Apply(at(6, record.BuildControl(record.Abort, 6, 1, 9, 77)))
	got, err := ParseSnapshot(s.AppendSnapshot(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := []SnapshotEntry{
		{4, 1, 12, 2, 2, 0, -1, -1},
		{5, 0, 1, 4, 1, 0, -1, 3},
		{6, 1, -1, -1, 0, 77, 9, -1},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
	index := AppendTxnIndex(nil, s.AbortedEndingIn(0, 7)[0])
	if want := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 3}; !bytes.Equal(index, want) {
		t.Fatalf("got  %x\nwant %x", index, want)
	}
	if back, err := ParseTxnIndex(index); err != nil || len(back) != 1 || back[0] != (Aborted{6, 5, 6, 3}) {
		t.Fatalf("%v %v", back, err)
	}
}

// TestUnknownVersionsOfKafkasFilesAreRefusedAsVersions, damage as damage.
func TestUnknownVersionsOfKafkasFilesAreRefusedAsVersions(t *testing.T) {
	s := New()
	s.Apply(at(0, batch(4, 1, 10, 3)))
	snapshot, index := s.AppendSnapshot(nil), AppendTxnIndex(nil, Aborted{6, 5, 6, 3})
	newer := append([]byte{0, 9}, snapshot[2:]...)
	if _, err := ParseSnapshot(newer); err == nil || !strings.Contains(err.Error(), "version 9") {
		t.Fatalf("snapshot: %v", err)
	}
	newer = append([]byte{0, 9}, index[2:]...)
	if _, err := ParseTxnIndex(newer); err == nil || !strings.Contains(err.Error(), "version 9") {
		t.Fatalf("index: %v", err)
	}
	for n := range snapshot {
		if _, err := ParseSnapshot(snapshot[:n]); err == nil {
			t.Fatalf("%d of %d bytes of a snapshot were accepted", n, len(snapshot))
		}
	}
	for i := range snapshot {
		bad := bytes.Clone(snapshot)
		bad[i] ^= 1
		if _, err := ParseSnapshot(bad); err == nil {
			t.Fatalf("byte %d flipped: accepted", i)
		}
	}
	if _, err := ParseTxnIndex(index[:33]); err == nil {
		t.Fatal("a cut index was accepted")
	}
}

// FuzzKafkasFiles: no input panics or allocates more than it holds, and what parses is written back.
func FuzzKafkasFiles(f *testing.F) {
	s := New()
	s.Apply(at(0, batch(4, 1, 10, 3)))
	f.Add(s.AppendSnapshot(nil))
	f.Add(AppendTxnIndex(nil, Aborted{6, 5, 6, 3}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if entries, err := ParseSnapshot(data); err == nil {
			var body []byte
			for _, e := range entries {
				body = e.encode(body)
			}
			if !bytes.Equal(body, data[snapshotHead:]) {
				t.Fatalf("%x was written back as %x", data, body)
			}
		}
		if entries, err := ParseTxnIndex(data); err == nil {
			var out []byte
			for _, a := range entries {
				out = AppendTxnIndex(out, a)
			}
			if !bytes.Equal(out, data) {
				t.Fatalf("%x was written back as %x", data, out)
			}
		}
	})
}
