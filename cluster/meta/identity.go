package meta

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/kv"
	"gopherlog/engine/vfs"
)

// PropertiesFile is the name of the identity's file in a data directory.
const PropertiesFile = "meta.properties"

// maxPropertiesSize bounds what is read of a file that may be anything.
const maxPropertiesSize = 64 << 10

// Identity is who a data directory is: which node of which cluster, on which formatted disk. It is kept in meta.properties.
// Reading is safe from any goroutine; one goroutine at a time may call Adopt.
type Identity struct {
	fs    vfs.FS
	path  string
	props atomic.Pointer[properties]
}

// DirError says why a data directory cannot be used, in one sentence that names it.
type DirError struct{ Path, Msg string }

func (e *DirError) Error() string { return e.Path + ": " + e.Msg }

// ReadIdentity reads dir/meta.properties, or formats a directory that has none with a new incarnation, durably. It refuses with a
// *DirError a directory of another node or another program, a newer format, and a damaged file. dir must exist.
func ReadIdentity(fs vfs.FS, dir string, node NodeID) (*Identity, error) {
	id := &Identity{fs: fs, path: fs.PathJoin(dir, PropertiesFile)}
	raw, err := readSmall(fs, id.path)
	if errors.Is(err, os.ErrNotExist) {
		return id, id.format(dir, node)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id.path, err)
	}
	p, err := parseProperties(raw)
	if err != nil {
		return nil, &DirError{Path: id.path, Msg: err.Error()}
	}
	if p.node != node {
		return nil, &DirError{Path: dir, Msg: fmt.Sprintf("this data directory belongs to node %d, and this is node %d: use -id %d or another -data", p.node, node, p.node)}
	}
	id.props.Store(p)
	return id, nil
}

// format makes a new identity. Partitions without an identity are remains of a node whose votes nobody can vouch for any more.
func (i *Identity) format(dir string, node NodeID) error {
	if names, err := i.fs.List(i.fs.PathJoin(dir, "topics")); err == nil && len(names) > 0 {
		return &DirError{Path: dir, Msg: fmt.Sprintf("it has topics but no %s: move the whole directory away to let this node join anew", PropertiesFile)}
	}
	return i.store(&properties{node: node, incarnation: newIncarnation()})
}

func (i *Identity) store(p *properties) error {
	if err := vfs.WriteFileAtomic(i.fs, i.path, p.encode()); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	i.props.Store(p)
	return nil
}

// Node is the id of the node.
func (i *Identity) Node() NodeID { return i.props.Load().node }

// ClusterID is "" until the node belongs to a cluster.
func (i *Identity) ClusterID() string { return i.props.Load().cluster }

// Incarnation names the formatted disk; never 0.
func (i *Identity) Incarnation() uint64 { return i.props.Load().incarnation }

// ServerID is this node's name in Raft groups.
func (i *Identity) ServerID() rpc.ServerID { return rpc.MakeServerID(i.Node(), i.Incarnation()) }

// Founders are the servers that bootstrapped the control group; empty while the node belongs to no cluster.
func (i *Identity) Founders() []rpc.ServerID { return i.props.Load().founders }

// Adopt makes the node a member of a cluster, durably, before it says so to anybody. It is for ever: another cluster is refused.
func (i *Identity) Adopt(cluster string, founders []rpc.ServerID) error {
	p := *i.props.Load()
	if p.cluster != "" && p.cluster != cluster {
		return fmt.Errorf("%w: %s belongs to cluster %s, not %s", ErrForeignCluster, i.path, p.cluster, cluster)
	}
	if p.cluster == cluster {
		return nil
	}
	p.cluster, p.founders = cluster, founders
	return i.store(&p)
}

// bind ties the store to this identity: the store holds the votes of the incarnation that the file names. A store that was lost while
// the file stayed would let the node vote twice.
func (i *Identity) bind(db *kv.DB) error {
	key, want := kv.MetaKey("incarnation"), fmt.Sprintf("%016x", i.Incarnation())
	have, err := db.Get(key)
	switch {
	case err == nil && string(have) == want:
		return nil
	case err == nil:
		return &DirError{Path: i.path, Msg: fmt.Sprintf("names incarnation %s, but the store beside it belongs to %s: move the whole data directory away to let this node join anew", want, have)}
	case !errors.Is(err, kv.ErrNotFound):
		return fmt.Errorf("read identity of the store: %w", err)
	case i.ClusterID() != "":
		return &DirError{Path: i.path, Msg: "the store beside it is new: its old content, with this node's votes, is lost; move the whole data directory away to let this node join anew"}
	}
	b := db.NewBatch()
	defer b.Close()
	b.Set(key, []byte(want))
	return b.Commit(true)
}

func newIncarnation() uint64 {
	for {
		if n := randomUint64(); n != 0 {
			return n
		}
	}
}

func readSmall(fs vfs.FS, path string) (b []byte, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, maxPropertiesSize))
}
