package partition

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/txn/field"
	"gopherlog/txn/twopc"
)

// doubtful waits until the leader of t-0 knows that it is in doubt, and tells since when: by the node's clock, which is the test's.
func (c *cluster) doubtful(when string) (since time.Time) {
	c.t.Helper()
	c.await("the leader is in doubt "+when, func() bool {
		p := c.leaderPartition("t", 0)
		if p == nil {
			return false
		}
		n, age := p.Doubt()
		since = time.Now().Add(-age)
		return n == 1
	})
	return since
}

// What was promised is in doubt since then, whoever leads: after a change of leader, after a restart of all nodes, and at a node with a new
// disk, which has the log from the others.
func TestTheAgeOfADoubtGoesOnWithTheNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := &ballotBox{}
		c := startCluster(t, 3, func(cfg *Config) { cfg.Ballot, cfg.BalanceAfter = box, 24*time.Hour })
		c.create("t", 1, 3, nil)
		c.led("t", 1)
		x := numbered(1, 0)
		var asked, seen time.Time // when the promise was asked for first, and when it was there
		c.await("the promise", func() bool {
			p := c.leaderPartition("t", 0)
			if p == nil {
				return false
			}
			if n, _ := p.Doubt(); n == 1 {
				seen = time.Now()
				return true
			}
			if asked.IsZero() {
				asked = time.Now().Truncate(time.Millisecond) // the log keeps milliseconds
			}
			p.Hear(votedID, twopc.Prepare{Txn: x})
			time.Sleep(time.Second)
			return false
		})
		promised := c.doubtful("at first")
		same := func(when string) {
			t.Helper()
			if since := c.doubtful(when); !since.Equal(promised) {
				t.Errorf("%s: in doubt since %v, promised at %v", when, since, promised)
			}
		}
		if promised.Before(asked) || promised.After(seen) {
			t.Errorf("in doubt since %v, asked for a promise at %v, which was there at %v", promised, asked, seen)
		}
		time.Sleep(6 * time.Second)
		c.bounce()
		same("after a change of leader")
		time.Sleep(6 * time.Second)
		for _, n := range c.nodes {
			n.kill()
		}
		for _, n := range c.nodes {
			n.start()
		}
		for _, n := range c.nodes {
			n.ready()
		}
		same("after a restart")
		time.Sleep(6 * time.Second)
		old := c.leading("t", 0)
		wiped := c.nodes[0]
		if wiped == old {
			wiped = c.nodes[1]
		}
		wiped.stop()
		wiped.wipe()
		wiped.start()
		wiped.ready()
		c.await("the wiped node knows", func() bool {
			p, err := wiped.m.Get("t", 0)
			if err != nil {
				return false
			}
			p.stateMu.Lock()
			defer p.stateMu.Unlock()
			st := p.standings.of[votedID]
			return st != nil && st.Promised && st.At != 0
		})
		c.await("the wiped node leads", func() bool {
			if c.leader("t", 0) == wiped {
				return true
			}
			if p, err := wiped.m.Get("t", 0); err == nil {
				p.group.Campaign()
			}
			time.Sleep(time.Second)
			return false
		})
		same("at a node with a new disk")
	})
}

// Promises and standings of a build that did not write down when: they count from the beginning of the leadership, and nothing is refused.
func TestAPromiseWithoutItsTimeCountsFromThisLeadership(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	undated := standings{of: map[string]*standing{votedID: {Standing: twopc.Standing{Txn: x, Promised: true}, at: 1}}}
	dated := undated.encode(nil)
	w := field.Writer{Flexible: true, Bytes: []byte{0, 0, 0, 0}}
	w.Int8(1)
	w.Length(1)
	w.Text(votedID)
	w.Int64(1)
	twopc.WriteTxn(&w, x)
	w.Int8(1) // promised, and then the timeout
	w.Int32(0)
	twopc.WriteTxn(&w, twopc.Txn{})
	binary.BigEndian.PutUint32(w.Bytes, uint32(len(w.Bytes)-4))
	if len(w.Bytes)+8 != len(dated) {
		t.Fatalf("%d bytes in version 1, %d in version 2", len(w.Bytes), len(dated))
	}
	got, rest, err := decodeStandings(w.Bytes)
	if err != nil || len(rest) != 0 || !bytes.Equal(got.encode(nil), dated) {
		t.Fatalf("%v, %d bytes left", err, len(rest))
	}
	future := bytes.Clone(dated)
	future[4] = standingsVersion + 1
	if _, _, err := decodeStandings(future); err == nil {
		t.Fatal("an unknown version was taken")
	}

	before := time.Now()
	v.stateMu.Lock()
	v.standings = got
	v.stateMu.Unlock()
	v.g.depose(2, servers(2)[1], false)
	v.g.lead(3)
	v.box.await(t, twopc.Query{Txn: x, From: "t-0"})
	eventually(t, "doubt", func() bool { n, _ := v.Doubt(); return n == 1 })
	if _, age := v.Doubt(); age > time.Since(before) {
		t.Fatalf("in doubt for %v", age)
	}
}

func TestASnapshotCarriesWhenAPromiseWasGiven(t *testing.T) {
	v, w := openVoter(t), openVoter(t)
	x := numbered(1, 0)
	v.begin(t, x, 0)
	before := time.Now().UnixMilli()
	v.prepare(t, x)
	if at := v.standing().At; at < before || at > time.Now().UnixMilli() {
		t.Fatalf("promised at %d, asked at %d", at, before)
	}
	if err := (machine{w.Partition}).Restore(machine{v.Partition}.Snapshot(), log.Base{Index: 9, Term: 1, NextOffset: 1}); err != nil {
		t.Fatal(err)
	}
	if w.standing() != v.standing() {
		t.Fatalf("%+v, was %+v", w.standing(), v.standing())
	}
	v.end(t, x, true)
	if at := v.standing().At; at != 0 {
		t.Fatalf("%d is left of what is over", at)
	}
}

func TestOnlyAnOldPromiseIsEndedByAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := openVoter(t)
		x := numbered(1, 0)
		v.begin(t, x, 0)
		decree := func(id string, epoch int16) error {
			done := make(chan error, 1)
			v.Decree(id, twopc.Identity{Producer: 7, Epoch: epoch}, false, func(err error) { done <- err })
			return <-done
		}
		time.Sleep(DecreeAfter)
		if err := decree(votedID, 0); !errors.Is(err, ErrInvalidTxnState) {
			t.Errorf("what was not promised: %v", err)
		}
		v.prepare(t, x)
		if d := v.Doubts(); len(d) != 1 || d[0].ID != votedID || d[0].Owner != x.Owner || d[0].Since == 0 {
			t.Errorf("in doubt: %+v", d)
		}
		if err := decree(votedID, 0); !errors.Is(err, ErrInvalidTxnState) {
			t.Errorf("what was promised just now: %v", err)
		}
		time.Sleep(DecreeAfter)
		for _, err := range []error{decree("2pc.other", 0), decree(votedID, 1)} {
			if !errors.Is(err, ErrInvalidTxnState) {
				t.Errorf("another's promise: %v", err)
			}
		}
		if err := decree(votedID, 0); err != nil {
			t.Fatal(err)
		}
		if kind, _ := v.marker(t, 1); kind != record.Abort || len(v.Doubts()) != 0 || v.LastStable() != 2 {
			t.Errorf("%v, in doubt: %+v, last stable offset %d", kind, v.Doubts(), v.LastStable())
		}
	})
}
