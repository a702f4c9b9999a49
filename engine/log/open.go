package log

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopherlog/engine/vfs"
)

// Open opens or creates a partition's log and recovers it. See recovery for what is trusted, rebuilt, cut
// or refused. The log must be closed.
func Open(cfg Config) (*Log, Recovery, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, Recovery{}, err
	}
	if err := vfs.MkdirAllSync(cfg.FS, cfg.Dir); err != nil {
		return nil, Recovery{}, fmt.Errorf("log: create directory: %w", err)
	}
	l := &Log{cfg: cfg, keeper: newToken(), turn: newToken()}
	l.sidecar = newSideJournal(&l.cfg)
	l.cache.limit, l.cache.budget = cfg.CacheBytes, cfg.CacheBudget
	r := &recovery{Log: l}
	err := r.run()
	if err == nil {
		err = l.sidecar.Retire()
	}
	if err != nil {
		l.sidecar.shut()
		for _, s := range l.segs {
			s.unpin()
		}
		return nil, r.report, fmt.Errorf("open %s: %w", cfg.Dir, err)
	}
	cfg.CacheBudget.join(l)
	return l, r.report, nil
}

// run brings the directory into order and the log into memory.
func (r *recovery) run() error {
	if err := r.checkMetadata(); err != nil {
		return err
	}
	floor, err := r.sidecar.open()
	if err != nil {
		return err
	}
	done, err := r.finishReset()
	if err != nil || done {
		return err
	}
	bases, err := r.tidy()
	if err != nil {
		return err
	}
	if err := r.readPoint(); err != nil {
		return err
	}
	if len(bases) == 0 {
		return r.create()
	}
	if err := r.makeSure(floor); err != nil {
		return err
	}
	return r.recover(bases)
}

// checkMetadata writes partition.metadata, or compares it. It is not synced: what a power cut took of it is
// written again.
func (r *recovery) checkMetadata() error {
	want := fmt.Sprintf("version: 0\ntopic_id: %s\n", base64.RawURLEncoding.EncodeToString(r.cfg.TopicID[:]))
	data, ok, err := readIfThere(r.cfg.FS, r.path(fileMetadata))
	have := strings.TrimSpace(strings.TrimRight(string(data), "\x00"))
	switch {
	case err != nil:
		return err
	case !ok || len(have) < len(want)-1 && strings.HasPrefix(want, have):
		r.names.wrote()
		return errors.Join(truncateFile(r.cfg.FS, r.path(fileMetadata), 0), writeTo(r.cfg.FS, r.path(fileMetadata), []byte(want), 0))
	case have != strings.TrimSpace(want):
		return fmt.Errorf("log: %s says %q, want %q: the directory belongs to another topic", fileMetadata, have, want)
	}
	return nil
}

// tidy removes what unfinished work left behind and returns the base offsets of the segments, ascending.
func (r *recovery) tidy() ([]int64, error) {
	names, err := r.cfg.FS.List(r.cfg.Dir)
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, name := range names {
		if base, ext, ok := parseSegmentName(name); ok && ext == extLog {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	for _, name := range names {
		base, ext, ok := parseSegmentName(name)
		_, whole := slices.BinarySearch(bases, base)
		if ok && ext == extRidx && !whole && r.cfg.SameBoot && !slices.Contains(names, segmentName(base, extLog)+extDeleted) {
			// A removal takes the .ridx first, or puts the .log aside; a creation makes the .log first.
			return nil, &CorruptionError{segmentName(base, extLog), 0, "missing, its .ridx is there"}
		}
		if strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, extDeleted) || ok && !whole {
			if err := removeIfThere(r.cfg.FS, r.path(name)); err != nil {
				return nil, err
			}
		}
	}
	return bases, nil
}

// finishReset completes a reset that was interrupted.
func (r *recovery) finishReset() (bool, error) {
	data, ok, err := readIfThere(r.cfg.FS, r.path(fileReset))
	if err != nil || !ok {
		return false, err
	}
	b, err := decodeBase(magicReset, fileReset, data)
	if err != nil {
		return false, err
	}
	s, err := r.wipeTo(b)
	if err != nil {
		return false, err
	}
	r.adopt(s, b)
	r.report.Rebuilt = append(r.report.Rebuilt, s.name(extSnap))
	if err := r.writePoint(r.point); err != nil {
		return true, err
	}
	return true, errors.Join(removeIfThere(r.cfg.FS, r.path(fileReset)), vfs.SyncDir(r.cfg.FS, r.cfg.Dir))
}

// readPoint reads the recovery point. A damaged one costs time only: everything is checked.
func (r *recovery) readPoint() error {
	data, ok, err := readIfThere(r.cfg.FS, r.path(filePoint))
	if err != nil || !ok {
		return err
	}
	p, err := decodePoint(filePoint, data)
	var damage *CorruptionError
	if errors.As(err, &damage) {
		r.report.Rebuilt = append(r.report.Rebuilt, filePoint)
		return nil
	}
	r.point, r.hasPoint = p, err == nil
	return err
}

// create makes the first segment of a log that starts from nothing; the names are durable when it returns, so
// an empty directory beside side entries is one that was lost.
func (r *recovery) create() error {
	if r.hasPoint && r.point.index > 0 {
		return &CorruptionError{filePoint, 0, fmt.Sprintf("index %d was durable, but there is no segment", r.point.index)}
	}
	err := r.sidecar.Scan(0, noIndex, func(e Entry) error {
		return &CorruptionError{segmentName(0, extLog), 0, fmt.Sprintf("missing: there are side entries from index %d on, but no segment", e.Index)}
	})
	if err != nil {
		return err
	}
	s, err := createSegment(r.cfg.FS, r.cfg.Dir, ridxHead{first: 1})
	if err != nil {
		return err
	}
	r.segs = []*segment{s}
	r.epochs = epochs{{}}
	r.cache.reset(1)
	r.names.wrote()
	return r.syncDir()
}
