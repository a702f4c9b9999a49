package meta

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/cluster/rpc/rpctest"
	"gopherlog/engine/kv"
	"gopherlog/engine/vfs"
)

// raftNode is a whole node of the control group: disk, store, network in memory, Raft.
type raftNode struct {
	t    *testing.T
	net  *rpctest.Network
	id   NodeID
	size NodeID
	slow bool          // Raft's own timers never fire
	lag  time.Duration // before each command is applied
	fs   *vfs.CrashFS
	kv   *kv.DB
	rpc  *rpc.Node
	ctl  *Controller
}

// raftCluster gives n nodes with empty disks, not started.
func raftCluster(t *testing.T, n int) []*raftNode {
	net := rpctest.New()
	nodes := make([]*raftNode, n)
	for i := range nodes {
		nodes[i] = &raftNode{t: t, net: net, id: NodeID(i + 1), size: NodeID(n), fs: newDir(t)}
		t.Cleanup(nodes[i].stop)
	}
	return nodes
}

func (n *raftNode) start() {
	n.t.Helper()
	must := func(err error) {
		n.t.Helper()
		if err != nil {
			n.t.Fatalf("node %d: %v", n.id, err)
		}
	}
	id, err := ReadIdentity(n.fs, "data", n.id)
	must(err)
	n.kv, err = kv.Open(kv.Config{FS: n.fs, Dir: "data/kv"})
	must(err)
	peers := map[NodeID]string{}
	for p := NodeID(1); p <= n.size; p++ {
		if p != n.id {
			peers[p] = n.net.Addr(p)
		}
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", n.id)
	}
	n.rpc, err = rpc.New(rpc.Config{Node: n.id, ClusterID: id.ClusterID, Listen: n.net.Listen(n.id), Dial: n.net.Dial(n.id), Peers: peers, Logger: log})
	must(err)
	n.rpc.Start()
	var timers replica.Timers
	if n.slow {
		timers = replica.Timers{Heartbeat: time.Hour, Election: time.Hour, Lease: time.Hour}
	}
	n.ctl, err = Open(Config{
		Identity: id, Node: n.rpc, KV: n.kv, Self: Broker{Host: fmt.Sprint("host", n.id), Port: 9092, RPCAddr: n.net.Addr(n.id)}, Logger: log,
		OpenControl: func(fsm replica.ControlFSM, self rpc.ServerID, founders []rpc.ServerID) (Control, error) {
			open := OnReplica(replica.ControlConfig{KV: n.kv, Node: n.rpc, FS: n.fs, Dir: "data/control", Timers: timers, Logger: log})
			return open(lagging{fsm, n.lag}, self, founders)
		},
	})
	must(err)
}

// lagging applies late.
type lagging struct {
	replica.ControlFSM
	lag time.Duration
}

func (f lagging) Apply(index uint64, cmd []byte) any {
	time.Sleep(f.lag)
	return f.ControlFSM.Apply(index, cmd)
}

func (n *raftNode) stop() {
	if n.ctl == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.ctl.Close(ctx); err != nil {
		n.t.Errorf("node %d: close: %v", n.id, err)
	}
	n.rpc.Close()
	if err := n.kv.Close(); err != nil {
		n.t.Errorf("node %d: close store: %v", n.id, err)
	}
	n.ctl = nil
}

func (n *raftNode) wipe() { n.fs = newDir(n.t) }

func (n *raftNode) ready() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := n.ctl.WaitReady(ctx); err != nil {
		_, reason := n.ctl.Ready()
		n.t.Fatalf("node %d: %v: %s", n.id, err, reason)
	}
}

// eventually waits for what no image announces.
func (n *raftNode) eventually(what string, ok func() bool) {
	n.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("node %d never saw %s: control group is %v", n.id, what, (*n.ctl.control.Load()).Members())
		}
	}
}

// leader waits until the node knows who leads: during an election nobody does.
func (n *raftNode) leader() (leader NodeID) {
	n.t.Helper()
	n.eventually("a leader", func() (ok bool) { leader, ok = n.ctl.Leader(); return ok })
	return leader
}

func (n *raftNode) create(name string, rf int32) TopicResult {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	res, err := n.ctl.CreateTopics(ctx, []TopicSpec{{Name: name, Partitions: 3, ReplicationFactor: rf}}, false)
	if err != nil || res[0].Err != nil {
		n.t.Fatalf("node %d: create %s: %+v %v", n.id, name, res, err)
	}
	return res[0]
}

func TestRaftLoneNodeServesAtOnceAndRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := raftCluster(t, 1)[0]
		n.start()
		n.ready()
		n.create("t", 1)
		if n.ctl.Image().Topic("t") == nil {
			t.Fatal("image does not show the topic")
		}
		cluster := n.ctl.Image().ClusterID
		n.stop()
		n.fs = n.fs.CrashClone(vfs.CrashConfig{}) // a power cut right after: the control group is always synced
		n.start()
		n.ready()
		if img := n.ctl.Image(); img.Topic("t") == nil || img.ClusterID != cluster {
			t.Fatalf("after a power cut: %v in %s", img.TopicNames(), img.ClusterID)
		}
	})
}

func TestRaftThreeNodesFoundAClusterAndAWipedOneComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := raftCluster(t, 3)
		for _, n := range nodes {
			n.start()
		}
		for _, n := range nodes {
			n.ready()
		}
		for i, n := range nodes {
			n.create(fmt.Sprint("t", i), 3)
		}
		cluster := nodes[0].ctl.Image().ClusterID
		for i, n := range nodes { // each in turn, so the control leader too
			old := n.ctl.self.ServerID()
			n.stop()
			n.wipe()
			n.start()
			n.ready()
			img := n.ctl.Image()
			now := n.ctl.self.ServerID()
			if img.ClusterID != cluster || now == old || len(img.TopicNames()) != 3+i {
				t.Fatalf("wiped node %d: cluster %s (was %s), server %s (was %s), topics %v", n.id, img.ClusterID, cluster, now, old, img.TopicNames())
			}
			for _, p := range img.Topic("t0").Partitions {
				if p.Server(n.id) != now {
					t.Errorf("wiped node %d: partition has servers %v", n.id, p.Servers)
				}
			}
			n.eventually("three members, all with a vote, and not the old name", func() bool {
				members := (*n.ctl.control.Load()).Members()
				return len(members) == 3 && !slices.ContainsFunc(members, func(m Member) bool { return m.ID == old || !m.Voter })
			})
			n.create(fmt.Sprint("after", i), 3)
		}
	})
}

// A leader that has not applied yet what it committed shows fewer brokers than there are: a topic that is created right behind their
// registration is placed on them all the same.
func TestRaftTopicIsPlacedOnBrokersThatTheLeaderHasNotAppliedYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := raftCluster(t, 3)
		last := nodes[2]
		nodes[0].lag, nodes[1].lag = 300*time.Millisecond, 300*time.Millisecond // one of them leads
		for _, n := range nodes {
			n.start()
		}
		last.eventually("three brokers", func() bool { return len(last.ctl.Image().Brokers) == 3 })
		t.Logf("node %d leads", last.leader())
		last.create("t", 3)
	})
}

func TestRaftAdminRequestsSurviveTheLossOfTheControlLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := raftCluster(t, 3)
		for _, n := range nodes {
			n.start()
		}
		for _, n := range nodes {
			n.ready()
		}
		leader := nodes[0].leader()
		nodes[0].net.Isolate(leader)
		for _, n := range nodes {
			if n.id != leader {
				n.create(fmt.Sprint("t", n.id), 2)
			}
		}
		nodes[0].net.Heal()
		back := nodes[leader-1]
		want := nodes[leader%3].ctl.Image().Epoch
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		if err := back.ctl.WaitFor(ctx, want); err != nil {
			t.Fatalf("the old leader never saw image %d: %v", want, err)
		}
		back.create("back", 3)
	})
}

func TestRaftClusterThatLosesPowerAtOnceComesBackWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := raftCluster(t, 3)
		for _, n := range nodes {
			n.start()
		}
		for _, n := range nodes {
			n.ready()
		}
		topic := nodes[1].create("t", 3)
		first, _, err := nodes[2].ctl.ProducerIDBlock(ctxFor(t, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		disks := make([]*vfs.CrashFS, len(nodes))
		for i, n := range nodes { // what each disk holds at this moment, before anything is closed
			disks[i] = n.fs.CrashClone(vfs.CrashConfig{})
		}
		for i, n := range nodes {
			n.stop()
			n.fs = disks[i]
		}
		for _, n := range nodes {
			n.start()
		}
		for _, n := range nodes {
			n.ready()
			if got := n.ctl.Image().Topic("t"); got == nil || got.ID != topic.ID {
				t.Errorf("node %d forgot a topic that was answered", n.id)
			}
		}
		again, _, err := nodes[0].ctl.ProducerIDBlock(ctxFor(t, time.Minute))
		if err != nil || again <= first {
			t.Errorf("producer id block %d after %d: %v", again, first, err)
		}
	})
}

func TestRaftCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	nodes := raftCluster(t, 3)
	for _, n := range nodes {
		n.start()
	}
	nodes[0].ready()
	stop := nodes[0].ctl.Subscribe(func(*Image) {})
	defer stop()
	for _, n := range nodes {
		n.stop()
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	}
}

// Raft's timers are switched off here: every leader comes from the succession. Nodes found a cluster, lose their leader to a kill, and
// all restart at once.
func TestRaftControlGroupFindsALeaderWithoutWaitingForTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := raftCluster(t, 3)
		for _, n := range nodes {
			n.slow = true
			n.start()
		}
		for _, n := range nodes {
			n.ready()
		}
		leader := nodes[0].leader()
		dead := nodes[leader-1]
		dead.net.Kill(dead.id)
		rest := slices.DeleteFunc(slices.Clone(nodes), func(n *raftNode) bool { return n == dead })
		for _, n := range rest {
			n.create(fmt.Sprint("after-kill-", n.id), 2)
		}
		for _, n := range nodes {
			n.stop()
		}
		for _, n := range nodes {
			n.start()
		}
		for _, n := range nodes {
			n.ready()
		}
		if len(nodes[dead.id-1].ctl.Image().TopicNames()) != 2 {
			t.Errorf("topics after a restart of all: %v", nodes[dead.id-1].ctl.Image().TopicNames())
		}
	})
}

func TestVotersSucceedInOrderOfNodeUnlessTheyLeave(t *testing.T) {
	voters := votersOf([]Member{{ID: "10.01", Voter: true}, {ID: "2.01", Voter: true}, {ID: "3.01"}, {ID: "4.01", Voter: true}, {ID: "1.01", Voter: true}})
	fit := func(id NodeID) bool { return id != 2 } // down, or draining
	for _, c := range []struct {
		self, leader rpc.ServerID
		rank         int
		ok           bool
	}{
		{"1.01", "4.01", 0, true},
		{"4.01", "1.01", 0, true},
		{"10.01", "1.01", 1, true},
		{"10.01", "", 2, true},
		{"2.01", "1.01", 0, false},
		{"3.01", "1.01", 0, false}, // has no vote
	} {
		if rank, ok := turn(voters, c.self, c.leader, fit); rank != c.rank || ok != c.ok {
			t.Errorf("%s after %q: turn %d, %v, want %d, %v", c.self, c.leader, rank, ok, c.rank, c.ok)
		}
	}
}

func TestRaftRestartedNodeDoesNotDeposeTheControlLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := raftCluster(t, 3)
		for _, n := range nodes {
			n.start()
		}
		for _, n := range nodes {
			n.ready()
		}
		leader := nodes[0].leader()
		for _, n := range nodes {
			if n.id == leader {
				continue
			}
			n.stop()
			n.start()
			n.ready()
			if now, ok := nodes[leader-1].ctl.Leader(); !ok || now != leader {
				t.Fatalf("after node %d restarted, %d leads, before it was %d", n.id, now, leader)
			}
		}
	})
}

func TestRaftNodeThatNobodyListsJoinsAndIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := raftCluster(t, 3)
		for _, n := range nodes {
			n.start()
		}
		for _, n := range nodes {
			n.ready()
		}
		fourth := &raftNode{t: t, net: nodes[0].net, id: 4, size: 4, fs: newDir(t)}
		t.Cleanup(fourth.stop)
		fourth.start()
		fourth.ready()
		fourth.create("t", 3)
		for _, n := range nodes {
			n.eventually("node 4, and reaches it", func() bool { return n.ctl.Image().Brokers[4] != nil && n.rpc.Alive(4) })
		}
		fourth.eventually("four members", func() bool { return len((*fourth.ctl.control.Load()).Members()) == 4 })
	})
}
