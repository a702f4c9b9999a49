package log

import (
	"flag"
	"fmt"
	"testing"

	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

var formatDir = flag.String("format-dir", "", "where TestWriteLogForDumpLog leaves its log; empty: a temporary directory")

// TestWriteLogForDumpLog writes a log with rolls, all codecs, idempotent and transactional batches, markers and
// leader changes, for scripts/check-format.sh to be read with Kafka's dump-log.
func TestWriteLogForDumpLog(t *testing.T) {
	dir := *formatDir
	if dir == "" {
		dir = t.TempDir() + "/orders-0"
	}
	cfg := Config{FS: vfs.OS(), Dir: dir, Sidecar: newMemSidecar(), SegmentBytes: 64 << 10, TopicID: [16]byte{7}}
	l, _, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	messages := 0
	for i := uint64(1); i <= 600; i++ {
		term := 1 + i/100
		if i%100 == 0 || i == 1 {
			if err := l.Append([]Entry{side(i, term)}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		b, n := formatBatch(int(i))
		messages += n
		if err := l.Append([]Entry{{Index: i, Term: term, Data: b}}); err != nil {
			t.Fatal(err)
		}
		if i == 300 { // the index files of a log that was reopened
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			cfg.SameBoot = true
			if l, _, err = Open(cfg); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	rep, err := Verify(vfs.OS(), dir)
	if err != nil || len(rep.Problems) > 0 || rep.Messages != messages || rep.Segments < 3 {
		t.Fatalf("%+v %v, want %d messages", rep, err, messages)
	}
}

func formatBatch(i int) (batch []byte, messages int) {
	if i%17 == 0 {
		b := record.BuildControl(record.Commit, 1000, 3, 1, int64(1_000_000+i))
		copyStamp(b, -1, -1)
		return b, 0
	}
	b := record.Builder{Codec: record.Codec(i % 5), BaseTimestamp: int64(1_000_000 + i*10 - i%7*15)}
	if i%3 == 0 {
		b.Producer = &record.Producer{ID: 1000, Epoch: 3, Sequence: int32(i)}
		b.Transactional = i%6 == 0
	}
	for k := range 1 + i%4 {
		b.Append(record.Record{TimestampDelta: int64(k), Key: []byte(fmt.Sprint("key-", i)), Value: make([]byte, 50*(i%13))})
	}
	out := b.Finish()
	copyStamp(out, -1, -1)
	return out, 1 + i%4
}
