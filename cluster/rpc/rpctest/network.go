// Package rpctest is a network in memory for tests of whatever runs on rpc.
//
// It knows nodes, directed links and the faults of links: cut, reset, delay.
// It refuses to know what flows over them. Nothing in it touches a socket, so
// it works in a synctest bubble.
package rpctest

import (
	"context"
	"net"
	"time"

	"gopherlog/cluster/rpc"
)

type Network struct{}

func New() *Network                                  { panic("soon") }
func (n *Network) Listen(id rpc.NodeID) net.Listener { panic("soon") }
func (n *Network) Dial(from rpc.NodeID) func(ctx context.Context, to rpc.NodeID, addr string) (net.Conn, error) {
	panic("soon")
}
func (n *Network) Addr(id rpc.NodeID) string                  { panic("soon") }
func (n *Network) Cut(from, to rpc.NodeID)                    { panic("soon") }
func (n *Network) CutBoth(a, b rpc.NodeID)                    { panic("soon") }
func (n *Network) Isolate(id rpc.NodeID)                      { panic("soon") }
func (n *Network) Heal()                                      { panic("soon") }
func (n *Network) Reset(id rpc.NodeID)                        { panic("soon") }
func (n *Network) Delay(from, to rpc.NodeID, d time.Duration) { panic("soon") }
