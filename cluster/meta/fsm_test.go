package meta

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gopherlog/cluster/meta/metapb"
	"gopherlog/cluster/rpc"

	"google.golang.org/protobuf/proto"
)

// random makes commands, valid and not, about few names, so that they meet.
type random struct {
	*rand.Rand
	topics uint64
}

func (r *random) node() int32 { return int32(r.IntN(6)) }

func (r *random) name() string { return fmt.Sprintf("t%d", r.IntN(8)) }

func (r *random) nodes() (out []int32) {
	for range r.IntN(5) {
		out = append(out, r.node())
	}
	return out
}

func (r *random) command(img *Image) *metapb.Command {
	cmd := &metapb.Command{Live: []int32{1, 2, 3, 4, 5}[:r.IntN(6)]}
	if r.IntN(3) > 0 {
		cmd.RequestId = []byte{byte(r.IntN(256)), byte(r.IntN(8))}
	}
	switch r.IntN(9) {
	case 0:
		b := &metapb.Broker{Id: r.node(), Incarnation: uint64(r.IntN(3)), Session: r.Uint64(), Host: "h", Port: int32(r.IntN(9999))}
		cmd.Op = &metapb.Command_RegisterBroker{RegisterBroker: &metapb.RegisterBroker{Broker: b}}
	case 1:
		on := r.IntN(2) == 0
		cmd.Op = &metapb.Command_MarkBroker{MarkBroker: &metapb.MarkBroker{Id: r.node(), Draining: &on}}
	case 2, 3:
		r.topics++
		spec := &metapb.TopicSpec{Name: r.name(), Id: fmt.Appendf(nil, "%016d", r.topics), Partitions: int32(r.IntN(12)), ReplicationFactor: int32(r.IntN(4))}
		if r.IntN(4) == 0 {
			spec.Assignments = []*metapb.NodeList{{Nodes: r.nodes()}, {Nodes: r.nodes()}}
		}
		cmd.Op = &metapb.Command_CreateTopics{CreateTopics: &metapb.CreateTopics{Topics: []*metapb.TopicSpec{spec}}}
	case 4:
		cmd.Op = &metapb.Command_DeleteTopics{DeleteTopics: &metapb.DeleteTopics{Topics: []*metapb.TopicRef{{Name: r.name()}}}}
	case 5:
		spec := &metapb.PartitionsSpec{Name: r.name(), Count: int32(r.IntN(15))}
		cmd.Op = &metapb.Command_CreatePartitions{CreatePartitions: &metapb.CreatePartitions{Topics: []*metapb.PartitionsSpec{spec}}}
	case 6:
		ops := []*metapb.ConfigOp{{Key: "retention.ms", Value: "5"}, {Key: "segment.bytes", Kind: metapb.ConfigOp_DELETE}}
		cmd.Op = &metapb.Command_AlterConfigs{AlterConfigs: &metapb.AlterConfigs{Topics: []*metapb.TopicConfigOps{{Name: r.name(), Ops: ops[r.IntN(2):]}}}}
	case 7:
		op := &metapb.PublishLeaders{}
		for range r.IntN(20) {
			u := &metapb.LeaderUpdate{Partition: int32(r.IntN(12)), Leader: r.node(), Term: int32(r.IntN(50)), Isr: r.nodes()}
			if t := img.Topic(r.name()); t != nil {
				u.TopicId = t.ID[:]
			}
			op.Updates = append(op.Updates, u)
		}
		cmd.Op = &metapb.Command_PublishLeaders{PublishLeaders: op}
	default:
		cmd.Op = &metapb.Command_AllocateProducerIds{AllocateProducerIds: &metapb.AllocateProducerIds{Count: int32(r.IntN(2000))}}
	}
	return cmd
}

// Two machines get the same random commands; one of them is thrown away and restored from its snapshot all the time. They must stay
// byte for byte the same, give the same answers, keep their invariants, and leave every image that was handed out as it was.
func TestRestoredMachineNeverDriftsFromItsTwin(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := &random{Rand: rand.New(rand.NewPCG(seed, 0))}
	a, b := newMachine(nil), newMachine(nil)
	type kept struct {
		img   *Image
		bytes []byte
	}
	var old []kept
	for i := uint64(1); i <= 3000; i++ {
		raw, err := proto.Marshal(r.command(a.img))
		if err != nil {
			t.Fatal(err)
		}
		ra, rb := a.Apply(i, raw).(*metapb.Result), b.Apply(i, raw).(*metapb.Result)
		if !proto.Equal(ra, rb) {
			t.Fatalf("seed %d, command %d: answers differ:\n%v\n%v", seed, i, ra, rb)
		}
		checkImage(t, a.img)
		if r.IntN(40) == 0 {
			sa, sb := a.Snapshot(), b.Snapshot()
			if !bytes.Equal(sa, sb) {
				t.Fatalf("seed %d, command %d: snapshots differ", seed, i)
			}
			old = append(old, kept{a.img, encodeImage(a.img)})
			b = newMachine(nil)
			if err := b.Restore(sb); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, k := range old {
		if !bytes.Equal(encodeImage(k.img), k.bytes) {
			t.Fatalf("seed %d: image %d has changed after it was handed out", seed, k.img.Epoch)
		}
	}
}

func encodeImage(img *Image) []byte {
	m := newMachine(nil)
	m.img = img
	return m.Snapshot()
}

func checkImage(t *testing.T, img *Image) {
	t.Helper()
	if len(img.Topics) != len(img.byID) {
		t.Fatalf("image %d: %d topics by name, %d by id", img.Epoch, len(img.Topics), len(img.byID))
	}
	for name, topic := range img.Topics {
		if topic.Name != name || img.byID[topic.ID] != topic {
			t.Fatalf("image %d: topic %s is not the one of its id", img.Epoch, name)
		}
		for i := range topic.Partitions {
			p := &topic.Partitions[i]
			nodes := slices.Clone(p.Replicas)
			slices.Sort(nodes)
			if len(slices.Compact(nodes)) != len(p.Replicas) || len(p.Servers) != len(p.Replicas) || len(p.Founders) != len(p.Replicas) {
				t.Fatalf("image %d: %s/%d has replicas %v, servers %v, founders %v", img.Epoch, name, i, p.Replicas, p.Servers, p.Founders)
			}
			for k, s := range p.Servers {
				if s.Node() != p.Replicas[k] {
					t.Fatalf("image %d: %s/%d replica %d has server %s", img.Epoch, name, i, p.Replicas[k], s)
				}
			}
			if p.Leader != NoLeader && !p.Has(p.Leader) {
				t.Fatalf("image %d: %s/%d is led by %d of %v", img.Epoch, name, i, p.Leader, p.Replicas)
			}
			for _, id := range p.ISR {
				if !p.Has(id) {
					t.Fatalf("image %d: %s/%d has isr %v of %v", img.Epoch, name, i, p.ISR, p.Replicas)
				}
			}
		}
	}
}

func TestSnapshotOfANewerVersionIsRefusedAsAVersion(t *testing.T) {
	raw, err := proto.Marshal(&metapb.Snapshot{Version: snapshotVersion + 1})
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(nil)
	if err := m.Restore(raw); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Fatalf("restored a newer snapshot: %v", err)
	}
	if err := m.Restore([]byte{0xff}); err == nil {
		t.Fatal("restored garbage")
	}
}

func TestCommandOfANewerVersionStopsTheNodeRatherThanLetItDrift(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "newer version") {
			t.Fatalf("recovered %v", r)
		}
	}()
	newMachine(nil).Apply(7, nil)
}

func brokers(n int, rack func(i int) string) *Image {
	d := emptyImage().edit(1)
	for i := 1; i <= n; i++ {
		d.putBroker(&Broker{ID: NodeID(i), Incarnation: uint64(i), Rack: rack(i)})
	}
	return &d.Image
}

func noRack(int) string { return "" }

// Whatever is created in whatever order, no broker leads or carries noticeably more than another.
func TestReplicasAndLeadersSpreadEvenly(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for n := 1; n <= 9; n++ {
		img := brokers(n, noRack)
		var live []int32
		for i := 1; i <= n; i++ {
			live = append(live, int32(i))
		}
		for k := range 60 {
			spec := &metapb.TopicSpec{Name: fmt.Sprint("t", k), Id: fmt.Appendf(nil, "%016d", k), Partitions: int32(1 + r.IntN(10)), ReplicationFactor: int32(1 + r.IntN(min(n, 3)))}
			var res *metapb.Result
			img, res = img.apply(uint64(k+2), &metapb.Command{Live: live, Op: &metapb.Command_CreateTopics{CreateTopics: &metapb.CreateTopics{Topics: []*metapb.TopicSpec{spec}}}})
			if res.Outcomes[0].Code != metapb.Code_OK {
				t.Fatal(res)
			}
		}
		p := newPlacer(img, live)
		by := func(get func(*seat) int) (lo, hi int) {
			counts := mapSlice(p.live, get)
			return slices.Min(counts), slices.Max(counts)
		}
		if lo, hi := by(func(s *seat) int { return s.leads }); hi-lo > 2 {
			t.Errorf("%d brokers: preferred leaders between %d and %d", n, lo, hi)
		}
		if lo, hi := by(func(s *seat) int { return s.replicas }); hi-lo > 2 {
			t.Errorf("%d brokers: replicas between %d and %d", n, lo, hi)
		}
	}
}

// When a broker dies, its leaderships should go to many others, not all to one.
func TestFollowersOfOneLeaderAreSpread(t *testing.T) {
	p := newPlacer(brokers(6, noRack), []int32{1, 2, 3, 4, 5, 6})
	replicas, bad := p.place(60, 3)
	if bad != nil {
		t.Fatal(bad)
	}
	second := map[NodeID]map[NodeID]int{}
	for _, r := range replicas {
		if second[r[0]] == nil {
			second[r[0]] = map[NodeID]int{}
		}
		second[r[0]][r[1]]++
	}
	for leader, next := range second {
		if len(next) < 3 {
			t.Errorf("the partitions that %d leads all go to %v", leader, next)
		}
	}
}

func TestReplicasOfAPartitionStandInDifferentRacks(t *testing.T) {
	rack := func(i int) string { return string(rune('a' + (i-1)/2)) } // 1,2: a; 3,4: b; 5,6: c
	p := newPlacer(brokers(6, rack), []int32{1, 2, 3, 4, 5, 6})
	replicas, bad := p.place(50, 3)
	if bad != nil {
		t.Fatal(bad)
	}
	for i, r := range replicas {
		racks := []string{rack(int(r[0])), rack(int(r[1])), rack(int(r[2]))}
		slices.Sort(racks)
		if len(slices.Compact(racks)) != 3 {
			t.Errorf("partition %d: %v", i, r)
		}
	}
}

func TestOldIncarnationLeavesBeforeTheNewOneJoins(t *testing.T) {
	id := func(n NodeID, inc uint64) rpc.ServerID { return rpc.MakeServerID(n, inc) }
	members := []Member{{ID: id(1, 1), Voter: true}, {ID: id(2, 1), Voter: true}, {ID: id(3, 1), Voter: true}}
	joining := id(3, 2)
	var did []step
	for {
		s, whom := nextStep(members, joining)
		did = append(did, s)
		at := slices.IndexFunc(members, func(m Member) bool { return m.ID == whom })
		switch s {
		case stepRemove:
			members = slices.Delete(members, at, at+1)
		case stepAdd:
			members = append(members, Member{ID: whom})
		case stepPromote:
			members[at].Voter = true
		}
		if s == stepDone {
			break
		}
	}
	if want := []step{stepRemove, stepAdd, stepPromote, stepDone}; !slices.Equal(did, want) {
		t.Errorf("steps %v, want %v", did, want)
	}
	for i := range maxControlVoters - 3 {
		members = append(members, Member{ID: id(NodeID(10+i), 1), Voter: true})
	}
	members = append(members, Member{ID: id(20, 1), Voter: false})
	if s, _ := nextStep(members, id(20, 1)); s != stepDone {
		t.Errorf("the eighth node is to be a voter: %v", s)
	}
}

// The image tells what no disk holds any more from what only waits for a node that is down.
func TestAPartitionIsLostWithTheDiskThatHeldItsOnlyCopy(t *testing.T) {
	s := &scripted{t: t, machine: newMachine(nil)}
	for _, line := range []string{"register 1 disk=a", "register 2 disk=b", "create single p=2 rf=1 live=1,2", "create both p=1 rf=2 live=1,2"} {
		s.run(line)
	}
	lost := func() (out []string) {
		for _, name := range s.machine.img.TopicNames() {
			for i := range s.machine.img.Topic(name).Partitions {
				p := &s.machine.img.Topic(name).Partitions[i]
				if s.machine.img.Lost(p) {
					out = append(out, fmt.Sprintf("%s/%d of %d", name, i, p.Replicas[0]))
				}
			}
		}
		return out
	}
	if got := lost(); len(got) != 0 {
		t.Errorf("lost before anything happened: %v", got)
	}
	s.run("register 2 disk=bb")
	if got := lost(); len(got) != 1 || !strings.HasSuffix(got[0], " of 2") || !strings.HasPrefix(got[0], "single/") {
		t.Errorf("lost with the disk of node 2: %v", got)
	}
	s.run("register 2 disk=b")
	if got := lost(); len(got) != 0 {
		t.Errorf("lost although the disk came back: %v", got)
	}
}

// A snapshot comes from another node; whatever it holds, restoring it fails or gives a state that can be written again.
func FuzzRestore(f *testing.F) {
	d := brokers(2, noRack).edit(2)
	d.createTopic(&metapb.TopicSpec{Name: "t", Id: make([]byte, 16), Partitions: 2, ReplicationFactor: 2}, []int32{1, 2})
	f.Add(encodeImage(&d.Image))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := newMachine(nil)
		if m.Restore(raw) != nil {
			return
		}
		again := newMachine(nil)
		if err := again.Restore(m.Snapshot()); err != nil || !bytes.Equal(again.Snapshot(), m.Snapshot()) {
			t.Fatalf("%x does not survive: %v", raw, err)
		}
	})
}
