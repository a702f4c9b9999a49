package log

import (
	"fmt"
	"hash/crc32"
	"io"
)

// Kafka's .snapshot and .txnindex lie beside the segments for Kafka's tools. This package knows their frames, not what they mean, and
// recovers nothing from them.
const (
	snapshotHead    = 2 + 4 + 4 // version, CRC-32C of the rest, count
	snapshotEntry   = 46
	snapshotVersion = 1
	txnIndexEntry   = 34
)

// writeBeside writes Kafka's files that belong to the boundary at which s begins. A failure costs tools their files and nothing else:
// it is told and forgotten.
func (l *Log) writeBeside(s *segment, b Base) {
	if l.cfg.Beside == nil {
		return
	}
	before := l.before(s)
	from := s.base
	if before != nil {
		from = before.base
	}
	snapshot, index, err := l.cfg.Beside(b.State, from, s.base)
	if err == nil && len(snapshot) > 0 {
		err = l.writeFile(s.name(extSnapshot), snapshot)
	}
	if err == nil && len(index) > 0 && before != nil {
		err = l.writeFile(before.name(extTxnIndex), index)
	}
	if err != nil {
		l.cfg.Logger.Warn("cannot write Kafka's files beside a segment", "directory", l.cfg.Dir, "segment", s.base, "error", err)
	}
}

// before is the segment that ends where s begins; nil if it was trimmed.
func (l *Log) before(s *segment) *segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i := 1; i < len(l.segs); i++ {
		if l.segs[i] == s {
			return l.segs[i-1]
		}
	}
	return nil
}

func checkSnapshot(name string, data []byte) error {
	switch {
	case len(data) < snapshotHead:
		return &CorruptionError{name, 0, fmt.Sprintf("%d bytes", len(data))}
	case be.Uint16(data) != snapshotVersion:
		return &CorruptionError{name, 0, fmt.Sprintf("version %d, want %d", be.Uint16(data), snapshotVersion)}
	case be.Uint32(data[2:]) != crc32.Checksum(data[6:], castagnoli):
		return &CorruptionError{name, 2, "CRC-32C does not fit"}
	case int64(be.Uint32(data[6:]))*snapshotEntry != int64(len(data)-snapshotHead):
		return &CorruptionError{name, 6, fmt.Sprintf("%d producers in %d bytes", be.Uint32(data[6:]), len(data)-snapshotHead)}
	}
	return nil
}

// checkTxnIndex wants transactions that end one after the other, behind the segment's first offset.
func checkTxnIndex(name string, base int64, data []byte) error {
	before := base - 1
	for at := 0; at < len(data); at += txnIndexEntry {
		if len(data)-at < txnIndexEntry {
			return &CorruptionError{name, int64(at), fmt.Sprintf("%d bytes follow the last whole entry", len(data)-at)}
		}
		first, last := int64(be.Uint64(data[at+10:])), int64(be.Uint64(data[at+18:]))
		if v := be.Uint16(data[at:]); v != 0 || first < 0 || first > last || last <= before {
			return &CorruptionError{name, int64(at), fmt.Sprintf("version %d, offsets [%d, %d] after %d", v, first, last, before)}
		}
		before = last
	}
	return nil
}

func dumpSnapshot(w io.Writer, name string, data []byte) error {
	if err := checkSnapshot(name, data); err != nil {
		return err
	}
	return dumpFixed(data[snapshotHead:], snapshotEntry, func(e []byte) {
		fmt.Fprintf(w, "producer %d epoch %d last sequence %d last offset %d delta %d timestamp %d coordinator epoch %d transaction from %d\n",
			int64(be.Uint64(e)), int16(be.Uint16(e[8:])), int32(be.Uint32(e[10:])), int64(be.Uint64(e[14:])), int32(be.Uint32(e[22:])),
			int64(be.Uint64(e[26:])), int32(be.Uint32(e[34:])), int64(be.Uint64(e[38:])))
	})
}
