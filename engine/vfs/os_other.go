//go:build !linux

package vfs

// WriteVAt implements File with one positional write per buffer.
func (f *osFile) WriteVAt(bufs [][]byte, off int64) (int, error) { return writeEach(f, bufs, off) }

// SyncData implements File.
func (f *osFile) SyncData() error { return f.Sync() }
