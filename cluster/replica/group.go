package replica

import (
	"context"
	"time"

	"gopherlog/cluster/rpc"
)

// Group is one replica of one partition.
type Group struct {
	core
	cfg Config
}

func Open(cfg Config) (*Group, error)                                      { panic("being built") }
func (g *Group) Propose(p *Proposal) error                                 { panic("being built") }
func (g *Group) ProposeBatch(ps []*Proposal) error                         { panic("being built") }
func (g *Group) Status() Status                                            { panic("being built") }
func (g *Group) Watch(fn func(Status))                                     { panic("being built") }
func (g *Group) Match(peer rpc.ServerID) (uint64, time.Time)               { panic("being built") }
func (g *Group) InSync(now time.Time) []rpc.ServerID                       { panic("being built") }
func (g *Group) Voters() []rpc.ServerID                                    { panic("being built") }
func (g *Group) Members() []Member                                         { panic("being built") }
func (g *Group) Campaign() error                                           { panic("being built") }
func (g *Group) TransferTo(ctx context.Context, target rpc.ServerID) error { panic("being built") }
func (g *Group) AddNonvoter(ctx context.Context, id rpc.ServerID) error    { panic("being built") }
func (g *Group) AddVoter(ctx context.Context, id rpc.ServerID) error       { panic("being built") }
func (g *Group) RemoveServer(ctx context.Context, id rpc.ServerID) error   { panic("being built") }
func (g *Group) WaitCommittedOn(n int, index uint64, fn func(error)) (cancel func()) {
	panic("being built")
}
func (g *Group) Recover() error                  { panic("being built") }
func (g *Group) Checkpoint() error               { panic("being built") }
func (g *Group) Close(ctx context.Context) error { panic("being built") }
