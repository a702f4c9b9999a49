package rpc

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"
)

// NodeID names one broker process of a cluster. Zero names nobody.
type NodeID int32

func (n NodeID) String() string { return strconv.Itoa(int(n)) }

// ServerID names one replica of one group: "<node>.<incarnation in hex>". It
// is both the Raft server id and the Raft server address, so a replica that
// lost its disk comes back under another id and its forgotten votes cannot be
// counted twice.
type ServerID string

// MakeServerID builds the id of the replica that node formatted under the
// given incarnation.
func MakeServerID(node NodeID, incarnation uint64) ServerID {
	return ServerID(fmt.Sprintf("%d.%016x", node, incarnation))
}

// Node returns the broker that holds the replica, 0 when the id is malformed.
func (s ServerID) Node() NodeID {
	head, _, ok := strings.Cut(string(s), ".")
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(head, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return NodeID(n)
}

// Incarnation returns the part after the node id, 0 when the id is malformed.
func (s ServerID) Incarnation() uint64 {
	_, tail, ok := strings.Cut(string(s), ".")
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(tail, 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// Raft returns the id as the Raft library writes it.
func (s ServerID) Raft() raft.ServerID { return raft.ServerID(s) }

// Address returns the id as the Raft library writes addresses.
func (s ServerID) Address() raft.ServerAddress { return raft.ServerAddress(s) }

// GroupID names one Raft group: a topic id and a partition.
type GroupID struct {
	Topic     [16]byte
	Partition int32
}

// ControlGroup is the group of the cluster's own metadata.
var ControlGroup GroupID

const groupIDSize = 20

func (g GroupID) String() string {
	if g == ControlGroup {
		return "control"
	}
	return hex.EncodeToString(g.Topic[:]) + "-" + strconv.Itoa(int(g.Partition))
}

// Bytes returns the 20 bytes that stand for the group in frames and keys.
func (g GroupID) Bytes() []byte { return g.append(make([]byte, 0, groupIDSize)) }

func (g GroupID) append(b []byte) []byte {
	b = append(b, g.Topic[:]...)
	return binary.BigEndian.AppendUint32(b, uint32(g.Partition))
}

func decodeGroupID(b []byte) (g GroupID, ok bool) {
	if len(b) != groupIDSize {
		return g, false
	}
	copy(g.Topic[:], b)
	g.Partition = int32(binary.BigEndian.Uint32(b[16:]))
	return g, true
}
