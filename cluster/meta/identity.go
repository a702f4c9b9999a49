package meta

import (
	"gopherlog/cluster/rpc"
	"gopherlog/engine/vfs"
)

// Identity is who this data directory is. It is kept in meta.properties.
type Identity struct{}

// ReadIdentity reads dir/meta.properties, or formats a fresh directory with a new incarnation. It refuses, by name, a directory of
// another node, of a newer format, damaged, or of another program.
func ReadIdentity(fs vfs.FS, dir string, node NodeID) (*Identity, error) { return &Identity{}, nil }

// ClusterID is "" until the node belongs to a cluster.
func (i *Identity) ClusterID() string { return "" }

// ServerID is this node's name in Raft groups.
func (i *Identity) ServerID() rpc.ServerID { return "" }
