package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gopherlog/cluster/meta/metapb"
	"gopherlog/cluster/rpc"
)

func three(t *testing.T) (*world, []*fakeNode) {
	w := newWorld(t)
	nodes := []*fakeNode{w.node(1, 2, 3), w.node(2, 1, 3), w.node(3, 1, 2)}
	for _, n := range nodes {
		n.start()
	}
	for _, n := range nodes {
		n.ready()
	}
	return w, nodes
}

func ctxFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until an image of the node satisfies ok.
func (n *fakeNode) eventually(what string, ok func(*Image) bool) {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.ctl.views.wait(ctx, ok); err != nil {
		n.w.t.Fatalf("node %d never saw %s: %v", n.id, what, err)
	}
}

func TestLoneNodeFoundsItsOwnCluster(t *testing.T) {
	n := newWorld(t).node(1)
	n.start()
	n.ready()
	img := n.ctl.Image()
	if img.ClusterID == "" || img.ClusterID != n.ctl.cfg.Identity.ClusterID() || img.Brokers[1].Host != "host1" {
		t.Fatalf("image %+v", img)
	}
	res, err := n.ctl.CreateTopics(t.Context(), []TopicSpec{{Name: "a", Partitions: 2, ReplicationFactor: 1}, {Name: "a b"}, {Name: "b", Partitions: -1, ReplicationFactor: -1}}, false)
	if err != nil || res[0].Err != nil || !errors.Is(res[1].Err, ErrInvalidTopic) || res[2].Err != nil || res[2].Partitions != 1 {
		t.Fatalf("%+v %v", res, err)
	}
	if img = n.ctl.Image(); img.Topic("a") == nil || img.TopicByID(res[0].ID).Name != "a" || img.Topic("a b") != nil {
		t.Fatalf("image does not show what was created: %v", img.TopicNames())
	}
	cluster, epoch := img.ClusterID, img.Epoch
	n.stop()
	n.start()
	n.ready()
	if img = n.ctl.Image(); img.ClusterID != cluster || img.Epoch <= epoch || img.Topic("a") == nil {
		t.Fatalf("after restart: cluster %s epoch %d topics %v", img.ClusterID, img.Epoch, img.TopicNames())
	}
}

func TestThreeEmptyDisksBecomeOneCluster(t *testing.T) {
	w, nodes := three(t)
	cluster := nodes[0].ctl.Image().ClusterID
	for _, n := range nodes {
		img := n.ctl.Image()
		if img.ClusterID != cluster || n.ctl.cfg.Identity.ClusterID() != cluster {
			t.Errorf("node %d is in cluster %s, node 1 in %s", n.id, img.ClusterID, cluster)
		}
		if !slices.Equal(n.ctl.cfg.Identity.Founders(), nodes[0].ctl.cfg.Identity.Founders()) {
			t.Errorf("node %d has founders %v", n.id, n.ctl.cfg.Identity.Founders())
		}
		n.eventually("three brokers", func(img *Image) bool { return len(img.Brokers) == 3 })
	}
	if len(w.members) != 3 {
		t.Errorf("members %v", w.members)
	}
}

func TestNobodyFoundsAClusterWhileAPeerIsSilent(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.node(1, 2, 3), w.node(2, 1, 3), w.node(3, 1, 2)
	a.start()
	b.start()
	for _, n := range []*fakeNode{a, b} {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) { // it asks its peers
			if _, reason := n.ctl.Ready(); strings.Contains(reason, "all peers answer") {
				break
			}
		}
	}
	time.Sleep(3 * retryPause)
	for _, n := range []*fakeNode{a, b} {
		if n.ctl.cfg.Identity.ClusterID() != "" {
			t.Fatalf("node %d founded a cluster while a peer, which may know one, was silent", n.id)
		}
		if ok, reason := n.ctl.Ready(); ok || !strings.Contains(reason, "all peers answer") {
			t.Errorf("ready %v: %s", ok, reason)
		}
	}
	c.start()
	for _, n := range []*fakeNode{a, b, c} {
		n.ready()
	}
}

func TestWipedNodeJoinsTheClusterThatAPeerKnows(t *testing.T) {
	w, nodes := three(t)
	cluster := nodes[0].ctl.Image().ClusterID
	if _, err := nodes[1].ctl.CreateTopics(ctxFor(t, time.Minute), []TopicSpec{{Name: "t", Partitions: 3, ReplicationFactor: 3}}, false); err != nil {
		t.Fatal(err)
	}
	lowest := nodes[0] // the one that would found a cluster if it could
	old := lowest.ctl.self.ServerID()
	lowest.stop()
	w.lead(nodes[1].ctl.self.ServerID())
	lowest.wipe()
	lowest.start()
	lowest.ready()
	img := lowest.ctl.Image()
	now := lowest.ctl.self.ServerID()
	if img.ClusterID != cluster || now == old {
		t.Fatalf("cluster %s, was %s; server %s, was %s", img.ClusterID, cluster, now, old)
	}
	for i, p := range img.Topic("t").Partitions {
		if p.Server(1) != now || !slices.Contains(p.Founders, old) || slices.Contains(p.Founders, now) {
			t.Errorf("partition %d: servers %v founders %v", i, p.Servers, p.Founders)
		}
	}
	want := []Member{{ID: nodes[1].ctl.self.ServerID(), Voter: true}, {ID: nodes[2].ctl.self.ServerID(), Voter: true}, {ID: now, Voter: true}}
	if !slices.Equal(w.members, want) {
		t.Errorf("members %v, want %v", w.members, want)
	}
}

func TestRunningNodeIsNotReplacedByAnotherWithItsID(t *testing.T) {
	_, nodes := three(t)
	thief := Broker{ID: 2, Incarnation: 0xbad, Host: "thief", Port: 1}
	err := nodes[0].ctl.RegisterBroker(ctxFor(t, time.Minute), thief)
	if !errors.Is(err, ErrNodeIDInUse) || !strings.Contains(err.Error(), "give it another -id") {
		t.Fatalf("got %v", err)
	}
	if b := nodes[0].ctl.Image().Brokers[2]; b.Host != "host2" {
		t.Fatalf("broker 2 is %+v", b)
	}
}

func TestAdminRequestsWorkOnAnyNode(t *testing.T) {
	w, nodes := three(t)
	for i, n := range nodes {
		name := fmt.Sprint("topic", i)
		res, err := n.ctl.CreateTopics(ctxFor(t, time.Minute), []TopicSpec{{Name: name, Partitions: 2, ReplicationFactor: -1}}, false)
		if err != nil || res[0].Err != nil || res[0].ReplicationFactor != 3 {
			t.Fatalf("node %d: %+v %v", n.id, res, err)
		}
		if n.ctl.Image().Topic(name) == nil {
			t.Errorf("node %d answered before its own image showed the topic", n.id)
		}
		parts, err := n.ctl.CreatePartitions(ctxFor(t, time.Minute), []PartitionsSpec{{Name: name, Count: 4}, {Name: "none", Count: 1}}, false)
		if err != nil || parts[0].Partitions != 4 || !errors.Is(parts[1].Err, ErrUnknownTopic) {
			t.Fatalf("node %d: %+v %v", n.id, parts, err)
		}
		conf, err := n.ctl.AlterConfigs(ctxFor(t, time.Minute), []ConfigChange{
			{Topic: name, Ops: []ConfigOp{{Key: "cleanup.policy", Value: "compact"}}},
			{Topic: name, Ops: []ConfigOp{{Key: "retention.ms", Value: "7"}, {Key: "segment.bytes", Delete: true}}},
		}, false)
		var ce *ConfigError
		if err != nil || !errors.As(conf[0].Err, &ce) || ce.Key != "cleanup.policy" || conf[1].Err != nil {
			t.Fatalf("node %d: %+v %v", n.id, conf, err)
		}
		if tc, err := n.ctl.TopicConfig(n.ctl.Image().Topic(name)); err != nil || tc.RetentionTime != 7*time.Millisecond {
			t.Errorf("node %d: %+v %v", n.id, tc, err)
		}
		del, err := n.ctl.DeleteTopics(ctxFor(t, time.Minute), []TopicRef{{ID: res[0].ID}, {Name: "none"}, {ID: TopicID{9}}})
		if err != nil || del[0].Name != name || !errors.Is(del[1].Err, ErrUnknownTopic) || !errors.Is(del[2].Err, ErrUnknownTopicID) {
			t.Fatalf("node %d: %+v %v", n.id, del, err)
		}
		w.lead(n.ctl.self.ServerID())
	}
}

func TestValidateOnlyChangesNothing(t *testing.T) {
	w, nodes := three(t)
	w.mu.Lock()
	before := len(w.log)
	w.mu.Unlock()
	spec := []TopicSpec{{Name: "t", Partitions: 2, ReplicationFactor: 3}, {Name: "u", Partitions: 2, ReplicationFactor: 9}}
	res, err := nodes[1].ctl.CreateTopics(ctxFor(t, time.Minute), spec, true)
	if err != nil || res[0].Err != nil || res[0].Partitions != 2 || !errors.Is(res[1].Err, ErrInvalidReplicationFactor) {
		t.Fatalf("%+v %v", res, err)
	}
	if len(w.log) != before || nodes[1].ctl.Image().Topic("t") != nil {
		t.Error("validating created the topic")
	}
}

// Answers get lost and commands are sent again: each takes effect once all the same.
func TestLostAnswersNeitherRepeatNorRefuseACommand(t *testing.T) {
	w, nodes := three(t)
	w.loseEvery(2)
	for i := range 10 {
		name := fmt.Sprint("t", i)
		res, err := nodes[i%3].ctl.CreateTopics(ctxFor(t, time.Minute), []TopicSpec{{Name: name, Partitions: 1, ReplicationFactor: 1}}, false)
		if err != nil || res[0].Err != nil {
			t.Fatalf("create %s: %+v %v", name, res, err)
		}
		first, n, err := nodes[i%3].ctl.ProducerIDBlock(ctxFor(t, time.Minute))
		if err != nil || first != int64(i*producerIDs) || n != producerIDs {
			t.Fatalf("block %d begins at %d: %v", i, first, err)
		}
	}
}

func TestProducerIDsAreNeverHandedOutTwice(t *testing.T) {
	_, nodes := three(t)
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for range 700 {
				id, err := nodes[i%3].ctl.NextProducerID(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[id] {
					t.Errorf("id %d twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestWithoutAControlLeaderRequestsEndAtTheirDeadline(t *testing.T) {
	w, nodes := three(t)
	w.lead("")
	_, err := nodes[1].ctl.CreateTopics(ctxFor(t, 50*time.Millisecond), []TopicSpec{{Name: "t", Partitions: 1, ReplicationFactor: 1}}, false)
	if !errors.Is(err, ErrNotController) {
		t.Fatalf("got %v", err)
	}
	done := make(chan error, 1)
	ctl := nodes[1].ctl
	go func() { _, err := ctl.NextProducerID(context.Background()); done <- err }()
	nodes[1].stop()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Fatalf("a closed controller answered %v", err)
	}
}

// A leader's word is repeated until the image shows it: nobody hears of a leadership only once.
func TestLeadershipIsPublishedUntilTheImageShowsIt(t *testing.T) {
	w, nodes := three(t)
	res, err := nodes[0].ctl.CreateTopics(ctxFor(t, time.Minute), []TopicSpec{{Name: "t", Partitions: 300, ReplicationFactor: 3}}, false)
	if err != nil {
		t.Fatal(err)
	}
	w.lead("")
	var words []LeaderUpdate
	for p := range int32(300) {
		words = append(words, LeaderUpdate{Topic: res[0].ID, Partition: p, Leader: 2, Term: 3, ISR: []NodeID{1, 2, 3}})
	}
	w.mu.Lock()
	before := len(w.log)
	w.mu.Unlock()
	nodes[1].ctl.PublishLeaders(words[:150])
	nodes[1].ctl.PublishLeaders(words[150:])
	time.Sleep(20 * time.Millisecond)
	// Meanwhile partition 0 has moved on, and 1 was taken over by another node of a newer term.
	nodes[1].ctl.PublishLeaders([]LeaderUpdate{{Topic: res[0].ID, Partition: 0, Leader: 2, Term: 3, ISR: []NodeID{2}}})
	nodes[2].ctl.PublishLeaders([]LeaderUpdate{{Topic: res[0].ID, Partition: 1, Leader: 3, Term: 4, ISR: []NodeID{3}}})
	w.loseEvery(2)
	w.lead(nodes[2].ctl.self.ServerID())
	nodes[0].eventually("300 leaders", func(img *Image) bool {
		for i, p := range img.Topic("t").Partitions {
			switch {
			case i == 1 && (p.Leader != 3 || p.Term != 4):
				return false
			case i != 1 && (p.Leader != 2 || p.Term != 3 || i == 0 && len(p.ISR) != 1):
				return false
			}
		}
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.log) - before; n > 60 { // a slow machine says a word twice before the image shows it
		t.Errorf("%d commands for 302 words: they are not batched", n)
	}
}

func TestPublisherForgetsWhatIsSettled(t *testing.T) {
	p := newPublisher()
	d := brokers(2, noRack).edit(2)
	d.createTopic(&metapb.TopicSpec{Name: "t", Id: make([]byte, 16), Partitions: 2, ReplicationFactor: 2}, []int32{1, 2})
	img := &d.Image
	p.add([]LeaderUpdate{
		{Partition: 0, Leader: 1, Term: 1, ISR: []NodeID{1, 2}},
		{Partition: 1, Leader: 9, Term: 1},                      // carries no replica
		{Partition: 7, Leader: 1, Term: 1},                      // does not exist
		{Topic: TopicID{5}, Partition: 0, Leader: 1, Term: 100}, // deleted
	})
	p.add([]LeaderUpdate{{Partition: 0, Leader: 1, Term: 0}}) // older than what waits
	if got := p.take(img); len(got) != 1 || got[0].Term != 1 {
		t.Fatalf("batch %v", got)
	}
	d = img.edit(3)
	d.publishLeader(&metapb.LeaderUpdate{TopicId: make([]byte, 16), Leader: 1, Term: 1, Isr: []int32{1, 2}})
	if got := p.take(&d.Image); len(got) != 0 || len(p.pending) != 0 {
		t.Fatalf("still pending: %v", p.pending)
	}
}

func TestSlowSubscriberNeverHoldsUpTheStateMachine(t *testing.T) {
	n := newWorld(t).node(1)
	n.start()
	n.ready()
	hold, seen := make(chan struct{}), make(chan uint64, 1000)
	unsubscribe := n.ctl.Subscribe(func(img *Image) {
		seen <- img.Epoch
		<-hold
	})
	<-seen
	for i := range 50 {
		if err := n.ctl.AutoCreate(ctxFor(t, time.Minute), fmt.Sprint("t", i)); err != nil {
			t.Fatal(err)
		}
	}
	want := n.ctl.Image().Epoch
	close(hold)
	if got := <-seen; got != want {
		t.Errorf("after being held up the subscriber saw image %d, the newest is %d", got, want)
	}
	unsubscribe()
	unsubscribe()
	if err := n.ctl.AutoCreate(t.Context(), "t0"); err != nil {
		t.Errorf("creating what exists: %v", err)
	}
}

func TestDrainLastsUntilTheNodeRegistersAgain(t *testing.T) {
	_, nodes := three(t)
	if err := nodes[0].ctl.Drain(ctxFor(t, time.Minute), 3); err != nil {
		t.Fatal(err)
	}
	nodes[1].eventually("node 3 draining", func(img *Image) bool { return !img.Brokers[3].Eligible() })
	if live := nodes[0].ctl.live(); !slices.Equal(live, []int32{1, 2}) {
		t.Errorf("live %v", live)
	}
	nodes[2].stop()
	nodes[2].start()
	nodes[2].ready()
	if b := nodes[2].ctl.Image().Brokers[3]; b.Draining {
		t.Error("still draining after a restart")
	}
	if err := nodes[0].ctl.Drain(ctxFor(t, time.Minute), 9); !errors.Is(err, ErrUnknownBroker) {
		t.Errorf("drain of a broker that is not there: %v", err)
	}
}

func TestClosingTheControlLeaderHandsLeadershipOn(t *testing.T) {
	w, nodes := three(t)
	w.lead(nodes[0].ctl.self.ServerID())
	if err := nodes[1].ctl.Drain(ctxFor(t, time.Minute), 2); err != nil {
		t.Fatal(err)
	}
	nodes[0].stop()
	if w.leader != nodes[2].ctl.self.ServerID() {
		t.Errorf("leader is %s, want node 3: node 2 drains", w.leader)
	}
}

func TestPeersOfDifferentClustersAreRefused(t *testing.T) {
	answers := []*metapb.HelloResponse{{Node: 2, ServerId: "2.01", ClusterId: "a"}, {Node: 3, ServerId: "3.01", ClusterId: "b"}}
	if _, err := decide("1.01", 2, answers); !errors.Is(err, ErrForeignCluster) {
		t.Fatalf("got %v", err)
	}
	answers[1].ClusterId = ""
	f, err := decide("1.01", 2, answers)
	if err != nil || f.cluster != "a" {
		t.Fatalf("%+v %v", f, err)
	}
	fresh := []*metapb.HelloResponse{{Node: 2, ServerId: "2.01"}, {Node: 10, ServerId: "10.01"}}
	f, err = decide("1.01", 2, fresh)
	if want := []rpc.ServerID{"1.01", "2.01", "10.01"}; err != nil || !slices.Equal(f.founders, want) {
		t.Fatalf("founders %v, want %v", f.founders, want)
	}
	if f, _ := decide("1.01", 3, fresh); f.founders != nil || f.cluster != "" {
		t.Fatalf("founded without the third peer: %+v", f)
	}
	if f, _ := decide("3.01", 2, fresh); f.founders != nil {
		t.Fatalf("node 3 founded a cluster beside node 2: %+v", f)
	}
}

func TestCommandForAnotherClusterIsRefused(t *testing.T) {
	_, nodes := three(t)
	resp := nodes[0].ctl.lead(t.Context(), &metapb.SubmitRequest{ClusterId: "other", Command: &metapb.Command{}})
	if resp.Code != metapb.Code_FOREIGN_CLUSTER {
		t.Fatalf("got %v", resp)
	}
}
