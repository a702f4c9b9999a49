package broker

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

// hop is how long anything between two nodes takes; nothing else takes time in the bubble, so what takes k × 2 hops on one node waited for k
// majorities, one after the other.
const hop = 20 * time.Millisecond

// settle is longer than anything goes on behind a request. The last of it is that followers are told what is committed, one to two seconds later: a
// request that takes one of the four places of those that are under way to a follower. What is then appended at once and finds no place waits for an
// answer, which comes at whatever time it was sent.
const settle = 3 * time.Second

// cost is what one transaction took.
type cost struct {
	add, produce, end int    // majorities waited for, one after the other: by AddPartitionsToTxn, by the first batches together, by EndTxn
	seen              int    // and after its answer, until readers of committed records see all of it
	opening           uint64 // records of the protocol before EndTxn
	ending            uint64 // and from EndTxn on, until everything has ended
}

func (c cost) String() string {
	return fmt.Sprintf("rounds %d + %d + %d + %d, records %d + %d", c.add, c.produce, c.end, c.seen, c.opening, c.ending)
}

// costs of a transaction over p partitions that commits, as docs/decisions has them.
var costs = []struct {
	id      string
	version producer.TransactionVersion
	of      func(p int) cost
}{
	// Verifying at version 0 is answered from memory: the partition judges by its term whether the coordinator can know.
	{"kafka", producer.Version0, func(p int) cost { return cost{1, 1, 1, 1, 1, uint64(p) + 2} }},
	{"kafka", producer.Version2, func(p int) cost { return cost{0, 2, 1, 1, uint64(p), uint64(p) + 2} }},
	// That the transaction has begun is written while the client goes on to its batches, which wait for it.
	{"2pc.voted", producer.Version0, func(p int) cost { return cost{0, 2, 2, 1, uint64(p) + 1, 2*uint64(p) + 2} }},
	{"2pc.voted", producer.Version2, func(p int) cost { return cost{0, 1, 2, 1, uint64(p), 2*uint64(p) + 2} }},
}

// Both protocols are counted on three real nodes whose only slow thing is the network, in virtual time: how many majorities are waited for one
// after the other, and how many entries Raft appends beside the data. Coordinator and partitions are led by one node, so that no question
// between nodes is counted as a round.
func TestWhatATransactionCostsInRoundsAndRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTrio(t, func(c *trio) { c.bare = true })
		r := newCounting(t, c)
		for _, want := range costs {
			for _, n := range []int{1, 2, 3, 8} {
				id := r.idOf(want.id)
				who := r.init(id)
				var got cost
				for range 2 { // the second and later ones of an epoch
					got, who = r.transact(id, who, want.version, r.parts[:n])
				}
				exact := want.of(n)
				if want.version == producer.Version2 && n > 1 {
					if got.produce == exact.produce+1 {
						got.produce-- // of records that one shard is given at once, some go out behind the first
					}
					if want.id == "kafka" && got.opening >= 1 {
						got.opening = max(got.opening, exact.opening) // and those that it is given in one turn are one entry
					}
				}
				if got != exact {
					t.Errorf("%s, version %d, %d partitions: %v, want %v", want.id, want.version, n, got, exact)
				}
			}
		}
		c.checkVotes()
		for _, n := range c.nodes {
			n.stop()
		}
	})
}

// What is measured in rounds begins when no follower is sent anything.
func TestNothingIsUnderWayOnceATransactionHasSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTrio(t, func(c *trio) { c.bare = true })
		r := newCounting(t, c)
		for _, of := range costs {
			id := r.idOf(of.id)
			r.transact(id, r.init(id), of.version, r.parts[:8]) // settles
			before := r.sent()
			if time.Sleep(2 * settle); r.sent() != before {
				t.Errorf("%s, version %d: %.0f requests were sent to followers after everything had settled", of.id, of.version, r.sent()-before)
			}
		}
		for _, n := range c.nodes {
			n.stop()
		}
	})
}

// Where transactions follow one behind the other, the end of one is in the same entry as what the coordinator writes next: the beginning of the
// next one, or its decision where the protocol writes no beginning.
func TestTheEndOfATransactionCostsNoEntryWhereAnotherFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTrio(t, func(c *trio) { c.bare = true })
		r := newCounting(t, c)
		const many = 6
		for _, want := range costs {
			for _, n := range []int{1, 2, 8} {
				id := r.idOf(want.id)
				_, who := r.transact(id, r.init(id), want.version, r.parts[:n])
				_, who = r.transact(id, who, want.version, r.parts[:n]) // the second and later ones of an epoch
				before := r.entries()
				for range many {
					who = r.hasten(id, who, want.version, r.parts[:n])
				}
				time.Sleep(settle)
				got, one := int(r.entries()-before), want.of(n)
				all := many*(int(one.opening+one.ending)+n-1) + 1 // data with it; the last has nobody to share with
				least := all
				if want.id == "kafka" && want.version == producer.Version2 {
					least -= many * (n - 1) // what is added in one turn is one entry
				}
				if got < least || got > all {
					t.Errorf("%s, version %d, %d partitions: %d transactions took %d entries, want %d to %d", want.id, want.version, n, many, got, least, all)
				}
			}
		}
		for _, n := range c.nodes {
			n.stop()
		}
	})
}

// Transactions of one producer that follow one behind the other take so many rounds each. At version 0 of Kafka's protocol the next one waits
// for the markers of the one before, at version 2 its beginning is on its way to the log meanwhile.
func TestHowManyRoundsTransactionsTakeOneBehindTheOther(t *testing.T) {
	serial := map[string]map[producer.TransactionVersion]int{
		"kafka":     {producer.Version0: 4, producer.Version2: 3},
		"2pc.voted": {producer.Version0: 5, producer.Version2: 4},
	}
	synctest.Test(t, func(t *testing.T) {
		c := newTrio(t, func(c *trio) { c.bare = true })
		r := newCounting(t, c)
		const many = 6
		for _, want := range costs {
			for _, n := range []int{1, 2, 8} {
				id := r.idOf(want.id)
				_, who := r.transact(id, r.init(id), want.version, r.parts[:n])
				who = r.hasten(id, who, want.version, r.parts[:n])
				start := time.Now()
				for range many {
					who = r.hasten(id, who, want.version, r.parts[:n])
				}
				took, one := time.Since(start), serial[want.id][want.version]
				t.Logf("%s, version %d, %d partitions: %.2f rounds each", want.id, want.version, n, float64(took)/float64(many*2*hop))
				if exact := time.Duration(many*one) * 2 * hop; n == 1 && took != exact {
					t.Errorf("%s, version %d, %d partitions: %d transactions took %v, want %v", want.id, want.version, n, many, took, exact)
				}
			}
		}
		for _, n := range c.nodes {
			n.stop()
		}
	})
}

// counting is one node's view of the cluster.
type counting struct {
	t     *testing.T
	c     *trio
	node  *trioNode
	parts []*partition.Partition // led by node
	ids   int
	next  map[string]int32 // sequence of a producer's next batch in a partition
}

func newCounting(t *testing.T, c *trio) *counting {
	r := &counting{t: t, c: c, node: c.nodes[0], next: map[string]int32{}}
	_, err := r.node.ctl.CreateTopics(within(t, time.Minute), []meta.TopicSpec{{Name: "t", Partitions: 30, ReplicationFactor: 3}}, false)
	r.must(err)
	for _, id := range []string{"kafka", "2pc.voted"} {
		_, _, err := r.node.txns.Find(within(t, time.Minute), id)
		r.must(err)
	}
	time.Sleep(5 * time.Second) // preferred leaders everywhere
	for i := range int32(30) {
		if p, err := r.node.parts.Get("t", i); err == nil && r.leads(p) {
			r.parts = append(r.parts, p)
		}
	}
	if len(r.parts) < 8 {
		t.Fatalf("node 1 leads %d partitions", len(r.parts))
	}
	for a := range c.nodes {
		for b := range c.nodes {
			if a != b {
				c.net.Delay(c.nodes[a].id, c.nodes[b].id, hop)
			}
		}
	}
	return r
}

func (r *counting) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *counting) leads(p *partition.Partition) bool {
	_, _, ready := p.Leader()
	return ready
}

// idOf is a transactional id that begins so and whose shard the node leads.
func (r *counting) idOf(prefix string) string {
	topic := coordinator.TransactionsTopic
	if strings.HasPrefix(prefix, "2pc.") {
		topic = coordinator.VotedTopic
	}
	for ; ; r.ids++ {
		id := fmt.Sprint(prefix, r.ids)
		if p, err := r.node.parts.Get(topic, coordinator.ShardOf(id, 16)); err == nil && r.leads(p) {
			r.ids++
			return id
		}
	}
}

// rounds is how many majorities something waited for.
func (r *counting) rounds(what string, do func(done func())) int {
	r.t.Helper()
	start, c := time.Now(), make(chan bool, 1)
	do(func() { c <- true })
	<-c
	took := time.Since(start)
	if took%(2*hop) > hop/10 {
		r.t.Errorf("%s took %v, no multiple of %v", what, took, 2*hop)
	}
	return int(took / (2 * hop))
}

// entries is how many entries Raft has appended to all groups.
func (r *counting) entries() (sum uint64) {
	for _, p := range r.node.parts.All() {
		sum += p.Status().LastIndex
	}
	return sum
}

// sent is how many requests of groups the node has sent to followers.
func (r *counting) sent() float64 {
	all, err := r.node.counts.Gather()
	r.must(err)
	for _, f := range all {
		if f.GetName() == "gopherlog_rpc_sent_parts_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	r.t.Fatal("rpc does not count what it sends")
	return 0
}

func (r *counting) init(id string) (who kafkatx.Answer) {
	c := make(chan kafkatx.Answer, 1)
	e := kafkatx.InitProducerID{ProducerID: kafkatx.None, Epoch: kafkatx.None, Timeout: time.Minute}
	r.node.txns.InitProducerID(id, e, func(a kafkatx.Answer) { c <- a })
	who = <-c
	if who.Code != kafkatx.OK {
		r.t.Fatalf("InitProducerId: %v", who)
	}
	return who
}

// transact runs a transaction with a batch in each partition, with time for everything to end before and after each step.
func (r *counting) transact(id string, who kafkatx.Answer, version producer.TransactionVersion, parts []*partition.Partition) (cost, kafkatx.Answer) {
	r.t.Helper()
	var out cost
	time.Sleep(settle)
	before := r.entries()
	if version < producer.Version2 {
		out.add = r.rounds("AddPartitionsToTxn", func(done func()) { r.add(id, who, parts, done) })
	}
	out.produce = r.rounds("Produce", func(done func()) { r.produce(id, who, version, parts, done) })
	time.Sleep(settle)
	out.opening = r.entries() - before - uint64(len(parts))
	before = r.entries()
	ends := make([]int64, len(parts)) // with the marker
	for i, p := range parts {
		ends[i] = p.EndOffset() + 1
	}
	out.end = r.rounds("EndTxn", func(done func()) { r.end(id, &who, version, done) })
	out.seen = r.rounds("what readers of committed records wait", func(done func()) {
		for i, p := range parts {
			for ; p.LastStable() < ends[i]; time.Sleep(hop / 100) {
				if p.EndOffset() > ends[i] {
					r.t.Fatalf("partition %d ends at %d, want %d", p.Number(), p.EndOffset(), ends[i])
				}
			}
		}
		done()
	})
	time.Sleep(settle)
	out.ending = r.entries() - before
	return out, who
}

// hasten runs a transaction as fast as it goes.
func (r *counting) hasten(id string, who kafkatx.Answer, version producer.TransactionVersion, parts []*partition.Partition) kafkatx.Answer {
	c := make(chan bool, 1)
	done := func() { c <- true }
	if version < producer.Version2 {
		r.add(id, who, parts, done)
		<-c
	}
	r.produce(id, who, version, parts, done)
	<-c
	r.end(id, &who, version, done)
	<-c
	return who
}

func (r *counting) add(id string, who kafkatx.Answer, parts []*partition.Partition, done func()) {
	e := kafkatx.AddPartitions{ProducerID: who.ProducerID, Epoch: who.Epoch}
	for _, p := range parts {
		e.Partitions = append(e.Partitions, kafkatx.Partition{Topic: p.Topic(), Number: p.Number()})
	}
	r.node.txns.AddPartitions(id, e, func(a kafkatx.Answer) {
		if a.Code != kafkatx.OK {
			r.t.Errorf("AddPartitionsToTxn: %v", a)
		}
		done()
	})
}

// produce sends a batch to each partition; done is called when all are answered.
func (r *counting) produce(id string, who kafkatx.Answer, version producer.TransactionVersion, parts []*partition.Partition, done func()) {
	left := make(chan bool, len(parts))
	for _, p := range parts {
		r.send(p, id, who, version, func() { left <- true })
	}
	go func() {
		for range parts {
			<-left
		}
		done()
	}()
}

// end commits; at version 2 the answer says who the producer is from then on.
func (r *counting) end(id string, who *kafkatx.Answer, version producer.TransactionVersion, done func()) {
	e := kafkatx.EndTxn{ProducerID: who.ProducerID, Epoch: who.Epoch, Commit: true, Version: kafkatx.Version(version)}
	r.node.txns.EndTxn(id, e, func(a kafkatx.Answer) {
		if a.Code != kafkatx.OK {
			r.t.Errorf("EndTxn: %v", a)
		}
		if version >= producer.Version2 {
			*who = a
		}
		done()
	})
}

func (r *counting) send(p *partition.Partition, id string, who kafkatx.Answer, version producer.TransactionVersion, done func()) {
	key := fmt.Sprint(p.Number(), " ", who.ProducerID, " ", who.Epoch)
	b := record.Builder{Transactional: true, Producer: &record.Producer{ID: who.ProducerID, Epoch: who.Epoch, Sequence: r.next[key]}}
	r.next[key]++
	b.Append(record.Record{Value: []byte(id)})
	p.Append(&partition.AppendRequest{
		Batch: b.Finish(), Acks: partition.AcksAll, TransactionalID: id, Version: version, Deadline: time.Now().Add(time.Minute),
		Done: func(a partition.AppendResult) {
			if a.Err != nil {
				r.t.Errorf("append: %v", a.Err)
			}
			done()
		},
	})
}
