package main

import (
	"context"
	"path/filepath"

	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/kv"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// appendRow is the leader's write of one batch at a time to one partition's log.
func appendRow(e *env) row {
	const size = 16 << 10
	chunk := batchOf(size)
	ops := e.pick(16384, 64)
	return row{
		name: "append 16 KiB", unit: "MB/s", value: megabytes, limit: 0.80, most: heap{objects: 3},
		open: func(context.Context, string) (bare, ours side, end func(), err error) {
			bare = func(_ context.Context, dir string) (sample, error) { return bareAppend(dir, chunk, ops) }
			ours = func(_ context.Context, dir string) (sample, error) { return logAppend(dir, chunk, ops) }
			return bare, ours, nil, nil
		},
	}
}

// batchOf returns a batch of one record with exactly size bytes.
func batchOf(size int) record.Batch {
	for value := size - 64; value > 0; value-- {
		var b record.Builder
		b.Append(record.Record{Value: make([]byte, value)})
		if out := b.Finish(); len(out) == size {
			out.SetBaseOffset(-1)
			return out[:size:size]
		}
	}
	panic("no batch has this size")
}

// logAppend counts the appends only, neither opening nor removal.
func logAppend(dir string, chunk record.Batch, ops int) (sample, error) {
	db, err := kv.Open(kv.Config{Dir: filepath.Join(dir, "kv")})
	if err != nil {
		return sample{}, err
	}
	defer db.Close()
	id := rpc.GroupID{Topic: [16]byte{1}}
	l, _, err := log.Open(log.Config{FS: vfs.OS(), Dir: filepath.Join(dir, "p-0"), Sidecar: replica.Sidecar(db, id), TopicID: id.Topic})
	if err != nil {
		return sample{}, err
	}
	defer l.Close()
	batch := append(record.Batch(nil), chunk...)
	entries := []log.Entry{{Term: 1, Data: batch}}
	m := startMeter()
	for i := range ops {
		batch.SetBaseOffset(-1) // as a producer sends it: the log stamps it
		entries[0].Index = uint64(i + 1)
		if err := l.Append(entries); err != nil {
			return sample{}, err
		}
	}
	return m.stop(int64(ops), int64(ops)*int64(len(chunk))), nil
}
