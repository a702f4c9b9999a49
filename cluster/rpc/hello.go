package rpc

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"gopherlog/cluster/rpc/rpcpb"
)

// protocolVersion is the version of everything that nodes say to each other.
// Two nodes of different versions refuse each other by name.
const protocolVersion = 3

// bulkMagic opens a plain stream; gRPC opens with its own preface.
const (
	bulkMagic   = "GLB1"
	grpcPreface = "PRI "
	magicSize   = len(bulkMagic)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hello is what either end says first.
type hello struct {
	version uint32
	cluster string
	from    NodeID
	to      NodeID
}

func (n *Node) hello(to NodeID) hello {
	return hello{version: protocolVersion, cluster: n.cfg.ClusterID(), from: n.cfg.Node, to: to}
}

func (h hello) proto() *rpcpb.Hello {
	return &rpcpb.Hello{Version: h.version, Cluster: h.cluster, From: int32(h.from), To: int32(h.to)}
}

func helloFromProto(p *rpcpb.Hello) hello {
	return hello{version: p.GetVersion(), cluster: p.GetCluster(), from: NodeID(p.GetFrom()), to: NodeID(p.GetTo())}
}

// admit says whether the sender of h may talk to this node. A side that does
// not know its cluster yet is let in; groups are served by name of cluster.
func (n *Node) admit(h hello) error {
	mine := n.cfg.ClusterID()
	switch {
	case h.version != protocolVersion:
		return &remoteError{ErrVersion, fmt.Sprintf("rpc: node %d speaks version %d, node %d speaks version %d", n.cfg.Node, protocolVersion, h.from, h.version)}
	case h.to != 0 && h.to != n.cfg.Node:
		return &remoteError{errWrongNode, fmt.Sprintf("rpc: this is node %d, not node %d: check the addresses in -peers", n.cfg.Node, h.to)}
	case h.from <= 0 || h.from == n.cfg.Node:
		return &remoteError{errWrongNode, fmt.Sprintf("rpc: node %d was dialled by node %d: every node needs its own id", n.cfg.Node, h.from)}
	case mine != "" && h.cluster != "" && mine != h.cluster:
		return &remoteError{ErrForeignCluster, fmt.Sprintf("rpc: node %d belongs to cluster %s, node %d belongs to cluster %s", n.cfg.Node, mine, h.from, h.cluster)}
	}
	return nil
}

// Layout of a plain stream's hello, big endian:
//
//	magic [4] "GLB1"; version u32; from i32; to i32; length u16; cluster; crc32c u32
//
// and of its answer:
//
//	code u16; version u32; length u16; text; crc32c u32
const helloHeadSize = 18

func (h hello) encode() []byte {
	b := append(make([]byte, 0, 64), bulkMagic...)
	b = binary.BigEndian.AppendUint32(b, h.version)
	b = binary.BigEndian.AppendUint32(b, uint32(h.from))
	b = binary.BigEndian.AppendUint32(b, uint32(h.to))
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.cluster)))
	b = append(b, h.cluster...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readHello reads a hello whose magic has been read already.
func readHello(r io.Reader) (hello, error) {
	b := make([]byte, helloHeadSize, 64)
	copy(b, bulkMagic)
	if _, err := io.ReadFull(r, b[magicSize:]); err != nil {
		return hello{}, err
	}
	h := hello{
		version: binary.BigEndian.Uint32(b[4:]),
		from:    NodeID(binary.BigEndian.Uint32(b[8:])),
		to:      NodeID(binary.BigEndian.Uint32(b[12:])),
	}
	n := int(binary.BigEndian.Uint16(b[16:]))
	if n > 256 {
		return hello{}, fmt.Errorf("%w: cluster id of %d bytes", ErrCorrupt, n)
	}
	b = append(b, make([]byte, n+4)...)
	if _, err := io.ReadFull(r, b[helloHeadSize:]); err != nil {
		return hello{}, err
	}
	if sum := binary.BigEndian.Uint32(b[len(b)-4:]); sum != crc32.Checksum(b[:len(b)-4], castagnoli) {
		return hello{}, fmt.Errorf("%w: checksum of hello", ErrCorrupt)
	}
	h.cluster = string(b[helloHeadSize : len(b)-4])
	return h, nil
}

func encodeWelcome(err error) []byte {
	var c code
	var text string
	if err != nil {
		c, text = toCode(err)
		text = text[:min(len(text), 1024)]
	}
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 64), uint16(c))
	b = binary.BigEndian.AppendUint32(b, protocolVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	b = append(b, text...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func readWelcome(r io.Reader) error {
	b := make([]byte, 8, 64)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint16(b[6:]))
	if n > 1024 {
		return fmt.Errorf("%w: welcome of %d bytes", ErrCorrupt, n)
	}
	b = append(b, make([]byte, n+4)...)
	if _, err := io.ReadFull(r, b[8:]); err != nil {
		return err
	}
	if sum := binary.BigEndian.Uint32(b[len(b)-4:]); sum != crc32.Checksum(b[:len(b)-4], castagnoli) {
		return fmt.Errorf("%w: checksum of welcome", ErrCorrupt)
	}
	if v := binary.BigEndian.Uint32(b[2:]); v != protocolVersion {
		return fmt.Errorf("%w: we speak version %d, the peer version %d", ErrVersion, protocolVersion, v)
	}
	if c := code(binary.BigEndian.Uint16(b)); c != 0 {
		return fromCode(c, string(b[8:len(b)-4]))
	}
	return nil
}

// greet opens a plain stream on a connection that was just dialled.
func (n *Node) greet(conn net.Conn, to NodeID) error {
	conn.SetDeadline(time.Now().Add(n.cfg.DialTimeout))
	defer conn.SetDeadline(time.Time{})
	if _, err := conn.Write(n.hello(to).encode()); err != nil {
		return err
	}
	return readWelcome(conn)
}
