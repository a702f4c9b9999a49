package rpc

import (
	"context"
	"time"
)

type Node struct{ cfg Config }

func New(cfg Config) (*Node, error) { panic("soon") }
func (n *Node) Start()              { panic("soon") }
func (n *Node) Close()              { panic("soon") }
func (n *Node) Group(id GroupID, self ServerID, log GroupLog, opts GroupOptions) GroupTransport {
	panic("soon")
}
func (n *Node) TimeoutNow(group GroupID, target ServerID) error { panic("soon") }
func (n *Node) Match(g GroupID, peer ServerID) (index uint64, lastContact time.Time) {
	panic("soon")
}
func (n *Node) Self() NodeID                                { panic("soon") }
func (n *Node) Alive(id NodeID) bool                        { panic("soon") }
func (n *Node) OnPeerChange(fn func(id NodeID, alive bool)) { panic("soon") }
func (n *Node) OnReport(fn func(about NodeID))              { panic("soon") }
func (n *Node) ReportsDead(id NodeID) map[NodeID]bool       { panic("soon") }
func (n *Node) SetPeer(id NodeID, addr string)              { panic("soon") }
func (n *Node) Peers() map[NodeID]string                    { panic("soon") }
func (n *Node) LinkError(id NodeID) error                   { panic("soon") }
func (n *Node) SetStalled(group GroupID, stalled bool)      { panic("soon") }
func (n *Node) Handle(method string, h Handler)             { panic("soon") }
func (n *Node) Call(ctx context.Context, to NodeID, method string, req []byte) ([]byte, error) {
	panic("soon")
}
func (n *Node) WhoLeads(ctx context.Context, to NodeID, groups []GroupID) ([]Leadership, error) {
	panic("soon")
}

type Handler func(ctx context.Context, from NodeID, req []byte) ([]byte, error)

type Leadership struct {
	Group  GroupID
	Leader ServerID
	Term   uint64
}
