package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
)

// fakeNet is what a node sees of the others.
type fakeNet struct {
	dead    map[rpc.NodeID]bool                // by this node's own pings
	reports map[rpc.NodeID]map[rpc.NodeID]bool // about -> reporter
	leads   map[rpc.NodeID]rpc.ServerID        // what a peer answers for every group it holds
	missing map[rpc.NodeID]bool                // peers that do not hold the groups
	last    map[rpc.NodeID][2]uint64           // term and index of the last entry
	busy    map[rpc.NodeID]bool                // peers that campaign
	leading map[rpc.NodeID]bool                // peers that lead
	mute    map[rpc.NodeID]bool                // peers that do not answer
	self    rpc.ServerID
	calls   atomic.Int32
	asked   chan rpc.ServerID
}

func (n *fakeNet) Alive(id rpc.NodeID) bool                      { return !n.dead[id] }
func (n *fakeNet) ReportsDead(id rpc.NodeID) map[rpc.NodeID]bool { return n.reports[id] }

// Call answers for every group alike.
func (n *fakeNet) Call(_ context.Context, to rpc.NodeID, _ string, request []byte) ([]byte, error) {
	n.calls.Add(1)
	if n.dead[to] || n.mute[to] {
		return nil, errors.New("down")
	}
	var out []byte
	for range len(request) / groupIDSize {
		flags := byte(flagHeld)
		if n.leads[to] != "" && n.leads[to] != n.self {
			flags |= flagLed
		}
		if n.busy[to] {
			flags |= flagBusy
		}
		if n.leading[to] {
			flags |= flagLeads
		}
		if n.missing[to] {
			flags = 0
		}
		out = binary.BigEndian.AppendUint64(append(out, flags), n.last[to][0])
		out = binary.BigEndian.AppendUint64(out, n.last[to][1])
	}
	return out, nil
}

func (n *fakeNet) TimeoutNow(_ rpc.GroupID, target rpc.ServerID) error {
	n.asked <- target
	return nil
}

// fakeMeta shows one image.
type fakeMeta struct {
	Controller
	img       *meta.Image
	drained   bool
	published []meta.LeaderUpdate
}

func (f *fakeMeta) Image() *meta.Image                       { return f.img }
func (f *fakeMeta) Drain(context.Context, meta.NodeID) error { f.drained = true; return nil }
func (f *fakeMeta) PublishLeaders(u []meta.LeaderUpdate)     { f.published = append(f.published, u...) }

// watched is a manager of node `node` with one partition whose replicas are on nodes 1, 2, 3.
type watched struct {
	m    *Manager
	net  *fakeNet
	meta *fakeMeta
	h    *harness
	e    *elector
	now  time.Time
}

func watch(t *testing.T, node rpc.NodeID) *watched {
	h := open(t, replicas(3))
	info := &meta.PartitionInfo{Replicas: []meta.NodeID{1, 2, 3}, Servers: servers(3), Founders: servers(3)}
	h.assigned.Store(info)
	h.node = node
	img := &meta.Image{Brokers: map[meta.NodeID]*meta.Broker{1: {ID: 1}, 2: {ID: 2}, 3: {ID: 3}}}
	w := &watched{h: h, net: &fakeNet{dead: map[rpc.NodeID]bool{}, reports: map[rpc.NodeID]map[rpc.NodeID]bool{},
		leads: map[rpc.NodeID]rpc.ServerID{}, missing: map[rpc.NodeID]bool{}, last: map[rpc.NodeID][2]uint64{}, self: rpc.MakeServerID(node, 1), asked: make(chan rpc.ServerID, 10)}, meta: &fakeMeta{img: img}, now: time.Unix(1000, 0)}
	cfg := Config{Meta: w.meta, Self: rpc.MakeServerID(node, 1)}.WithDefaults()
	w.m = &Manager{cfg: cfg, node: node, net: w.net, logger: cfg.Logger, ctx: context.Background(),
		slots: map[slotKey]*slot{{}: {p: h.Partition, topic: &meta.Topic{Name: "t"}}}}
	w.e = newElector(w.m)
	return w
}

// follow makes the replica a follower of a leader ("" for none).
func (w *watched) follow(leader rpc.ServerID) { w.h.g.depose(5, leader, true) }

// after runs rounds until d has passed and returns how often the replica campaigned.
func (w *watched) after(d time.Duration) int {
	for end := w.now.Add(d); ; w.now = w.now.Add(electEvery) {
		w.e.round(w.now)
		if !w.now.Before(end) {
			break
		}
	}
	w.h.g.mu.Lock()
	defer w.h.g.mu.Unlock()
	return w.h.g.campaigns
}

func (w *watched) reportDead(node rpc.NodeID, by ...rpc.NodeID) {
	w.net.dead[node] = slices.Contains(by, w.m.node)
	w.net.reports[node] = map[rpc.NodeID]bool{}
	for _, b := range by {
		w.net.reports[node][b] = true
	}
}

func TestTheFirstSurvivorCampaignsAtOnce(t *testing.T) {
	w := watch(t, 2)
	w.follow(servers(3)[0])
	if n := w.after(time.Second); n != 0 {
		t.Fatalf("%d campaigns against a healthy leader", n)
	}
	w.reportDead(1, 2, 3)
	if n := w.after(0); n != 1 {
		t.Fatalf("%d campaigns, want 1 in the first round", n)
	}
	if n := w.after(againAfter - electEvery); n != 1 {
		t.Fatalf("%d campaigns, want the first to have its time", n)
	}
}

// A dead node's groups change by the hundreds, and each several times: to look at all of them after each change would take the time that
// the elections need.
func TestTheElectorLooksAtWhatChanged(t *testing.T) {
	w := watch(t, 2)
	w.follow(servers(3)[0])
	campaigns := func() int {
		w.e.wake(w.now)
		w.h.g.mu.Lock()
		defer w.h.g.mu.Unlock()
		return w.h.g.campaigns
	}
	w.m.lookAtAll()
	campaigns()
	w.reportDead(1, 2, 3)
	if n := campaigns(); n != 0 {
		t.Fatal("looked at a group of which nothing was told")
	}
	w.m.lookAt(w.h.Partition)
	if n := campaigns(); n != 1 {
		t.Fatalf("%d campaigns after the group was told of, want 1", n)
	}
	w.now = w.now.Add(againAfter - time.Millisecond)
	if n := campaigns(); n != 1 {
		t.Fatalf("%d campaigns, want the first to have its time", n)
	}
	for range againAfter / electEvery { // nobody tells anything any more
		w.now = w.now.Add(electEvery)
		campaigns()
	}
	if n := campaigns(); n != 2 {
		t.Fatalf("%d campaigns, want another one for a group that stays undecided", n)
	}
	w.follow(servers(3)[2])
	w.now = w.now.Add(electEvery)
	campaigns()
	if len(w.e.open) != 0 {
		t.Fatal("a group that is led again is looked at for ever")
	}
	w.reportDead(3, 1, 2)
	w.now = w.now.Add(electIdle)
	campaigns()
	if len(w.e.open) != 1 {
		t.Fatal("a change that nobody told of is not found within a second")
	}
}

func TestTheNextSurvivorGivesAHeadStart(t *testing.T) {
	w := watch(t, 3)
	w.follow(servers(3)[0])
	w.reportDead(1, 2, 3)
	if n := w.after(w.m.cfg.SuccessionDelay - electEvery); n != 0 {
		t.Fatal("the second survivor campaigned before its turn")
	}
	if n := w.after(2 * electEvery); n != 1 {
		t.Fatalf("%d campaigns, want 1 after the head start", n)
	}
}

// The first survivor has won, and the second has not heard from it yet, on busy cores. A campaign would depose it.
func TestTheWinnerOfAMomentAgoIsNotDeposed(t *testing.T) {
	w := watch(t, 3)
	w.follow(servers(3)[0])
	w.reportDead(1, 2, 3)
	w.net.leading = map[rpc.NodeID]bool{2: true}
	if n := w.after(2 * time.Second); n != 0 {
		t.Fatalf("%d campaigns against a leader that is there", n)
	}
	w.net.leading = nil
	if n := w.after(electEvery); n != 1 {
		t.Fatalf("%d campaigns once it leads no more, want 1", n)
	}
}

// Without an answer nobody knows whether the other campaigns or leads, and its vote would be missing.
func TestNobodyCampaignsWithoutAMajorityThatAnswers(t *testing.T) {
	w := watch(t, 2)
	w.follow(servers(3)[0])
	w.reportDead(1, 2, 3)
	w.net.mute = map[rpc.NodeID]bool{3: true}
	if n := w.after(time.Second); n != 0 {
		t.Fatalf("%d campaigns although the only other survivor does not answer", n)
	}
	w.net.mute = nil
	if n := w.after(electEvery); n != 1 {
		t.Fatalf("%d campaigns once it answers, want 1", n)
	}
}

// A node that is cut off from the leader alone, while a third one sees both, must not move leadership: it would come back
// and forth for ever.
func TestOneNodesWordIsNoMajority(t *testing.T) {
	w := watch(t, 2)
	w.follow(servers(3)[0])
	w.reportDead(1, 2)
	if n := w.after(60 * time.Second); n != 0 {
		t.Fatalf("%d campaigns in a minute of a bridge", n)
	}
	w.reportDead(1, 2, 3)
	if n := w.after(0); n != 1 {
		t.Fatalf("%d campaigns once the third node agrees", n)
	}
}

func TestTheDeadNodesOwnWordDoesNotCount(t *testing.T) {
	w := watch(t, 2)
	w.follow(servers(3)[0])
	w.reportDead(1, 2, 1)
	if n := w.after(time.Second); n != 0 {
		t.Fatalf("%d campaigns", n)
	}
}

// The others elect a successor after 0.3 s; clients that stay with a leader that is cut off would wait for the end of its lease.
func TestALeaderThatReachesNoMajorityStepsDownAtOnce(t *testing.T) {
	w := watch(t, 1)
	stepDowns := func() int {
		w.e.round(w.now)
		w.h.g.mu.Lock()
		defer w.h.g.mu.Unlock()
		return w.h.g.stepDowns
	}
	if n := stepDowns(); n != 0 {
		t.Fatal("a healthy leader stepped down")
	}
	w.reportDead(2, 1)
	w.reportDead(3, 2) // by another: that node is cut off from 3, this one is not
	if n := stepDowns(); n != 0 {
		t.Fatal("stepped down although two of three are there")
	}
	w.reportDead(3, 1)
	if n := stepDowns(); n != 1 {
		t.Fatalf("%d orders to step down in the first round after the verdict, want 1", n)
	}
	w.follow("")
	if n := w.after(time.Minute); n != 0 {
		t.Fatalf("%d campaigns while nobody is there", n)
	}
	w.reportDead(2)
	if n := w.after(lull); n != 1 {
		t.Fatalf("%d campaigns once a majority is there and knows no leader, want 1", n)
	}
}

func TestAReplicaThatVotesAloneNeverStepsDown(t *testing.T) {
	w := watch(t, 1)
	w.h.g.voters = servers(1)
	w.reportDead(2, 1)
	w.reportDead(3, 1)
	w.e.round(w.now)
	if w.h.g.stepDowns != 0 {
		t.Fatal("it needs nobody, and stepped down")
	}
}

func TestANewGroupIsLedAtOnceByItsFirstReplica(t *testing.T) {
	w := watch(t, 1)
	w.h.fresh = true
	w.follow("")
	w.h.applied.Store(0)
	w.net.missing[2], w.net.missing[3] = true, true
	if n := w.after(time.Second); n != 0 {
		t.Fatal("campaigned before a majority had opened the group")
	}
	w.net.missing[2] = false
	if n := w.after(0); n != 1 {
		t.Fatalf("%d campaigns, want 1 as soon as a majority holds the group", n)
	}
}

// A restarted node hears nothing at first. It must not depose a healthy leader that has not reached it yet.
func TestARestartDoesNotDeposeAHealthyLeader(t *testing.T) {
	w := watch(t, 1)
	w.follow("")
	w.net.leads[2], w.net.leads[3] = servers(3)[1], servers(3)[1]
	if n := w.after(30 * time.Second); n != 0 {
		t.Fatalf("%d campaigns although the others are led", n)
	}
	w.net.leads[2] = "" // one of three knows a leader: with this replica, a majority knows none
	if n := w.after(electEvery); n != 1 {
		t.Fatalf("%d campaigns", n)
	}
}

// A leader that slept through its lease steps down while its followers still believe in it.
func TestALeaderThatSteppedDownLeadsAgainSoon(t *testing.T) {
	w := watch(t, 1)
	w.follow("")
	w.net.leads[2], w.net.leads[3] = servers(3)[0], servers(3)[0]
	if n := w.after(lull); n != 1 {
		t.Fatalf("%d campaigns, want 1", n)
	}
}

// Of two survivors the one with the longer log must lead. The first in order may not be that one: it asks the other to
// campaign instead of losing, and raising the term, itself.
func TestTheLongestLogCampaigns(t *testing.T) {
	for name, last := range map[string][2]uint64{"more entries": {1, 1000}, "a newer term": {4, 1}} {
		t.Run(name, func(t *testing.T) {
			w := watch(t, 2)
			w.follow(servers(3)[0])
			w.reportDead(1, 2, 3)
			w.net.last[3] = last
			if n := w.after(0); n != 0 {
				t.Fatalf("%d campaigns of the shorter log", n)
			}
			if got := <-w.net.asked; got.Node() != 3 {
				t.Fatalf("asked %s", got)
			}
			w.m.wg.Wait()
		})
	}
}

// On busy cores an election takes long; a second campaign would take the first one's votes, and both would begin again.
func TestACampaignUnderWayIsWaitedFor(t *testing.T) {
	w := watch(t, 3)
	w.follow(servers(3)[0])
	w.reportDead(1, 2, 3)
	w.net.busy = map[rpc.NodeID]bool{2: true}
	if n := w.after(busyPatience - electEvery); n != 0 {
		t.Fatalf("%d campaigns beside another one", n)
	}
	if n := w.after(2 * electEvery); n != 1 {
		t.Fatalf("%d campaigns, want 1: patience ends", n)
	}
}

func TestPeersAnswerAboutGroups(t *testing.T) {
	w := watch(t, 2)
	id := topicID(3)
	w.m.slots = map[slotKey]*slot{{id, 5}: {p: w.h.Partition, topic: &meta.Topic{Name: "t"}}}
	request := append(rpc.GroupID{Topic: id, Partition: 5}.Bytes(), rpc.GroupID{Topic: id, Partition: 6}.Bytes()...)
	flags := func(from rpc.NodeID) (byte, byte) {
		got, err := w.m.answerGroups(context.Background(), from, request)
		if err != nil || len(got) != 2*answerSize {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if last := binary.BigEndian.Uint64(got[9:]); last != w.h.log.LastIndex() {
			t.Fatalf("last index %d, want %d", last, w.h.log.LastIndex())
		}
		return got[0], got[answerSize]
	}
	w.follow(servers(3)[0])
	if held, other := flags(3); held != flagHeld|flagLed || other != 0 {
		t.Fatalf("flags %d and %d", held, other)
	}
	if held, _ := flags(1); held != flagHeld {
		t.Fatalf("flags %d: who is asked by its leader knows none", held)
	}
	if _, err := w.m.answerGroups(context.Background(), 1, request[1:]); err == nil {
		t.Fatal("half an id was accepted")
	}
}

func TestARestartWaitsForItsLeaderFirst(t *testing.T) {
	w := watch(t, 1)
	w.follow("")
	w.h.opened = w.now
	if n := w.after(w.m.cfg.StartGrace - electEvery); n != 0 || w.net.calls.Load() > 0 {
		t.Fatalf("%d campaigns, %d questions within the grace", n, w.net.calls.Load())
	}
	if n := w.after(2 * electEvery); n != 1 {
		t.Fatalf("%d campaigns after it", n)
	}
}

func TestNobodyCampaignsWhileLeavingSuspectOrFailed(t *testing.T) {
	w := watch(t, 1)
	w.follow("")
	w.m.draining.Store(true)
	if n := w.after(5 * time.Second); n != 0 {
		t.Fatal("campaigned while draining")
	}
	w.m.draining.Store(false)
	w.h.g.mu.Lock()
	w.h.g.failed = replica.ErrFailed
	w.h.g.mu.Unlock()
	if n := w.after(5 * time.Second); n != 0 {
		t.Fatal("campaigned with failed storage")
	}
}

func TestDrainingReplicasDoNotDelayTheNext(t *testing.T) {
	w := watch(t, 2)
	w.h.fresh = true
	w.follow("")
	w.h.applied.Store(0)
	w.meta.img.Brokers[1].Draining = true
	if n := w.after(0); n != 1 {
		t.Fatalf("%d campaigns: waited for a replica that is leaving", n)
	}
}

func TestDrainHandsOverToFitReplicasOnly(t *testing.T) {
	w := watch(t, 1)
	w.meta.img.Brokers[2].Draining = true
	if err := w.m.Drain(context.Background()); err != nil || !w.meta.drained {
		t.Fatalf("%v, mark committed: %v", err, w.meta.drained)
	}
	if got := w.h.g.transfers; len(got) != 1 || got[0].Node() != 3 {
		t.Fatalf("transferred to %v, want node 3", got)
	}
}

func TestDrainOfAllNodesPassesNothingRound(t *testing.T) {
	w := watch(t, 1)
	w.meta.img.Brokers[2].Draining, w.meta.img.Brokers[3].Draining = true, true
	if err := w.m.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := w.h.g.transfers; len(got) != 0 {
		t.Fatalf("transferred to %v", got)
	}
}

func TestLeadershipReturnsToThePreferredReplicaInItsTime(t *testing.T) {
	w := watch(t, 2)
	b := &balancer{m: w.m, inSync: map[*Partition]time.Time{}}
	led := []*Partition{w.h.Partition}
	b.round(led, w.now)
	b.round(led, w.now.Add(w.m.cfg.BalanceAfter-time.Millisecond))
	if len(w.h.g.transfers) != 0 {
		t.Fatal("returned before it was in sync for long enough")
	}
	w.net.dead[1] = true
	b.round(led, w.now.Add(w.m.cfg.BalanceAfter))
	w.net.dead[1] = false
	b.round(led, w.now.Add(w.m.cfg.BalanceAfter+time.Second))
	if len(w.h.g.transfers) != 0 {
		t.Fatal("an interruption must start the wait anew")
	}
	b.round(led, w.now.Add(2*w.m.cfg.BalanceAfter+time.Second))
	if got := w.h.g.transfers; len(got) != 1 || got[0].Node() != 1 {
		t.Fatalf("transferred to %v, want node 1", got)
	}
}

func TestLeadershipIsNeverReturnedToALeavingNode(t *testing.T) {
	w := watch(t, 2)
	w.meta.img.Brokers[1].Draining = true
	b := &balancer{m: w.m, inSync: map[*Partition]time.Time{}}
	for i := range 10 {
		b.round([]*Partition{w.h.Partition}, w.now.Add(time.Duration(i)*time.Second))
	}
	if len(w.h.g.transfers) != 0 {
		t.Fatal("transferred to a draining node")
	}
}

func TestAWipedReplicaLeavesJoinsAndVotesOneStepAtATime(t *testing.T) {
	old, fresh := rpc.MakeServerID(3, 1), rpc.MakeServerID(3, 2)
	want := append(servers(2), fresh)
	have := []replica.Member{{ID: servers(2)[0], Voter: true}, {ID: servers(2)[1], Voter: true}, {ID: old, Voter: true}}
	caught := false
	next := func() memberChange { return nextChange(want, have, func(rpc.ServerID) bool { return caught }) }
	if c := next(); c != (memberChange{removeMember, old}) {
		t.Fatalf("%+v", c)
	}
	have = have[:2]
	if c := next(); c != (memberChange{addMember, fresh}) {
		t.Fatalf("%+v", c)
	}
	have = append(have, replica.Member{ID: fresh})
	if c := next(); c.id != "" {
		t.Fatalf("votes before it has caught up: %+v", c)
	}
	caught = true
	if c := next(); c != (memberChange{promoteMember, fresh}) {
		t.Fatalf("%+v", c)
	}
	have[2].Voter = true
	if c := next(); c.id != "" {
		t.Fatalf("%+v", c)
	}
}

// Nobody else can know that the storage of a leader failed: its node answers pings, and the others wait for their timers.
func TestAReplicaThatCannotLeadHasAnotherCampaign(t *testing.T) {
	w := watch(t, 1)
	w.h.g.lead(5)
	w.net.leads = map[rpc.NodeID]rpc.ServerID{2: w.net.self, 3: w.net.self}
	w.net.last = map[rpc.NodeID][2]uint64{2: {5, 10}, 3: {5, 11}}
	asked := func() (all []rpc.ServerID) {
		w.m.wg.Wait()
		for {
			select {
			case s := <-w.net.asked:
				all = append(all, s)
			default:
				return all
			}
		}
	}
	if w.after(time.Second); len(asked()) != 0 {
		t.Fatal("a healthy leader had another one campaign")
	}
	w.h.g.failed = replica.ErrFailed
	w.after(0)
	if got := asked(); len(got) != 1 || got[0] != servers(3)[2] {
		t.Fatalf("asked %v, want the longest log once", got)
	}
	w.after(againAfter - electEvery)
	if got := asked(); len(got) != 0 {
		t.Fatalf("asked %v before the first campaign had its time", got)
	}
	w.after(2 * electEvery)
	if got := asked(); len(got) != 1 {
		t.Fatalf("asked %v, want another try while nobody leads", got)
	}
	w.net.leading = map[rpc.NodeID]bool{3: true}
	w.after(2 * againAfter)
	if got := asked(); len(got) != 0 {
		t.Fatalf("asked %v although another replica leads", got)
	}
	w.net.leading, w.net.missing = nil, map[rpc.NodeID]bool{2: true}
	w.after(2 * againAfter)
	if got := asked(); len(got) != 0 {
		t.Fatalf("asked %v although no majority is left to follow", got)
	}
}
