package kv

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Batch collects writes that take effect together. One goroutine uses it; Close gives its memory back,
// committed or not.
type Batch struct {
	d *DB
	b *pebble.Batch
}

// NewBatch returns an empty batch.
func (d *DB) NewBatch() *Batch { return &Batch{d: d, b: d.db.NewBatch()} }

// Set writes a key. Key and value are copied.
func (b *Batch) Set(key, value []byte) { must(b.b.Set(key, value, nil)) }

// Delete removes a key if it is there.
func (b *Batch) Delete(key []byte) { must(b.b.Delete(key, nil)) }

// DeleteRange removes the keys in [lo, hi).
func (b *Batch) DeleteRange(lo, hi []byte) { must(b.b.DeleteRange(lo, hi, nil)) }

// must holds for writes into a batch in memory, which fail only when the batch was used after Commit.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("kv: write into a batch: %v", err))
	}
}

// Len returns the batch's size in bytes.
func (b *Batch) Len() int { return b.b.Len() }

// Empty reports a batch without writes.
func (b *Batch) Empty() bool { return b.b.Empty() }

// Commit makes the writes visible, all or none; with sync they are durable on return. A commit without
// sync survives only a clean Close or a later synced commit: not even a kill of the process.
func (b *Batch) Commit(sync bool) error {
	if err := b.d.enter(); err != nil {
		return err
	}
	defer b.d.mu.RUnlock()
	if err := b.d.Err(); err != nil {
		return err
	}
	opts := pebble.NoSync
	if sync {
		opts = pebble.Sync
	}
	if err := b.b.Commit(opts); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return b.d.Err()
}

// Close frees the batch; it drops what was not committed.
func (b *Batch) Close() {
	if b.b != nil {
		_ = b.b.Close() // fails only for a batch that is used by a commit still running
		b.b = nil
	}
}
