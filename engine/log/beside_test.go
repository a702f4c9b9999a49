package log

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"gopherlog/engine/vfs"
)

// kafkaSnapshot frames producers as Kafka does.
func kafkaSnapshot(count int) []byte {
	b := make([]byte, snapshotHead+count*snapshotEntry)
	be.PutUint16(b, snapshotVersion)
	be.PutUint32(b[6:], uint32(count))
	be.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

func kafkaTxnIndex(spans ...[2]int64) (b []byte) {
	for _, s := range spans {
		e := make([]byte, txnIndexEntry)
		be.PutUint64(e[10:], uint64(s[0]))
		be.PutUint64(e[18:], uint64(s[1]))
		b = append(b, e...)
	}
	return b
}

// Kafka's files come with the .snap, beside the segments that they describe, and go with them.
func TestKafkasFilesLieBesideTheirSegments(t *testing.T) {
	var calls []string
	r, w := startedRig(t, func(c *Config) {
		c.Beside = func(state []byte, from, to int64) ([]byte, []byte, error) {
			calls = append(calls, fmt.Sprintf("%s [%d, %d)", state, from, to))
			if len(calls) == 2 {
				return nil, nil, errors.New("no state")
			}
			return kafkaSnapshot(2), kafkaTxnIndex([2]int64{0, to - 1}), nil
		}
	})
	for i := uint64(3); i < 20; i++ {
		r.fill(w, data(i, 2, 2, 300))
	}
	segs := r.log.Segments()
	for _, s := range segs[1:] {
		term, err := r.log.Term(s.FirstIndex - 1)
		if err == nil {
			err = r.log.WriteSnap(Base{Index: s.FirstIndex - 1, Term: term, NextOffset: s.BaseOffset, State: []byte("state")})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := fmt.Sprintf("state [%d, %d)", segs[1].BaseOffset, segs[2].BaseOffset); len(segs) < 4 || calls[1] != want {
		t.Fatalf("called with %v for %d segments, want %s second", calls, len(segs), want)
	}
	there := func(base int64, ext string) bool {
		ok, err := vfs.Exists(r.fs, r.fs.PathJoin(r.cfg.Dir, segmentName(base, ext)))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for i, s := range segs {
		if got, want := there(s.BaseOffset, extSnapshot), i != 0 && i != 2; got != want {
			t.Errorf("segment %d: .snapshot there: %v", i, got)
		}
		if got, want := there(s.BaseOffset, extTxnIndex), i != 1 && i != len(segs)-1; got != want {
			t.Errorf("segment %d: .txnindex there: %v", i, got)
		}
	}
	if rep, err := Verify(r.fs, r.cfg.Dir); err != nil || len(rep.Problems) > 0 {
		t.Fatalf("%v %v", rep.Problems, err)
	}
	if _, err := r.log.TrimTo(segs[2].BaseOffset, segs[2].FirstIndex-1); err != nil {
		t.Fatal(err)
	}
	if there(segs[0].BaseOffset, extTxnIndex) || there(segs[1].BaseOffset, extSnapshot) {
		t.Error("files of a trimmed segment are left")
	}
}

func TestDamageOfKafkasFilesIsFound(t *testing.T) {
	for name, damaged := range map[string][]byte{
		"00000000000000000004.snapshot": flip(kafkaSnapshot(1), 30),
		"00000000000000000005.snapshot": kafkaSnapshot(1)[:40],
		"00000000000000000006.snapshot": flip(kafkaSnapshot(1), 1),
		"00000000000000000007.txnindex": kafkaTxnIndex([2]int64{0, 9}, [2]int64{3, 9}),
		"00000000000000000008.txnindex": kafkaTxnIndex([2]int64{0, 9})[:33],
		"00000000000000000010.txnindex": kafkaTxnIndex([2]int64{0, 9}),
	} {
		fs := vfs.NewCrashable()
		if err := errors.Join(fs.MkdirAll("d", 0o755), vfs.WriteFileAtomic(fs, fs.PathJoin("d", name), damaged)); err != nil {
			t.Fatal(err)
		}
		if rep, err := Verify(fs, "d"); err != nil || len(rep.Problems) != 1 || rep.Problems[0].File != name {
			t.Errorf("%s: %v %v", name, rep.Problems, err)
		}
	}
	fs := vfs.NewCrashable()
	if err := errors.Join(fs.MkdirAll("d", 0o755), vfs.WriteFileAtomic(fs, "d/00000000000000000004.snapshot", kafkaSnapshot(2))); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := DumpFile(&out, fs, "d/00000000000000000004.snapshot"); err != nil || strings.Count(out.String(), "producer 0 epoch 0") != 2 {
		t.Errorf("%q %v", out.String(), err)
	}
}

func flip(b []byte, at int) []byte { b[at] ^= 1; return b }
