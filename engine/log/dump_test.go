package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// TestDumpFileListsEveryFile of a directory, and ends with the first damage.
func TestDumpFileListsEveryFile(t *testing.T) {
	r, w := startedRig(t, nil)
	for i := uint64(3); i < 12; i++ {
		r.fill(w, data(i, 2, 2, 300))
	}
	snapAll(t, r)
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := writeTo(r.fs, r.fs.PathJoin(r.cfg.Dir, fileSides), journalOf(5, command(7, 2)), 0); err != nil {
		t.Fatal(err)
	}
	base := r.log.Segments()[1].BaseOffset
	for name, want := range map[string]string{
		segmentName(0, extLog):       "offsets [0, 4) position 0 bytes",
		segmentName(0, extRidx):      "index 1 term 1 offset 0 side entry\nindex 2 term 1 offset 0 position 0",
		segmentName(0, extIndex):     "offset ",
		segmentName(0, extTimeIndex): "timestamp ",
		segmentName(base, extSnap):   "index ",
		filePoint:                    "index 11 term 2",
		fileSides:                    "none missing up to index 5\nindex 7 term 2 type 0 extension 01 data of 9 bytes\n",
		fileEpochs:                   "0\n2\n1 0\n2 4\n",
		fileMetadata:                 "version: 0\ntopic_id: AQAAAAAAAAAAAAAAAAAAAA\n",
	} {
		var out strings.Builder
		if err := DumpFile(&out, r.fs, r.fs.PathJoin(r.cfg.Dir, name)); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %q, want %q in it (%v)", name, out.String(), want, err)
		}
	}
	path := r.fs.PathJoin(r.cfg.Dir, segmentName(0, extLog))
	rewrite(t, r, path, func(b []byte) []byte { b[len(b)-3] ^= 1; return b })
	var out strings.Builder
	var damage *CorruptionError
	if err := DumpFile(&out, r.fs, path); !errors.As(err, &damage) || !strings.Contains(out.String(), "offsets [0, 4)") {
		t.Errorf("damaged: %v after %q", err, out.String())
	}
	if err := DumpFile(&out, vfs.FS(r.fs), "/data/elsewhere.txt"); err == nil {
		t.Error("a foreign file was listed")
	}
}

// TestVerifyNamesFileOffsetAndByte of what is wrong, and goes on in the other files.
func TestVerifyNamesFileOffsetAndByte(t *testing.T) {
	r, w := startedRig(t, nil)
	for i := uint64(3); i < 12; i++ {
		r.fill(w, data(i, 2, 2, 300))
	}
	snapAll(t, r)
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	segs := r.log.Segments()
	clean, err := Verify(r.fs, r.cfg.Dir)
	if err != nil || len(clean.Problems) > 0 || clean.Messages != int(w.end) || clean.Segments != len(segs) || clean.Bytes != r.log.Size() {
		t.Fatalf("clean: %+v %v", clean, err)
	}
	for ext, at := range map[string]int{extLog: 100, extRidx: ridxHeader + 3, extIndex: 3, extTimeIndex: 7, extSnap: 20} {
		x := *r
		x.fs = r.fs.Clone()
		name := segmentName(segs[1].BaseOffset, ext)
		rewrite(t, &x, x.fs.PathJoin(x.cfg.Dir, name), func(b []byte) []byte { b[at] ^= 0x11; return b })
		rep, err := Verify(x.fs, x.cfg.Dir)
		if err != nil || len(rep.Problems) == 0 || rep.Problems[0].File != name {
			t.Errorf("%s: %v %v", name, rep.Problems, err)
			continue
		}
		t.Log(rep.Problems)
	}
}

// TestVerifyFindsRecordsThatNoConsumerCouldRead under a CRC that is right, compressed or not.
func TestVerifyFindsRecordsThatNoConsumerCouldRead(t *testing.T) {
	for codec := record.None; codec <= record.Zstd; codec++ {
		r, w := startedRig(t, nil)
		b := record.Builder{Codec: codec}
		b.Append(record.Record{Value: bytes.Repeat([]byte("value"), 20)})
		e := Entry{Index: 3, Term: 1, Data: b.Finish()}
		clear(e.Data[record.HeaderSize:])
		binary.BigEndian.PutUint32(e.Data[17:], crc32.Checksum(e.Data[21:], castagnoli))
		r.append(e)
		if err := r.log.Close(); err != nil {
			t.Fatal(err)
		}
		rep, err := Verify(r.fs, r.cfg.Dir)
		if err != nil || len(rep.Problems) != 1 || rep.Problems[0].Offset != w.end {
			t.Errorf("%s: %v %v, want one problem at offset %d", codec, rep.Problems, err, w.end)
		}
	}
}
