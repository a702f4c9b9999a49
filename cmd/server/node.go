package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gopherlog/cluster/admin"
	"gopherlog/cluster/broker"
	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/cmd/internal/cli"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/kv"
	"gopherlog/engine/vfs"
)

const (
	// drainTimeout bounds how long an orderly stop tries to hand leaderships over.
	drainTimeout = 6 * time.Second
	// closeTimeout bounds the rest of an orderly stop.
	closeTimeout = 4 * time.Second
)

// node is one running node: its rooms in the order in which they were built. Close takes them down in reverse.
type node struct {
	cfg    *settings
	log    *slog.Logger
	points *failpoint.Set
	files  vfs.FS

	clients, rpcListener, adminListener, controlListener net.Listener

	data       *dataDir
	gate       *gate
	net        *rpc.Node
	meta       *meta.Controller
	groups     *coordinator.Groups
	txns       *coordinator.Transactions
	voted      *coordinator.Voted
	facts      *partition.Facts
	partitions *partition.Manager
	opened     atomic.Pointer[partition.Manager] // the same, for the admin port, which answers before it is there
	broker     *broker.Broker
	registry   *admin.Registry

	fatal   chan error // the first reason why the node cannot go on
	closers []closer
}

type closer struct {
	name  string
	close func(ctx context.Context) error
}

// startNode builds a node and returns when all its goroutines run; whether it is ready is another matter. On error
// nothing is left behind.
func startNode(cfg *settings, log *slog.Logger, files vfs.FS) (*node, error) {
	n := &node{cfg: cfg, log: log, files: files, points: failpoint.New(), registry: admin.NewRegistry(), fatal: make(chan error, 1)}
	for _, step := range []func() error{
		n.openListeners, n.openData, n.openAdmin, n.openControl, n.openStore, n.openRPC, n.openMeta, n.openGroups, n.openTransactions, n.openPartitions, n.openBroker,
	} {
		if err := step(); err != nil {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			return nil, errors.Join(err, n.close(ctx))
		}
	}
	return n, nil
}

// onClose remembers how to take down what was just built.
func (n *node) onClose(name string, fn func(ctx context.Context) error) {
	n.closers = append(n.closers, closer{name, fn})
}

// close takes down everything in reverse.
func (n *node) close(ctx context.Context) error {
	n.points.DisarmAll()
	var errs []error
	for i := len(n.closers) - 1; i >= 0; i-- {
		c := n.closers[i]
		start := time.Now()
		if err := c.close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", c.name, err))
		}
		n.log.Debug("closed", "room", c.name, "took", time.Since(start))
	}
	n.closers = nil
	return errors.Join(errs...)
}

// fail reports why the node cannot go on; the first reason counts.
func (n *node) fail(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

// openListeners binds all addresses before anything on disk is touched.
func (n *node) openListeners() error {
	f := n.cfg.flags
	for _, l := range []struct {
		flag, addr string
		to         *net.Listener
	}{
		{"-addr", f.Addr, &n.clients}, {"-rpc", n.cfg.rpc, &n.rpcListener},
		{"-admin", f.Admin, &n.adminListener}, {"-control", f.Control, &n.controlListener},
	} {
		if l.addr == "" {
			continue
		}
		bound, err := listen(l.flag, l.addr)
		if err != nil {
			return err
		}
		*l.to = bound
		n.onClose(l.flag, func(context.Context) error {
			if err := bound.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
	}
	n.gate = newGate(n.clients)
	n.onClose("gate", func(context.Context) error { return n.gate.Close() })
	return nil
}

func (n *node) openData() (err error) {
	n.data, err = openDataDir(n.files, n.cfg.flags.Data, n.cfg.flags.ID)
	if err != nil {
		return err
	}
	n.onClose("data directory", func(context.Context) error { return n.data.lock.Close() })
	return nil
}

func (n *node) openAdmin() error {
	if n.adminListener == nil {
		return nil
	}
	s := admin.New(admin.Config{
		Listener: n.adminListener, Ready: n.notReady, Degraded: n.degraded, Gatherer: n.registry, Pprof: n.cfg.flags.Pprof,
		Status: n.status, Recover: n.recover, Logger: n.log,
	})
	s.Start()
	n.onClose("admin", s.Close)
	return nil
}

func (n *node) openControl() error {
	if n.controlListener == nil {
		return nil
	}
	s, err := admin.NewControl(admin.ControlConfig{
		Listener: n.controlListener, Token: n.cfg.flags.ControlToken, Failpoints: n.points, Voted: n.votedFacts, Logger: n.log,
	})
	if err != nil {
		return cli.Usage(err)
	}
	s.Start()
	n.onClose("control", s.Close)
	n.log.Warn("the test-control port is open: it can make this node lose data", "address", n.controlListener.Addr())
	return nil
}

func (n *node) openStore() (err error) {
	dir := filepath.Join(n.data.path, "kv")
	n.data.kv, err = kv.Open(kv.Config{FS: n.files, Dir: dir, Logger: n.log, OnFatal: n.exitOnDisk, Failpoints: n.points})
	if err != nil {
		return storeError(dir, err)
	}
	n.onClose("store", func(context.Context) error { return n.data.kv.Close() })
	return nil
}

func (n *node) openRPC() (err error) {
	dialer := net.Dialer{}
	if n.cfg.source != nil {
		dialer.LocalAddr = &net.TCPAddr{IP: n.cfg.source}
	}
	n.net, err = rpc.New(rpc.Config{
		Node: rpc.NodeID(n.cfg.flags.ID), ClusterID: n.data.identity.ClusterID, Listen: n.rpcListener, Peers: n.cfg.peers, Logger: n.log,
		Failpoints: n.points, Registerer: n.registry,
		Dial: func(ctx context.Context, _ rpc.NodeID, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		},
	})
	if err != nil {
		return err
	}
	n.net.Start()
	n.onClose("rpc", func(context.Context) error { n.net.Close(); return nil })
	return nil
}

func (n *node) openMeta() (err error) {
	port := n.cfg.advertisePort
	if port == 0 {
		port = int32(n.clients.Addr().(*net.TCPAddr).Port)
	}
	n.meta, err = meta.Open(meta.Config{
		Identity: n.data.identity, Node: n.net, KV: n.data.kv, Logger: n.log, Registerer: n.registry, OnFatal: n.fail,
		Self:              meta.Broker{Host: n.cfg.advertiseHost, Port: port, Rack: n.cfg.flags.Rack, RPCAddr: n.cfg.announce},
		DefaultPartitions: n.cfg.node.partitions, DefaultReplicationFactor: n.cfg.node.replication, TopicDefaults: n.cfg.topics,
		OpenControl: meta.OnReplica(replica.ControlConfig{
			KV: n.data.kv, Node: n.net, FS: n.files, Dir: filepath.Join(n.data.path, "control"), Logger: n.log, Failpoints: n.points,
			OnFailed: n.fail,
		}),
	})
	if err != nil {
		return dirError(n.data.path, err)
	}
	n.onClose("meta", n.meta.Close)
	return nil
}

// openGroups comes before the partitions, which tell it what is committed from their first record on.
func (n *node) openGroups() (err error) {
	n.groups, err = coordinator.New(coordinator.Config{
		Meta: n.meta, Nodes: func() int { return len(n.net.Peers()) + 1 }, Group: &n.cfg.node.groups, Failpoints: n.points, Logger: n.log, Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	n.onClose("groups", func(context.Context) error { n.groups.Close(); return nil })
	return nil
}

// openTransactions comes before the partitions too; they are found once they are open.
func (n *node) openTransactions() (err error) {
	if n.voted, err = n.openVoted(); err != nil {
		return err
	}
	n.txns, err = coordinator.NewTransactions(coordinator.TxnConfig{
		Voted: n.voted,
		Meta:  n.meta, Node: n.net, Self: rpc.NodeID(n.cfg.flags.ID), Local: n.participant, Alive: n.net.Alive, Nodes: func() int { return len(n.net.Peers()) + 1 },
		Machine: &n.cfg.node.transactions, Failpoints: n.points, Logger: n.log, Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	n.onClose("transactions", func(context.Context) error { n.txns.Close(); return nil })
	return nil
}

// openVoted makes the coordinators of transactions that commit by vote.
func (n *node) openVoted() (*coordinator.Voted, error) {
	if n.controlListener != nil {
		n.facts = partition.NewFacts(time.Now())
	}
	s := n.cfg.node
	v, err := coordinator.NewVoted(coordinator.VotedConfig{
		Meta: n.meta, Node: n.net, Self: rpc.NodeID(n.cfg.flags.ID), Nodes: func() int { return len(n.net.Peers()) + 1 },
		Alive: n.net.Alive,
		Local: func(topic string, number int32) coordinator.Voter {
			if p, here := n.participant(topic, number).(coordinator.Voter); here {
				return p
			}
			return nil
		},
		Nudge:  n.askAgain,
		Prefix: s.voted.prefix, Replicas: s.voted.replicas, Machine: &s.voted.machine, MaxTimeout: s.transactions.MaxTimeout, Expiry: s.transactions.Expiry,
		Facts: n.facts, Failpoints: n.points, Logger: n.log, Registerer: n.registry,
	})
	if err != nil {
		return nil, err
	}
	n.onClose("voted transactions", func(context.Context) error { v.Close(); return nil })
	return v, nil
}

// votedFacts is what the control port tells of transactions that commit by vote.
func (n *node) votedFacts() any {
	d := n.facts.Dump()
	d.Facts = append(n.voted.Evidence(), d.Facts...)
	return struct {
		Node int32 `json:"node"`
		partition.FactsDump
	}{n.cfg.flags.ID, d}
}

// askAgain lets partitions that wait for an outcome ask at once.
func (n *node) askAgain() {
	if m := n.opened.Load(); m != nil {
		for _, p := range m.All() {
			p.AskAgain()
		}
	}
}

// participant is where a coordinator's markers go.
func (n *node) participant(topic string, number int32) coordinator.Participant {
	if m := n.opened.Load(); m != nil {
		if p, err := m.Get(topic, number); err == nil {
			return p
		}
	}
	return nil
}

func (n *node) openPartitions() (err error) {
	boot := n.cfg.flags.BootID
	if boot == "" {
		boot = bootID()
	}
	n.partitions, err = partition.Open(partition.Config{
		Meta: n.meta, Node: n.net, Self: n.data.identity.ServerID(), KV: n.data.kv, FS: n.files, DataDir: n.data.path, BootID: boot,
		Keeper: coordinator.Keepers(n.groups, n.txns, n.voted), Coordinators: n.txns, Ballot: n.voted, Voted: &n.cfg.node.voted.machine, Facts: n.facts,
		TopicDefaults: n.cfg.topics, Failpoints: n.points, Logger: n.log, Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	n.opened.Store(n.partitions)
	n.onClose("partitions", n.partitions.Close)
	return nil
}

// openBroker lets clients in once the cluster's image is current: an older one would deny topics that exist.
func (n *node) openBroker() (err error) {
	n.broker, err = broker.New(broker.Config{
		Listener: n.clients, NodeID: rpc.NodeID(n.cfg.flags.ID), Meta: n.meta, Partitions: broker.Local(n.partitions), Groups: n.groups,
		Transactions: n.txns, Alive: n.net.Alive,
		NoAutoCreate: n.cfg.node.noAutoCreate, TopicDefaults: n.cfg.topics, Settings: n.describe(), DataDir: n.data.path,
		Limits: n.cfg.node.limits, Failpoints: n.points, Logger: n.log, Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if n.meta.WaitReady(ctx) == nil {
			n.gate.Open()
			n.broker.Start()
			n.log.Info("clients are let in", "node", n.cfg.flags.ID, "address", n.clients.Addr(), "cluster", n.data.identity.ClusterID())
		}
	})
	n.onClose("broker", func(ctx context.Context) error {
		cancel()
		wg.Wait()
		n.groups.Close() // or members would be waited for that wait for others
		n.voted.Close()
		n.txns.Close() // likewise requests that wait for the end of a transaction
		n.broker.Shutdown(ctx)
		return nil
	})
	return nil
}

// describe is what DescribeConfigs of this broker shows.
func (n *node) describe() map[string]string {
	f := n.cfg.flags
	out := map[string]string{
		"node.id": strconv.Itoa(int(f.ID)), "listeners": n.clients.Addr().String(), "log.dirs": f.Data,
		"auto.create.topics.enable":      strconv.FormatBool(!n.cfg.node.noAutoCreate),
		"transaction.max.timeout.ms":     strconv.FormatInt(n.cfg.node.transactions.MaxTimeout.Milliseconds(), 10),
		"transactional.id.expiration.ms": strconv.FormatInt(n.cfg.node.transactions.Expiry.Milliseconds(), 10),
		"transaction.voted.prefix":       string(n.cfg.node.voted.prefix), "transaction.voted.replicas": strconv.Itoa(n.cfg.node.voted.replicas),
		"transaction.voted.timeout.ms": strconv.FormatInt(n.cfg.node.voted.machine.VoteTimeout.Milliseconds(), 10),
	}
	if n.adminListener != nil {
		out["admin.address"] = n.adminListener.Addr().String()
	}
	return out
}

// notReady lists why this node should get no traffic.
func (n *node) notReady() (reasons []string) {
	partitions := n.opened.Load()
	if partitions == nil {
		return []string{"starting"}
	}
	if ok, why := n.meta.Ready(); !ok {
		reasons = append(reasons, why)
	}
	if ok, why := partitions.Ready(); !ok {
		reasons = append(reasons, why)
	}
	return reasons
}

// drain makes an orderly stop of a node in a cluster: others take over before it goes.
func (n *node) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for id := range n.net.Peers() {
		if !n.net.Alive(id) {
			continue
		}
		if err := n.partitions.Drain(ctx); err != nil {
			n.log.Warn("not all leaderships could be handed over", "error", err)
		}
		return
	}
}
