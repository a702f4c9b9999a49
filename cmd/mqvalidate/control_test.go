package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file is what cluster/replica writes; a test there holds it to that.
const (
	controlFile   = "00000000000000000030-00000000000000000002.control"
	controlGolden = "../../cluster/replica/testdata/" + controlFile
)

func TestDamagedSnapshotOfTheControlGroupIsNamed(t *testing.T) {
	sound, err := os.ReadFile(controlGolden)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file   string
		change func(b []byte) []byte
		want   string
		note   bool
	}{
		"sound":              {controlFile, func(b []byte) []byte { return b }, "", false},
		"flipped bit":        {controlFile, func(b []byte) []byte { b[len(b)-2] ^= 4; return b }, "byte 6: checksum", false},
		"cut":                {controlFile, func(b []byte) []byte { return b[:len(b)-1] }, "byte 6: checksum", false},
		"nothing":            {controlFile, func([]byte) []byte { return nil }, "byte 0: 0 bytes", false},
		"something else":     {controlFile, func(b []byte) []byte { copy(b, "ABCD"); return b }, "byte 0: is no snapshot", false},
		"another name":       {strings.Replace(controlFile, "30", "31", 1), func(b []byte) []byte { return b }, "byte 10: holds index 30", false},
		"newer version":      {controlFile, func(b []byte) []byte { binary.BigEndian.PutUint16(b[4:], 9); return b }, "", true},
		"no snapshot at all": {"half-written.tmp", func(b []byte) []byte { return b[:3] }, "", false},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.file), c.change(append([]byte(nil), sound...)), 0o644); err != nil {
			t.Fatal(err)
		}
		var s summary
		if err := s.control(dir); err != nil {
			t.Fatal(err)
		}
		switch {
		case c.want == "" && len(s.Problems) > 0, c.want != "" && (len(s.Problems) != 1 || !strings.Contains(s.Problems[0].String(), c.file+", "+c.want)):
			t.Errorf("%s: %v, want %q", name, s.Problems, c.want)
		case c.note != (len(s.Notes) > 0):
			t.Errorf("%s: notes %q", name, s.Notes)
		}
	}
	var s summary
	if err := s.control(filepath.Join(t.TempDir(), "absent")); err != nil || len(s.Problems) > 0 {
		t.Errorf("a node that never took one: %v %v", err, s.Problems)
	}
}
