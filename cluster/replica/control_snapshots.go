package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"gopherlog/engine/vfs"
)

const (
	// snapshotsKept files stay; older ones are removed.
	snapshotsKept   = 2
	snapshotSuffix  = ".control"
	snapshotMagic   = "GLCT"
	snapshotVersion = 1
	// snapshotHeader: magic 4, version 2, CRC-32C of the rest 4, index 8,
	// term 8, configuration index 8, length of the configuration 4.
	snapshotHeader = 4 + 2 + 4 + 8 + 8 + 8 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fileSnapshots keeps the control group's snapshots as files, each written
// atomically and synced.
type fileSnapshots struct {
	fs  vfs.FS
	dir string
	// newest is the newest readable snapshot, nil if there is none.
	newest atomic.Pointer[raft.SnapshotMeta]
}

func openFileSnapshots(fs vfs.FS, dir string) (*fileSnapshots, error) {
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make snapshot directory: %w", err)
	}
	s := &fileSnapshots{fs: fs, dir: dir}
	metas, err := s.List()
	if err != nil {
		return nil, err
	}
	if len(metas) > 0 {
		s.newest.Store(metas[0])
	}
	return s, nil
}

// fileSink collects a snapshot in memory and writes it when it is whole.
type fileSink struct {
	bytes.Buffer
	store *fileSnapshots
	meta  raft.SnapshotMeta
}

// Create begins a snapshot.
func (s *fileSnapshots) Create(v raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &fileSink{store: s, meta: raft.SnapshotMeta{
		Version: v, ID: fmt.Sprintf("%020d-%020d", index, term),
		Index: index, Term: term, Configuration: conf, ConfigurationIndex: confIndex,
	}}, nil
}

// Write takes a part of the state.
func (k *fileSink) Write(p []byte) (int, error) {
	if k.Len()+len(p) > maxSnapshotBytes {
		return 0, fmt.Errorf("snapshot exceeds %d bytes", maxSnapshotBytes)
	}
	return k.Buffer.Write(p)
}

// ID names the snapshot.
func (k *fileSink) ID() string { return k.meta.ID }

// Cancel drops it.
func (k *fileSink) Cancel() error { return nil }

// Close makes it durable and removes older ones.
func (k *fileSink) Close() error {
	conf := raft.EncodeConfiguration(k.meta.Configuration)
	b := make([]byte, 10, snapshotHeader+len(conf)+k.Len())
	copy(b, snapshotMagic)
	binary.BigEndian.PutUint16(b[4:], snapshotVersion)
	b = binary.BigEndian.AppendUint64(b, k.meta.Index)
	b = binary.BigEndian.AppendUint64(b, k.meta.Term)
	b = binary.BigEndian.AppendUint64(b, k.meta.ConfigurationIndex)
	b = binary.BigEndian.AppendUint32(b, uint32(len(conf)))
	b = append(append(b, conf...), k.Bytes()...)
	binary.BigEndian.PutUint32(b[6:], crc32.Checksum(b[10:], castagnoli))
	if err := vfs.WriteFileAtomic(k.store.fs, k.store.path(k.meta.ID), b); err != nil {
		return fmt.Errorf("write control snapshot: %w", err)
	}
	k.store.newest.Store(&k.meta)
	return k.store.prune()
}

func (s *fileSnapshots) path(id string) string { return s.fs.PathJoin(s.dir, id+snapshotSuffix) }

// ids returns the snapshots' ids, newest first.
func (s *fileSnapshots) ids() ([]string, error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list control snapshots: %w", err)
	}
	var ids []string
	for _, n := range names {
		if id, ok := strings.CutSuffix(n, snapshotSuffix); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids, nil
}

func (s *fileSnapshots) prune() error {
	ids, err := s.ids()
	if err != nil || len(ids) <= snapshotsKept {
		return err
	}
	for _, id := range ids[snapshotsKept:] {
		if err := s.fs.Remove(s.path(id)); err != nil {
			return fmt.Errorf("remove old control snapshot: %w", err)
		}
	}
	return nil
}

// List returns the snapshots that can be read, newest first.
func (s *fileSnapshots) List() ([]*raft.SnapshotMeta, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	var out []*raft.SnapshotMeta
	var bad error
	for _, id := range ids {
		meta, _, err := s.read(id)
		if err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		out = append(out, meta)
	}
	if len(out) == 0 && bad != nil {
		return nil, bad
	}
	return out, nil
}

// Open reads a snapshot.
func (s *fileSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, state, err := s.read(id)
	if err != nil {
		return nil, nil, err
	}
	return meta, io.NopCloser(bytes.NewReader(state)), nil
}

func (s *fileSnapshots) read(id string) (*raft.SnapshotMeta, []byte, error) {
	f, err := s.fs.Open(s.path(id))
	if err != nil {
		return nil, nil, fmt.Errorf("open control snapshot: %w", err)
	}
	b, err := readLimited(f, maxSnapshotBytes+snapshotHeader+1<<20)
	if err != nil {
		return nil, nil, fmt.Errorf("read control snapshot %s: %w", id, err)
	}
	meta, state, err := decodeSnapshot(id, b)
	if err != nil {
		return nil, nil, fmt.Errorf("control snapshot %s: %w", id+snapshotSuffix, err)
	}
	return meta, state, nil
}

func decodeSnapshot(id string, b []byte) (*raft.SnapshotMeta, []byte, error) {
	if len(b) < snapshotHeader || string(b[:4]) != snapshotMagic {
		return nil, nil, fmt.Errorf("not a control snapshot (%d bytes)", len(b))
	}
	if v := binary.BigEndian.Uint16(b[4:]); v != snapshotVersion {
		return nil, nil, fmt.Errorf("format version %d, this program reads %d", v, snapshotVersion)
	}
	if got, want := crc32.Checksum(b[10:], castagnoli), binary.BigEndian.Uint32(b[6:]); got != want {
		return nil, nil, fmt.Errorf("checksum is %08x, want %08x", got, want)
	}
	n := int(binary.BigEndian.Uint32(b[34:]))
	if n > len(b)-snapshotHeader {
		return nil, nil, fmt.Errorf("configuration of %d bytes in %d", n, len(b))
	}
	state := b[snapshotHeader+n:]
	conf, err := decodeConfiguration(b[snapshotHeader : snapshotHeader+n])
	if err != nil {
		return nil, nil, err
	}
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: id, Size: int64(len(state)),
		Index: binary.BigEndian.Uint64(b[10:]), Term: binary.BigEndian.Uint64(b[18:]),
		Configuration: conf, ConfigurationIndex: binary.BigEndian.Uint64(b[26:]),
	}, state, nil
}

// readLimited reads everything and closes r.
func readLimited(r io.ReadCloser, limit int) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	err = errors.Join(err, r.Close())
	if err == nil && len(b) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return b, err
}
