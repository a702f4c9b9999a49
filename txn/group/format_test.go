package group

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"gopherlog/engine/record"
)

var formatDir = flag.String("format-dir", "", "where TestWriteRecordsForDumpLog leaves its segment; empty: a temporary directory")

// TestWriteRecordsForDumpLog leaves a segment of group records, for Kafka's dump-log to decode (scripts/check-format.sh).
func TestWriteRecordsForDumpLog(t *testing.T) {
	dir := *formatDir
	if dir == "" {
		dir = t.TempDir()
	}
	b := record.Builder{BaseTimestamp: clock.UnixMilli()}
	group, offset := Key{Group: "readers"}, Key{"readers", "orders", 3}
	b.Append(record.Record{Key: group.Encode(), Value: consumerSample().Encode()})
	b.Append(record.Record{Key: offset.Encode(), Value: Offset{12, 5, "here", clock.UnixMilli(), -1, [16]byte{}}.Encode()})
	b.Append(record.Record{Key: offset.Encode(), Value: Offset{13, 5, "there", clock.UnixMilli(), -1, [16]byte{7: 1}}.Encode()})
	b.Append(record.Record{Key: offset.Encode()})
	b.Append(record.Record{Key: group.Encode(), Value: (&Record{ProtocolType: "consumer", Generation: 8, Since: 5}).Encode()})
	begun := consumerSample()
	begun.Unassigned = true
	b.Append(record.Record{Key: group.Encode(), Value: begun.Encode()})
	b.Append(record.Record{Key: group.Encode()})
	batch := b.Finish()
	batch.SetLeaderEpoch(1)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "00000000000000000000.log"), batch, 0o644); err != nil {
		t.Fatal(err)
	}
}

// consumerSample is sample with a subscription and an assignment that dump-log understands: version 0, topic orders, partition 3.
func consumerSample() *Record {
	r := sample()
	for i := range r.Members {
		r.Members[i].Subscription = append([]byte{0, 0, 0, 0, 0, 1, 0, 6}, "orders\xff\xff\xff\xff"...)
		r.Members[i].Assignment = append([]byte{0, 0, 0, 0, 0, 1, 0, 6}, "orders\x00\x00\x00\x01\x00\x00\x00\x03\xff\xff\xff\xff"...)
	}
	return r
}
