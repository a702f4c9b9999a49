// Package kv keeps a node's small state in one Pebble store with named key spaces: Raft's stable state,
// entries that take no Kafka offset, the control group's log, node facts.
//
// It knows keys and values and what a failed sync means; it knows nothing of Raft and of what is stored.
package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/vfs"
)

// What Open, Get and Commit can answer; each is wrapped with the particulars.
var (
	ErrNotFound = errors.New("kv: key not found")
	ErrLocked   = errors.New("kv: another process uses this directory")
	ErrCorrupt  = errors.New("kv: store is damaged")
	ErrFatal    = errors.New("kv: a write or sync has failed, the store takes no more writes")
	ErrClosed   = errors.New("kv: store is closed")
)

// Defaults of Config.
const (
	DefaultCacheBytes = 8 << 20
	memTableBytes     = 4 << 20
	maxOpenFiles      = 256
)

// Config says where the store is and whom to tell when it fails.
type Config struct {
	FS         vfs.FS       // nil: the operating system's
	Dir        string       // made if missing, unless ReadOnly
	Logger     *slog.Logger // nil: silent
	OnFatal    func(error)  // called once, at the first failed sync or commit; nil: nobody. It may end the process
	CacheBytes int64        // 0: DefaultCacheBytes
	ReadOnly   bool         // refuses writes; the directory must be there and free
	Failpoints *failpoint.Set
}

// beforeSync is passed before each sync of the store's files.
var beforeSync = failpoint.Register("kv/before-sync", "a sync of the key-value store's files; an error counts as a failed sync")

// DB is an open store. All methods may be called from any goroutine.
type DB struct {
	db      *pebble.DB
	logger  *slog.Logger
	onFatal func(error)
	once    sync.Once
	fatal   atomic.Pointer[error]
	guard   *guard

	mu     sync.RWMutex // held for reading around every use, for writing by Close
	closed bool
}

// Open opens the store or makes an empty one. ErrLocked: another process or DB holds it; ErrCorrupt:
// the files contradict each other.
func Open(cfg Config) (*DB, error) {
	if cfg.FS == nil {
		cfg.FS = vfs.OS()
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = DefaultCacheBytes
	}
	d := &DB{logger: cfg.Logger, onFatal: cfg.OnFatal}
	d.guard = &guard{failed: d.fail, points: cfg.Failpoints}
	if d.logger == nil {
		d.logger = slog.New(slog.DiscardHandler)
	}
	if !cfg.ReadOnly {
		if err := vfs.MkdirAllSync(cfg.FS, cfg.Dir); err != nil {
			return nil, fmt.Errorf("make %s: %w", cfg.Dir, err)
		}
	}
	db, err := pebble.Open(cfg.Dir, d.options(cfg))
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", cfg.Dir, classify(err))
	}
	d.db = db
	d.guard.armed.Store(true)
	return d, nil
}

func (d *DB) options(cfg Config) *pebble.Options {
	return &pebble.Options{
		FS:                 guardFS{FS: cfg.FS, g: d.guard},
		ReadOnly:           cfg.ReadOnly,
		ErrorIfNotExists:   cfg.ReadOnly,
		CacheSize:          cfg.CacheBytes,
		MemTableSize:       memTableBytes,
		MaxOpenFiles:       maxOpenFiles,
		FormatMajorVersion: pebble.FormatNewest,
		Logger:             pebbleLogger{d},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { d.logger.Warn("background work of the store failed", "error", err) },
		},
	}
}

func classify(err error) error {
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EACCES) && strings.Contains(err.Error(), "LOCK"),
		strings.Contains(err.Error(), "lock held"):
		return fmt.Errorf("%w: %w", ErrLocked, err)
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// fail remembers the first failure and reports it. From then on no write is accepted.
func (d *DB) fail(err error) {
	d.once.Do(func() {
		wrapped := fmt.Errorf("%w: %w", ErrFatal, err)
		d.fatal.Store(&wrapped)
		d.logger.Error("the store cannot write to disk", "error", err)
		if d.onFatal != nil {
			d.onFatal(err)
		}
	})
}

// Err returns the failure after which the store refuses writes, or nil.
func (d *DB) Err() error {
	if p := d.fatal.Load(); p != nil {
		return *p
	}
	return nil
}

// enter begins a use of the store; the caller calls d.mu.RUnlock if it returns nil.
func (d *DB) enter() error {
	d.mu.RLock()
	if d.closed {
		d.mu.RUnlock()
		return ErrClosed
	}
	return nil
}

// Get returns a copy of the value, or ErrNotFound.
func (d *DB) Get(key []byte) ([]byte, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.mu.RUnlock()
	v, closer, err := d.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, key)
	}
	if err != nil {
		return nil, classify(err)
	}
	out := append(make([]byte, 0, len(v)), v...)
	return out, closer.Close()
}

// Set writes one key; with sync it is durable on return.
func (d *DB) Set(key, value []byte, sync bool) error {
	b := d.NewBatch()
	defer b.Close()
	b.Set(key, value)
	return b.Commit(sync)
}

// Delete removes one key if it is there; with sync that is durable on return.
func (d *DB) Delete(key []byte, sync bool) error {
	b := d.NewBatch()
	defer b.Close()
	b.Delete(key)
	return b.Commit(sync)
}

// Scan calls fn for each key in [lo, hi) in order, and ends with fn's first error. The slices are valid
// during the call only. fn must not call Close.
func (d *DB) Scan(lo, hi []byte, fn func(k, v []byte) error) error {
	return d.iterate(lo, hi, func(it *pebble.Iterator) error {
		for ok := it.First(); ok; ok = it.Next() {
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			if err := fn(it.Key(), v); err != nil {
				return err
			}
		}
		return nil
	})
}

// First returns copies of the first key in [lo, hi) and its value, or ErrNotFound.
func (d *DB) First(lo, hi []byte) (k, v []byte, err error) {
	return d.end(lo, hi, (*pebble.Iterator).First)
}

// Last returns copies of the last key in [lo, hi) and its value, or ErrNotFound.
func (d *DB) Last(lo, hi []byte) (k, v []byte, err error) {
	return d.end(lo, hi, (*pebble.Iterator).Last)
}

func (d *DB) end(lo, hi []byte, seek func(*pebble.Iterator) bool) (k, v []byte, err error) {
	err = d.iterate(lo, hi, func(it *pebble.Iterator) error {
		if !seek(it) {
			return errors.Join(it.Error(), ErrNotFound)
		}
		value, err := it.ValueAndErr()
		k, v = append([]byte(nil), it.Key()...), append([]byte(nil), value...)
		return err
	})
	return k, v, err
}

func (d *DB) iterate(lo, hi []byte, walk func(*pebble.Iterator) error) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.mu.RUnlock()
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return classify(err)
	}
	err = walk(it)
	return errors.Join(err, it.Error(), it.Close())
}

// Close ends the store's goroutines. What was committed without sync is durable after it, unless the
// store had failed. Later calls answer ErrClosed; a second Close does nothing.
func (d *DB) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.db.Close()
}

// pebbleLogger passes Pebble's words on. Fatalf returns: Pebble then hands the error up or, in a commit,
// falls through, and Batch.Commit looks at the failure itself.
type pebbleLogger struct{ d *DB }

func (l pebbleLogger) Infof(format string, args ...any) {
	if l.d.logger.Enabled(context.Background(), slog.LevelDebug) {
		l.d.logger.Debug(fmt.Sprintf(format, args...))
	}
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.d.logger.Warn(fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.d.fail(fmt.Errorf(format, args...))
}
