package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/engine/record"
)

// tally keeps the number and the sum of the values of a partition's records.
type tally struct {
	mu         sync.Mutex
	count, sum uint64
	restored   int
}

func (k *tally) Apply(b record.Batch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for r, err := range record.Records(b) {
		if err != nil {
			panic(err)
		}
		k.count++
		k.sum += uint64(len(r.Value))
	}
}

func (k *tally) Snapshot(dst []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, k.count), k.sum)
}

func (k *tally) Restore(state []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restored++
	if k.count, k.sum = 0, 0; state == nil {
		return nil
	}
	if len(state) != 16 {
		return fmt.Errorf("%d bytes", len(state))
	}
	k.count, k.sum = binary.BigEndian.Uint64(state), binary.BigEndian.Uint64(state[8:])
	return nil
}

func (k *tally) get() (count, sum uint64, restored int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count, k.sum, k.restored
}

// tallies keeps one for each replica of each node, and hears of leaderships.
type tallies struct {
	mu  sync.Mutex
	all map[string]*tally // by the partition's label, of the newest opening
	led map[*Partition]int
}

func (k *tallies) Open(p *Partition) Kept {
	t := &tally{}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all[p.label] = t
	return t
}

func (k *tallies) Led(p *Partition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.led[p]++
}

func (k *tallies) Heard(*Partition) {}

func (k *tallies) of(label string) *tally {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[label]
}

// keepers are those of the nodes in the order in which they start.
type keepers struct{ all []*tallies }

func (k *keepers) adapt(cfg *Config) {
	t := &tallies{all: map[string]*tally{}, led: map[*Partition]int{}}
	k.all = append(k.all, t)
	cfg.Keeper = t
}

func (c *cluster) createInternal(name string, configs map[string]string) {
	c.t.Helper()
	res, err := c.nodes[0].ctl.CreateTopics(c.t.Context(), []meta.TopicSpec{{Name: name, Partitions: 1, ReplicationFactor: int32(len(c.nodes)), Configs: configs, Internal: true}}, false)
	if err != nil || res[0].Err != nil {
		c.t.Fatal(res, err)
	}
	c.led(name, 1)
}

// What is kept of the records is the same on every replica: after a kill, after a clean stop, and on a new disk to which the log's beginning
// cannot be sent any more.
func TestWhatIsKeptOfRecordsSurvivesKillsRestartsAndNewDisks(t *testing.T) {
	k := &keepers{}
	c := startCluster(t, 3, k.adapt)
	c.createInternal("__t", map[string]string{"segment.bytes": "65536"})
	want, sum := uint64(0), uint64(0)
	write := func(batches int) {
		for range batches {
			c.produce("__t", 0, batchOf(&record.Producer{ID: 7, Sequence: int32(want)}, 3, 1000)) // a repeat is not counted twice
			want += 3
		}
	}
	agree := func(what string, k *tallies) *tally {
		t.Helper()
		c.await(what, func() bool {
			one := k.of("__t-0")
			if one == nil {
				return false
			}
			n, _, _ := one.get()
			return n >= want
		})
		n, s, _ := k.of("__t-0").get()
		if sum == 0 { // of the first one that is asked
			sum = s
		}
		if n != want || s != sum {
			t.Fatalf("%s: %d records of %d bytes, want %d of %d", what, n, s, want, sum)
		}
		return k.of("__t-0")
	}
	write(100)
	for i := range k.all {
		agree(fmt.Sprintf("node %d has everything", i+1), k.all[i])
	}
	write(50)
	sum = 0
	for i := range 3 {
		agree(fmt.Sprintf("node %d has more", i+1), k.all[i])
	}
	n := c.nodes[2]
	n.kill()
	n.start()
	n.ready()
	agree("after a kill", k.all[3])
	n.stop()
	n.start()
	n.ready()
	agree("after a stop", k.all[4])

	n.stop()
	n.wipe()
	c.await("the log's beginning is gone", func() bool {
		lead := c.leaderPartition("__t", 0)
		if lead == nil {
			return false
		}
		_, err := lead.DeleteRecords(t.Context(), lead.HighWatermark()-10)
		return err == nil && lead.log.FirstIndex() > 10
	})
	n.start()
	n.ready()
	if one := agree("on a new disk", k.all[5]); one != nil {
		if _, _, restored := one.get(); restored == 0 {
			t.Error("nothing was restored: the log's beginning was there still")
		}
	}
}

func TestAnAppendForAnotherTermIsRefusedAndALeaderCanBeConfirmed(t *testing.T) {
	k := &keepers{}
	c := startCluster(t, 1, k.adapt)
	c.createInternal("__t", nil)
	p, err := c.leading("__t", 0).m.Get("__t", 0)
	if err != nil {
		t.Fatal(err)
	}
	_, epoch, _ := p.Leader()
	try := func(epoch int32) error {
		done := make(chan AppendResult, 1)
		p.Append(&AppendRequest{Batch: plain(1), Acks: AcksAll, Epoch: epoch, Deadline: time.Now().Add(10 * time.Second), Done: func(r AppendResult) { done <- r }})
		return (<-done).Err
	}
	if err := try(epoch); err != nil {
		t.Fatal(err)
	}
	if err := try(epoch + 1); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("append for the next term: %v", err)
	}
	confirm := func(epoch int32) error {
		done := make(chan error, 1)
		p.Confirm(epoch, func(err error) { done <- err })
		return <-done
	}
	if err := confirm(epoch); err != nil {
		t.Fatal(err)
	}
	if err := confirm(epoch - 1); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("confirmed in an older term: %v", err)
	}
	if n := p.HighWatermark(); n != 1 {
		t.Fatalf("high watermark %d: a confirmation took an offset", n)
	}
	k.all[0].mu.Lock()
	heard := k.all[0].led[p]
	k.all[0].mu.Unlock()
	if heard == 0 {
		t.Error("the keeper did not hear that the replica leads")
	}
}

// Clients that use up the node's budget, by producing to partitions that have lost their majority say, do not hold up coordinators.
func TestInternalTopicsHaveABudgetOfTheirOwn(t *testing.T) {
	k := &keepers{}
	c := startCluster(t, 1, k.adapt)
	c.createInternal("__t", nil)
	c.create("orders", 1, 1, nil)
	c.led("orders", 1)
	m := c.nodes[0].m
	budget := m.shared.budget
	all := budget.limit - budget.Used()
	if !budget.take(all, time.Time{}, time.Now, nil) {
		t.Fatal("the budget was not free")
	}
	defer budget.give(all)
	append := func(topic string, patience time.Duration) error {
		p, err := m.Get(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan AppendResult, 1)
		p.Append(&AppendRequest{Batch: batchOf(nil, 1, 10), Acks: AcksAll, Deadline: time.Now().Add(patience), Done: func(r AppendResult) { done <- r }})
		return (<-done).Err
	}
	if err := append("orders", 50*time.Millisecond); !errors.Is(err, ErrTimeout) {
		t.Fatalf("a client's batch, though the budget is used up: %v", err)
	}
	if err := append("__t", time.Minute); err != nil {
		t.Fatalf("a coordinator's batch waits for clients: %v", err)
	}
}

// Who keeps a state may ask a replica whether it is elected before it ever served.
func TestAKeeperHearsOfEachReplicaAsSoonAsItIsOpen(t *testing.T) {
	k := &keepers{}
	c := startCluster(t, 3, k.adapt)
	c.createInternal("__t", nil)
	for i, n := range c.nodes {
		c.await(fmt.Sprintf("the keeper of node %d has heard of its replica", i+1), func() bool {
			p, err := n.m.Get("__t", 0)
			if err != nil {
				return false
			}
			k.all[i].mu.Lock()
			defer k.all[i].mu.Unlock()
			return k.all[i].led[p] > 0
		})
	}
}
