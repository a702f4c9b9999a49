package kafkatx

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"gopherlog/engine/record"
)

var formatDir = flag.String("format-dir", "", "where TestWriteRecordsForDumpLog leaves its segment; empty: a temporary directory")

// TestWriteRecordsForDumpLog leaves a segment of transaction records, for Kafka's dump-log to decode (scripts/check-format.sh).
func TestWriteRecordsForDumpLog(t *testing.T) {
	dir := *formatDir
	if dir == "" {
		dir = t.TempDir()
	}
	var out []byte
	next := int64(0)
	for _, m := range append(sampleMetas(), nil) {
		b := record.Builder{BaseTimestamp: clock.UnixMilli()}
		b.Append(record.Record{Key: EncodeKey("orders"), Value: m.EncodeValue()})
		batch := b.Finish()
		batch.SetBaseOffset(next)
		batch.SetLeaderEpoch(1)
		next = batch.NextOffset()
		out = append(out, batch...)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "00000000000000000000.log"), out, 0o644); err != nil {
		t.Fatal(err)
	}
}
