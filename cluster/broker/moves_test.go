package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/record"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

// moving is a cluster in virtual time whose leaderships move while clients run transactions. Its clients are as impatient as clients can be:
// what they met is repeated after clientPause with whoever leads by then, so what a reader waits for is the cluster's fault.
type moving struct {
	t     *testing.T
	c     *trio
	parts int32
	wg    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	stop    bool
	down    rpc.NodeID       // 0: all are up
	broken  [3]chan struct{} // closed when the node goes down
	events  []string
	ends    int
	longest time.Duration // that a reader waited
}

const (
	clientPause         = 10 * time.Millisecond
	betweenTransactions = 30 * time.Millisecond // or the test takes long
)

func (m *moving) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (m *moving) stopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stop
}

func (m *moving) setDown(node rpc.NodeID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down = node; node != 0 {
		close(m.broken[node-1])
	} else {
		m.connect()
	}
}

func (m *moving) connect() {
	for i := range m.broken {
		m.broken[i] = make(chan struct{})
	}
}

// gone is closed when a node goes down.
func (m *moving) gone(n *trioNode) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken[n.id-1]
}

// up returns a node unless it is down.
func (m *moving) up(i int) *trioNode {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.c.nodes[i%3]; n.id != m.down {
		return n
	}
	return nil
}

// leader is who leads a partition as a node's clients are told, nil if that is nobody.
func (m *moving) leader(asked int, topic string, number int32) *trioNode {
	n := m.up(asked)
	if n == nil {
		return nil
	}
	t := n.ctl.Image().Topic(topic)
	if t == nil || t.Partitions[number].Leader == meta.NoLeader {
		return nil
	}
	return m.up(int(t.Partitions[number].Leader) - 1)
}

func shardTopic(id string) string {
	if strings.HasPrefix(id, "2pc.") {
		return coordinator.VotedTopic
	}
	return coordinator.TransactionsTopic
}

// ask repeats a request until a coordinator has answered it.
func (m *moving) ask(id string, what func(n *trioNode, done func(kafkatx.Answer))) kafkatx.Answer {
	for i := 0; ; i++ {
		if n := m.leader(i, shardTopic(id), coordinator.ShardOf(id, 16)); n != nil {
			c := make(chan kafkatx.Answer, 1)
			what(n, func(a kafkatx.Answer) { c <- a })
			var a kafkatx.Answer
			select {
			case a = <-c:
			case <-m.gone(n): // and the connection with it
				a.Code = kafkatx.NotCoordinator
			}
			if !slices.Contains([]kafkatx.Code{kafkatx.NotCoordinator, kafkatx.ConcurrentTransactions, 14, 15}, a.Code) {
				return a
			}
			m.note("%s: node %d answers %v", id, n.id, a.Code)
		}
		time.Sleep(clientPause)
	}
}

// produce runs transactions over all partitions.
func (m *moving) produce(id string, version producer.TransactionVersion) {
	var who kafkatx.Answer
	var next map[int32]int32
	fresh := true
	for !m.stopped() {
		if fresh {
			who = m.ask(id, func(n *trioNode, done func(kafkatx.Answer)) {
				n.txns.InitProducerID(id, kafkatx.InitProducerID{ProducerID: kafkatx.None, Epoch: kafkatx.None, Timeout: time.Minute}, done)
			})
			if who.Code != kafkatx.OK {
				m.t.Errorf("%s: InitProducerId: %v", id, who)
				return
			}
			next, fresh = map[int32]int32{}, false
		}
		var failed error
		if version < producer.Version2 {
			e := kafkatx.AddPartitions{ProducerID: who.ProducerID, Epoch: who.Epoch}
			for p := range m.parts {
				e.Partitions = append(e.Partitions, kafkatx.Partition{Topic: "t", Number: p})
			}
			a := m.ask(id, func(n *trioNode, done func(kafkatx.Answer)) { n.txns.AddPartitions(id, e, done) })
			if a.Code != kafkatx.OK {
				failed = fmt.Errorf("AddPartitionsToTxn: %v", a.Code)
			}
		}
		if failed == nil {
			var wg sync.WaitGroup
			var mu sync.Mutex
			for p := range m.parts {
				wg.Go(func() {
					if err := m.send(id, who, version, p, next[p]); err != nil {
						mu.Lock()
						failed = err
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			for p := range m.parts {
				next[p]++
			}
		}
		end := kafkatx.EndTxn{ProducerID: who.ProducerID, Epoch: who.Epoch, Commit: failed == nil, Version: kafkatx.Version(version)}
		a := m.ask(id, func(n *trioNode, done func(kafkatx.Answer)) { n.txns.EndTxn(id, end, done) })
		if failed != nil || a.Code != kafkatx.OK {
			m.note("%s: %v, end %v", id, failed, a.Code)
		}
		switch {
		case a.Code != kafkatx.OK || failed != nil && version < producer.Version2:
			fresh = true
		case version >= producer.Version2:
			who, next = a, map[int32]int32{}
		}
		m.mu.Lock()
		m.ends++
		m.mu.Unlock()
		time.Sleep(betweenTransactions)
	}
}

// send repeats a batch until it is there.
func (m *moving) send(id string, who kafkatx.Answer, version producer.TransactionVersion, number, sequence int32) error {
	for i := 0; ; i++ {
		if n := m.leader(i, "t", number); n != nil {
			if p, err := n.parts.Get("t", number); err == nil {
				b := record.Builder{Transactional: true, Producer: &record.Producer{ID: who.ProducerID, Epoch: who.Epoch, Sequence: sequence}}
				b.Append(record.Record{Value: []byte(id)})
				c := make(chan error, 1)
				start := time.Now()
				p.Append(&partition.AppendRequest{
					Batch: b.Finish(), Acks: partition.AcksAll, TransactionalID: id, Version: version, Deadline: time.Now().Add(10 * time.Second),
					Done: func(a partition.AppendResult) { c <- a.Err },
				})
				var err error
				select {
				case err = <-c:
				case <-m.gone(n):
					err = partition.ErrTimeout
				}
				if took := time.Since(start); took > 100*time.Millisecond {
					m.note("%s: t-%d at node %d took %v: %v", id, number, n.id, took, err)
				}
				switch {
				case err == nil:
					return nil
				case !errors.Is(err, partition.ErrNotLeader) && !errors.Is(err, partition.ErrNotEnoughReplicas) && !errors.Is(err, partition.ErrTimeout) && !errors.Is(err, partition.ErrConcurrentTransactions):
					return err
				}
				m.note("%s: t-%d at node %d: %v", id, number, n.id, err)
			}
		}
		time.Sleep(clientPause)
	}
}

// read watches how far readers of committed records get, and returns the longest time in which they got no further.
func (m *moving) read(number int32, limit time.Duration) {
	seen, at := int64(-1), time.Now()
	for i := 0; !m.stopped(); i++ {
		time.Sleep(clientPause / 2)
		n := m.leader(i, "t", number)
		if n == nil {
			continue
		}
		p, err := n.parts.Get("t", number)
		if err != nil {
			continue
		}
		if _, _, ready := p.Leader(); !ready {
			continue
		}
		if s := p.LastStable(); s > seen {
			took := time.Since(at)
			m.mu.Lock()
			m.longest = max(m.longest, took)
			m.mu.Unlock()
			if took > limit {
				m.note("STALL t-%d: %v at offset %d", number, took, seen)
				m.t.Errorf("readers of t-%d waited %v", number, took)
			}
			seen, at = s, time.Now()
		}
	}
}

// move has another replica campaign, as a leader does that hands over.
func (m *moving) move(rnd *rand.Rand, topic string, number int32) {
	n := m.leader(rnd.IntN(3), topic, number)
	if n == nil {
		return
	}
	info := n.ctl.Image().Topic(topic)
	servers := slices.DeleteFunc(slices.Clone(info.Partitions[number].Servers), func(s rpc.ServerID) bool { return s.Node() == n.id })
	to := servers[rnd.IntN(len(servers))]
	m.note("MOVE %s-%d from node %d to %d", topic, number, n.id, to.Node())
	if err := n.rpc.TimeoutNow(rpc.GroupID{Topic: info.ID, Partition: number}, to); err != nil {
		m.note("MOVE: %v", err)
	}
}

// newMoving starts clients of both protocols and both versions, and a reader of each partition that may wait for so long.
func newMoving(t *testing.T, limit time.Duration, adapt func(*trio)) *moving {
	m := &moving{t: t, parts: 3, c: newTrio(t, adapt)}
	m.connect()
	if _, err := m.c.nodes[0].ctl.CreateTopics(within(t, time.Minute), []meta.TopicSpec{{Name: "t", Partitions: m.parts, ReplicationFactor: 3}}, false); err != nil {
		t.Fatal(err)
	}
	for id := range movingIDs {
		if _, _, err := m.c.nodes[0].txns.Find(within(t, time.Minute), id); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(5 * time.Second) // preferred leaders everywhere
	for a := range m.c.nodes {
		for b := range m.c.nodes {
			if a != b {
				m.c.net.Delay(m.c.nodes[a].id, m.c.nodes[b].id, 500*time.Microsecond)
			}
		}
	}
	for id, v := range movingIDs {
		m.wg.Go(func() { m.produce(id, v) })
	}
	for p := range m.parts {
		m.wg.Go(func() { m.read(p, limit) })
	}
	return m
}

var movingIDs = map[string]producer.TransactionVersion{
	"a": producer.Version0, "b": producer.Version2, "2pc.a": producer.Version0, "2pc.b": producer.Version2,
}

// end stops everything, and tells what happened if readers waited too long.
func (m *moving) end() {
	time.Sleep(time.Second)
	m.mu.Lock()
	m.stop = true
	m.mu.Unlock()
	m.wg.Wait()
	m.t.Logf("%d transactions, the longest wait %v", m.ends, m.longest)
	if m.t.Failed() {
		m.t.Log(strings.Join(m.events, "\n"))
	}
	for _, n := range m.c.nodes {
		n.stop()
	}
}

// Leaderships of partitions and coordinators are taken away without notice, by candidates that often lose since a record is on its way, which
// takes the group 0.4 s to settle, and two of them can hit one transaction; they go back to preferred replicas in good order, which takes a few
// round trips.
func TestReadersGoOnWhileLeadershipsMove(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		m := newMoving(t, 1200*time.Millisecond, func(c *trio) {
			c.bare, c.balanceEvery, c.balanceAfter = true, 100*time.Millisecond, 300*time.Millisecond
		})
		for range 12 {
			time.Sleep(time.Duration(600+rnd.IntN(400)) * time.Millisecond)
			switch rnd.IntN(4) {
			case 0, 1:
				m.move(rnd, "t", rnd.Int32N(m.parts))
			case 2:
				m.move(rnd, coordinator.TransactionsTopic, coordinator.ShardOf([]string{"a", "b"}[rnd.IntN(2)], 16))
			default:
				m.move(rnd, coordinator.VotedTopic, coordinator.ShardOf([]string{"2pc.a", "2pc.b"}[rnd.IntN(2)], 16))
			}
		}
		m.end()
	})
}

// A node dies, comes back after four seconds, and some seconds later leads again what it prefers.
func TestReadersGoOnWhenANodeDiesAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t, 900*time.Millisecond, func(c *trio) { c.bare = true })
		time.Sleep(time.Second)
		n := m.c.nodes[1]
		m.note("KILL node %d", n.id)
		m.setDown(n.id)
		n.kill()
		time.Sleep(4 * time.Second)
		n.start()
		n.ready()
		m.note("node %d is back", n.id)
		m.setDown(0)
		time.Sleep(8 * time.Second)
		m.end()
	})
}
