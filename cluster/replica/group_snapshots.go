package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"

	"gopherlog/engine/kv"
	"gopherlog/engine/log"
)

// groupSnapshots is the library's view of a group's snapshots. Before raft runs
// List offers the newest usable one, so that little is replayed. Afterwards it
// offers the oldest segment's, so that a peer which lacks the beginning gets
// the state there and all retained entries behind it: a newer one would cost it
// the history in between. Create takes snapshots that a leader sends.
type groupSnapshots struct{ g *Group }

const (
	snapshotRestart = "restart" // ids: where a snapshot lies
	snapshotSegment = "segment"
	snapshotInstall = "install"
)

// List offers at most one snapshot.
func (s *groupSnapshots) List() ([]*raft.SnapshotMeta, error) {
	id, b, err := s.pick()
	if errors.Is(err, log.ErrNoSnap) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := metaOf(id, b)
	if err != nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{m}, nil
}

func (s *groupSnapshots) pick() (id string, b log.Base, err error) {
	if !s.g.booting.Load() {
		b, err = s.g.log.OldestSnap()
		return snapshotSegment, b, err
	}
	return s.g.newestSnapshot()
}

// newestSnapshot returns the newer of restart copy and segment snapshot that
// fits the log. A log that was trimmed cannot start without one.
func (g *Group) newestSnapshot() (string, log.Base, error) {
	c, copyErr := g.restartCopy()
	b, snapErr := g.log.NewestSnap()
	switch {
	case copyErr == nil && (snapErr != nil || c.Index >= b.Index):
		return snapshotRestart, c, nil
	case snapErr == nil:
		return snapshotSegment, b, nil
	case !errors.Is(copyErr, log.ErrNoSnap):
		return "", b, copyErr
	case !errors.Is(snapErr, log.ErrNoSnap):
		return "", b, snapErr
	case g.log.FirstIndex() > 1:
		return "", b, fmt.Errorf("log begins at index %d and no snapshot covers what is before it", g.log.FirstIndex())
	}
	return "", b, log.ErrNoSnap
}

// restartCopy returns the restart copy if it fits the log: a copy that lies
// ahead of a log which lost its tail would make the library skip a hole.
func (g *Group) restartCopy() (log.Base, error) {
	v, err := g.cfg.KV.Get(g.restartKey())
	if errors.Is(err, kv.ErrNotFound) {
		return log.Base{}, log.ErrNoSnap
	}
	if err != nil {
		return log.Base{}, fmt.Errorf("read restart copy: %w", err)
	}
	b, err := decodeBase(v)
	if err != nil {
		return log.Base{}, fmt.Errorf("restart copy: %w", err)
	}
	if b.Index+1 < g.log.FirstIndex() || b.Index > g.log.LastIndex() {
		return log.Base{}, log.ErrNoSnap
	}
	if term, err := g.log.Term(b.Index); err != nil || term != b.Term {
		return log.Base{}, log.ErrNoSnap
	}
	return b, nil
}

func (g *Group) restartKey() []byte { return kv.StableKey(groupKey(g.id), nameRestart) }

func metaOf(id string, b log.Base) (*raft.SnapshotMeta, error) {
	st, err := decodeState(b.State)
	if err != nil {
		return nil, err
	}
	conf, err := decodeConfiguration(st.conf)
	if err != nil {
		return nil, err
	}
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: fmt.Sprintf("%s-%d", id, b.Index),
		Index: b.Index, Term: b.Term, Configuration: conf, ConfigurationIndex: st.confIndex,
		Size: int64(len(encodeBase(b))),
	}, nil
}

// Open returns what List or Create named, if it is still that.
func (s *groupSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	var b log.Base
	var err error
	kind, at, _ := bytes.Cut([]byte(id), []byte("-"))
	switch string(kind) {
	case snapshotInstall:
		return s.g.inst.open(id)
	case snapshotRestart:
		b, err = s.g.restartCopy()
	case snapshotSegment:
		if s.g.booting.Load() {
			b, err = s.g.log.NewestSnap()
		} else {
			b, err = s.g.log.OldestSnap()
		}
	default:
		err = fmt.Errorf("unknown snapshot %q", id)
	}
	if err != nil {
		return nil, nil, err
	}
	if fmt.Sprint(b.Index) != string(at) {
		return nil, nil, fmt.Errorf("snapshot %s was replaced by one at %d", id, b.Index)
	}
	m, err := metaOf(string(kind), b)
	if err != nil {
		return nil, nil, err
	}
	return m, io.NopCloser(bytes.NewReader(encodeBase(b))), nil
}

// installs holds the one snapshot that a leader is sending, in memory: it is
// the FSM's state at the log start.
type installs struct {
	mu   sync.Mutex
	sink *installSink
}

type installSink struct {
	bytes.Buffer
	to   *installs
	meta raft.SnapshotMeta
}

// Create begins to receive a snapshot.
func (s *groupSnapshots) Create(v raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &installSink{to: &s.g.inst, meta: raft.SnapshotMeta{
		Version: v, ID: fmt.Sprintf("%s-%d", snapshotInstall, index),
		Index: index, Term: term, Configuration: conf, ConfigurationIndex: confIndex,
	}}, nil
}

// Write takes a part of the snapshot.
func (k *installSink) Write(p []byte) (int, error) {
	if k.Len()+len(p) > maxSnapshotBytes {
		return 0, fmt.Errorf("snapshot exceeds %d bytes", maxSnapshotBytes)
	}
	return k.Buffer.Write(p)
}

// ID names the snapshot.
func (k *installSink) ID() string { return k.meta.ID }

// Cancel drops it.
func (k *installSink) Cancel() error { return nil }

// Close makes it available to Open. It is not durable: Restore makes it so by
// adopting it.
func (k *installSink) Close() error {
	b, err := decodeBase(k.Bytes())
	if err != nil {
		return err
	}
	if b.Index != k.meta.Index || b.Term != k.meta.Term {
		return fmt.Errorf("snapshot is of index %d term %d, announced as %d, %d", b.Index, b.Term, k.meta.Index, k.meta.Term)
	}
	k.meta.Size = int64(k.Len())
	k.to.mu.Lock()
	defer k.to.mu.Unlock()
	k.to.sink = k
	return nil
}

// open hands the received snapshot out, once.
func (i *installs) open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.sink == nil || i.sink.meta.ID != id {
		return nil, nil, fmt.Errorf("no installed snapshot %q", id)
	}
	k := i.sink
	i.sink = nil
	return &k.meta, io.NopCloser(&k.Buffer), nil
}
