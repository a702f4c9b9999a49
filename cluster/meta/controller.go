package meta

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/kv"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is what a Controller is made of.
type Config struct {
	// Identity of the data directory, from ReadIdentity.
	Identity *Identity
	// Self is what to register; ID, Incarnation and Session are filled in.
	Self Broker
	Node Network
	// KV is bound to the identity, so that one cannot be lost without the other being missed; nil: not checked.
	KV *kv.DB
	// OpenControl opens the control group: with the founders to bootstrap with, which changes nothing in a group that exists, or with
	// none, to wait until it is added. See OnReplica.
	OpenControl func(fsm replica.ControlFSM, self rpc.ServerID, founders []rpc.ServerID) (Control, error)
	// DefaultPartitions of topics that do not say; 0: 1. DefaultReplicationFactor likewise; 0: the smaller of 3 and the number of nodes.
	DefaultPartitions, DefaultReplicationFactor int32
	// TopicDefaults override the built-in defaults of topic configs.
	TopicDefaults map[string]string
	// OnFatal is told when the node can never become a member; nil: it is logged.
	OnFatal func(error)
	Logger  *slog.Logger
	// Registerer takes the metrics; nil: none.
	Registerer prometheus.Registerer
}

const (
	// registerTimeout bounds one try to register; tries go on until one succeeds.
	registerTimeout = 5 * time.Second
	retryPause      = 200 * time.Millisecond
)

// Controller is one node's member of the control group.
// All methods may be called from any goroutine and work on any node: what changes something goes to the control leader, with
// retries until ctx ends.
//
// Goroutines: run (finds the cluster, registers), the publisher, the succession, one per subscriber, and the control group's own, of which the one
// that drives the state machine only ever swaps a pointer here.
type Controller struct {
	cfg     Config
	log     *slog.Logger
	self    Broker
	machine *machine
	views   *views
	control atomic.Pointer[Control] // nil until the node belongs to a cluster
	trouble atomic.Pointer[string]  // why registering failed last, nil if it did not
	news    *publisher
	ids     chan idBlock  // holds this node's block while nobody takes an id from it
	stirred chan struct{} // the succession shall look

	ctx    context.Context
	cancel context.CancelCauseFunc
	mu     sync.Mutex // guards closed, and spawning against Close
	closed bool
	wg     sync.WaitGroup
}

// Open starts the controller. A node that belongs to a cluster, or is alone, has its control group open when Open returns; for
// others finding or founding the cluster goes on behind, as registering does for all: see WaitReady.
func Open(cfg Config) (*Controller, error) {
	c := newController(cfg)
	if err := CheckTopicConfigs(cfg.TopicDefaults); err != nil {
		return nil, err
	}
	if err := c.register(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if cfg.KV != nil {
		if err := cfg.Identity.bind(cfg.KV); err != nil {
			return nil, err
		}
	}
	c.cfg.Node.Handle(methodHello, c.handleHello)
	c.cfg.Node.Handle(methodSubmit, c.handleSubmit)
	if c.cfg.Identity.ClusterID() == "" && len(c.cfg.Node.Peers()) == 0 {
		if err := c.found(nil); err != nil {
			return nil, err
		}
	}
	if c.cfg.Identity.ClusterID() != "" {
		if err := c.openControl(); err != nil {
			return nil, err
		}
	}
	c.spawn(c.run)
	c.spawn(c.publish)
	c.spawn(c.succeed)
	c.spawn(c.learnPeers)
	return c, nil
}

func newController(cfg Config) *Controller {
	c := &Controller{cfg: cfg, log: cfg.Logger, self: cfg.Self, views: newViews(), news: newPublisher(), ids: make(chan idBlock, 1), stirred: make(chan struct{}, 1)}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.cfg.DefaultPartitions == 0 {
		c.cfg.DefaultPartitions = 1
	}
	if c.cfg.OnFatal == nil {
		c.cfg.OnFatal = func(err error) { c.log.Error("control group failed", "error", err) }
	}
	c.self.ID, c.self.Incarnation, c.self.Session = cfg.Identity.Node(), cfg.Identity.Incarnation(), randomUint64()
	c.machine = newMachine(c.views.show)
	c.ids <- idBlock{}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

func (c *Controller) openControl() error {
	founders := c.cfg.Identity.Founders()
	if !slices.Contains(founders, c.self.ServerID()) {
		founders = nil
	}
	ctl, err := c.cfg.OpenControl(c.machine, c.self.ServerID(), founders)
	if err != nil {
		return err
	}
	c.control.Store(&ctl)
	c.stir()
	return nil
}

// run brings the node into its cluster and then into the image.
func (c *Controller) run() {
	if c.controlGroup() == nil {
		if err := c.settle(); err != nil {
			return // closed
		}
		if err := c.openControl(); err != nil {
			c.cfg.OnFatal(err)
			return
		}
	}
	for !c.registered(c.Image()) {
		ctx, cancel := context.WithTimeout(c.ctx, registerTimeout)
		err := c.RegisterBroker(ctx, c.self)
		cancel()
		c.note(err)
		if err != nil && !c.pause(retryPause) {
			return
		}
	}
	c.log.Info("registered", "cluster", c.cfg.Identity.ClusterID(), "server", c.self.ServerID())
}

// note remembers and, when it is a new one, logs why registering fails.
func (c *Controller) note(err error) {
	if err == nil || c.ctx.Err() != nil {
		c.trouble.Store(nil)
		return
	}
	msg := err.Error()
	if old := c.trouble.Swap(&msg); old == nil || *old != msg {
		c.log.Warn("cannot register yet", "reason", msg)
	}
}

// registered says whether this process shows in the image.
func (c *Controller) registered(img *Image) bool {
	b := img.Brokers[c.self.ID]
	return b != nil && b.Session == c.self.Session
}

// WaitReady waits until this process's registration shows in its own image: from then on the image is current, and a topic that it
// does not name does not exist.
func (c *Controller) WaitReady(ctx context.Context) error {
	ctx, cancel := c.join(ctx)
	defer cancel()
	return c.views.wait(ctx, c.registered)
}

// Ready says the same without waiting, with a reason when it is not so.
func (c *Controller) Ready() (ok bool, reason string) {
	switch trouble := c.trouble.Load(); {
	case c.registered(c.Image()):
		return true, ""
	case trouble != nil:
		return false, *trouble
	case c.controlGroup() == nil:
		return false, "looking for the cluster: waiting until all peers answer or one knows a cluster"
	default:
		return false, "registering with the control group"
	}
}

// Leader returns the node that leads the control group as far as this node knows.
func (c *Controller) Leader() (NodeID, bool) {
	ctl := c.controlGroup()
	if ctl == nil {
		return NoLeader, false
	}
	if ctl.IsLeader() {
		return c.self.ID, true
	}
	if s := ctl.Leader(); s != "" {
		return s.Node(), true
	}
	return NoLeader, false
}

// learnPeers tells the network where nodes are that are not among the own peers.
func (c *Controller) learnPeers() {
	given := c.cfg.Node.Peers() // these are dialled where the operator says
	told := map[NodeID]string{}
	c.views.follow(c.ctx, nil, func(img *Image) {
		for id, b := range img.Brokers {
			if _, known := given[id]; !known && id != c.self.ID && b.RPCAddr != "" && told[id] != b.RPCAddr {
				c.cfg.Node.SetPeer(id, b.RPCAddr)
				told[id] = b.RPCAddr
			}
		}
	})
}

// Close hands leadership of the control group on if it can, and ends all goroutines. Calls that are under way end with ErrClosed.
func (c *Controller) Close(ctx context.Context) error {
	c.mu.Lock()
	was := c.closed
	c.closed = true
	c.mu.Unlock()
	if was {
		return nil
	}
	ctl := c.controlGroup()
	if ctl != nil && ctl.IsLeader() {
		c.handOver(ctx, ctl)
	}
	c.cancel(ErrClosed)
	c.wg.Wait()
	if ctl = c.controlGroup(); ctl != nil { // run may have opened it meanwhile
		return ctl.Close(ctx)
	}
	return nil
}

func (c *Controller) handOver(ctx context.Context, ctl Control) {
	img := c.Image()
	for _, m := range ctl.Members() {
		b := img.Brokers[m.ID.Node()]
		if !m.Voter || m.ID.Node() == c.self.ID || !c.cfg.Node.Alive(m.ID.Node()) || b == nil || b.Draining || !ctl.CaughtUp(m.ID) {
			continue
		}
		if err := ctl.TransferTo(ctx, m.ID); err != nil && !errors.Is(err, context.Canceled) {
			c.log.Warn("control leadership not handed over", "to", m.ID, "error", err)
			continue
		}
		return
	}
}

func (c *Controller) controlGroup() Control {
	if p := c.control.Load(); p != nil {
		return *p
	}
	return nil
}

// spawn runs fn on a goroutine that Close waits for; after Close it does nothing.
func (c *Controller) spawn(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wg.Go(fn)
	}
}

// join returns a context that also ends, with ErrClosed, when the controller closes.
func (c *Controller) join(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

// pause waits and says whether to go on.
func (c *Controller) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

func randomUint64() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}

// TopicConfig gives the effective configs of a topic on this node.
func (c *Controller) TopicConfig(t *Topic) (TopicConfig, error) {
	return ParseTopicConfig(t.Configs, c.cfg.TopicDefaults)
}

// DescribeTopic lists every config of a topic with where it comes from.
func (c *Controller) DescribeTopic(t *Topic) []ConfigEntry {
	return DescribeTopicConfig(t.Configs, c.cfg.TopicDefaults)
}
