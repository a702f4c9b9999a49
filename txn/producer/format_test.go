package producer

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"gopherlog/engine/record"
)

var formatDir = flag.String("format-dir", "", "where TestWriteTransactionsForDumpLog leaves its files; empty: a temporary directory")

// TestWriteTransactionsForDumpLog leaves a segment with transactions, its .txnindex and a .snapshot, for Kafka's dump-log to read
// (scripts/check-format.sh).
func TestWriteTransactionsForDumpLog(t *testing.T) {
	dir := *formatDir
	if dir == "" {
		dir = t.TempDir()
	}
	s := New()
	var log []byte
	end := int64(0)
	for _, b := range []record.Batch{
		txnBatch(4, 0, 0, 3), batch(5, 2, 7, 2), txnBatch(6, 1, 0, 1),
		record.BuildControl(record.Abort, 4, 1, 9, 77), txnBatch(7, 0, 0, 2), record.BuildControl(record.Commit, 6, 2, 9, 78),
		record.BuildControl(record.Abort, 7, 0, 9, 79), txnBatch(4, 1, 0, 1),
	} {
		at(end, b).SetLeaderEpoch(1)
		s.Apply(b)
		log = append(log, b...)
		end = b.NextOffset()
	}
	var index []byte
	for _, a := range s.AbortedEndingIn(0, end) {
		index = AppendTxnIndex(index, a)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const name = "00000000000000000000"
	for ext, b := range map[string][]byte{".log": log, ".txnindex": index, ".snapshot": s.AppendSnapshot(nil)} {
		if err := os.WriteFile(filepath.Join(dir, name+ext), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
