package main

import "context"

// partitions of the replicated rows.
const partitions = 8

// replicatedRow commits batches on three nodes in this process beside a loop that writes and copies to two peers over the same kind of
// sockets. The loop frees a place in its window when both copies are written; a group commits when one is.
func replicatedRow(e *env, name string, size, window int, limit float64) row {
	chunk := batchOf(size)
	ops := e.pick(384<<20, 16*size) / size
	warm := ops / 8
	return row{
		name: name, unit: "MB/s", value: megabytes, limit: limit, note: "one process, loopback TCP",
		open: func(context.Context, string) (bare, ours side, end func(), err error) {
			bare = func(_ context.Context, dir string) (sample, error) {
				b, err := openBareCopies(dir, partitions, window, size)
				defer b.close()
				if err != nil {
					return sample{}, err
				}
				return replicated(chunk, warm, ops, func(n int) error { return b.copy(chunk, n) })
			}
			ours = func(ctx context.Context, dir string) (sample, error) {
				t, err := openTrio(ctx, dir, partitions)
				defer t.close()
				if err != nil {
					return sample{}, err
				}
				return replicated(chunk, warm, ops, func(n int) error { return t.replicate(ctx, chunk, window, n) })
			}
			return bare, ours, nil, nil
		},
	}
}

func replicated(chunk []byte, warm, ops int, work func(n int) error) (sample, error) {
	if err := work(warm); err != nil {
		return sample{}, err
	}
	m := startMeter()
	if err := work(ops); err != nil {
		return sample{}, err
	}
	return m.stop(int64(ops), int64(ops)*int64(len(chunk))), nil
}
