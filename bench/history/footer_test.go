package history

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// incomplete says whether err tells that a file is not whole.
func incomplete(err error) bool {
	var c *CorruptError
	return errors.As(err, &c) && strings.Contains(c.What, "history is incomplete: ")
}

func TestAFileCutAtAnyByteIsIncomplete(t *testing.T) {
	path := writeSome(t, 40)
	whole, _ := os.ReadFile(path)
	header := preambleBytes + int(binary.LittleEndian.Uint32(whole[6:])) + 4
	for n := range whole {
		os.WriteFile(path, whole[:n], 0o644)
		got, err := readAll(t, path)
		var c *CorruptError
		switch {
		case !errors.As(err, &c):
			t.Fatalf("cut to %d of %d bytes: %d records and %v", n, len(whole), len(got), err)
		case n >= header && !incomplete(err):
			t.Fatalf("cut to %d of %d bytes: %v does not say that it is incomplete", n, len(whole), err)
		case n >= len(whole)-footerBytes && len(got) != 40:
			t.Fatalf("cut to %d of %d bytes: %d of 40 records are read", n, len(whole), len(got))
		}
	}
	os.WriteFile(path, whole, 0o644)
	if got, err := readAll(t, path); err != nil || len(got) != 40 {
		t.Fatalf("whole: %d records, %v", len(got), err)
	}
	os.WriteFile(path, append(whole, 0), 0o644)
	if _, err := readAll(t, path); err == nil || incomplete(err) {
		t.Fatalf("a byte behind the footer: %v", err)
	}
}

// blocksOf splits a file into its header, its blocks and its footer.
func blocksOf(b []byte) (header []byte, blocks [][]byte, foot []byte) {
	n := preambleBytes + int(binary.LittleEndian.Uint32(b[6:])) + 4
	header, b = b[:n], b[n:]
	for len(b) > footerBytes {
		n := blockHead + int(binary.LittleEndian.Uint32(b))
		blocks, b = append(blocks, b[:n]), b[n:]
	}
	return header, blocks, b
}

func TestABlockThatIsMissingDoubledOrMovedIsNoticed(t *testing.T) {
	path := writeSome(t, 40_000)
	whole, _ := os.ReadFile(path)
	header, blocks, foot := blocksOf(whole)
	if len(blocks) < 3 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for name, order := range map[string][]int{"first missing": {1, 2}, "last missing": {0, 1}, "doubled": {0, 1, 1, 2}, "moved": {1, 0, 2}, "as written": {0, 1, 2}} {
		b := append([]byte(nil), header...)
		for _, i := range order {
			b = append(b, blocks[i]...)
		}
		for _, rest := range blocks[3:] {
			b = append(b, rest...)
		}
		os.WriteFile(path, append(b, foot...), 0o644)
		if _, err := readAll(t, path); (err == nil) != (name == "as written") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAHistoryThatNobodyClosedIsIncomplete(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, 1, twoTopics)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Stream(RoleSends, "p00")
	if err != nil {
		t.Fatal(err)
	}
	s.Append(Record{Kind: Sent})
	s.flush()
	path := filepath.Join(dir, "p00.hist")
	for deadline := time.Now().Add(time.Minute); w.Stats().Records == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if got, err := readAll(t, path); !incomplete(err) || len(got) != 1 {
		t.Errorf("while it is written: %d records, %v", len(got), err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, path); err != nil || len(got) != 1 {
		t.Errorf("closed: %d records, %v", len(got), err)
	}
}

func TestDroppedRecordsMakeAFileIncompleteAndAFailedWriteLeavesItOpen(t *testing.T) {
	for _, dropped := range []bool{true, false} {
		dir := t.TempDir()
		w, err := Create(dir, 1, twoTopics)
		if err != nil {
			t.Fatal(err)
		}
		s, err := w.Stream(RoleSends, "p00")
		if err != nil {
			t.Fatal(err)
		}
		if dropped {
			s.foot.dropped = 3
		} else {
			s.failed = true
		}
		s.Append(Record{Kind: Sent})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := readAll(t, filepath.Join(dir, "p00.hist"))
		if !incomplete(err) || dropped != strings.Contains(err.Error(), "3 records were not written") || dropped != (len(got) == 1) {
			t.Errorf("dropped %t: %d records, %v", dropped, len(got), err)
		}
	}
}
