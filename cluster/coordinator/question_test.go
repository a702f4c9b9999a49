package coordinator

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

// replicaOf is a replica that has heard what the test says.
type replicaOf struct {
	id meta.TopicID

	mu    sync.Mutex
	knows lead
	ready bool
	w     map[*partition.Waiter]bool
}

func (p *replicaOf) TopicID() meta.TopicID { return p.id }

func (p *replicaOf) Leader() (rpc.NodeID, int32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.knows.node == meta.NoLeader {
		return meta.NoLeader, -1, false
	}
	return p.knows.node, p.knows.term, p.ready
}

func (p *replicaOf) Unsettled(int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unsettled()
}

func (p *replicaOf) unsettled() bool {
	return p.knows.node == meta.NoLeader || p.knows.node == 2 && !p.ready
}

func (p *replicaOf) AwaitLeader(w *partition.Waiter, _ int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsettled() {
		p.w[w] = true
		return true
	}
	return false
}

func (p *replicaOf) Unpark(w *partition.Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.w, w)
}

func (p *replicaOf) hears(l lead, ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.knows, p.ready = l, ready
	for w := range p.w {
		w.C <- struct{}{}
	}
	clear(p.w)
}

func newReplica(r *meta.Image, topic string) *replicaOf {
	return &replicaOf{id: r.Topic(topic).ID, knows: lead{node: meta.NoLeader}, w: map[*partition.Waiter]bool{}}
}

// informedShard is a shard of node 2, which does not lead it.
type informedShard struct {
	*fakeShard
	*replicaOf
}

func (p informedShard) Leader() (rpc.NodeID, int32, bool) { return p.replicaOf.Leader() }

// telephone counts the calls of a node.
type telephone struct {
	fakeTxnNode
	mu    sync.Mutex
	calls int
}

func (n *telephone) CallUp(ctx context.Context, to rpc.NodeID, method string, req []byte) ([]byte, error) {
	n.mu.Lock()
	n.calls++
	n.mu.Unlock()
	return n.fakeTxnNode.CallUp(ctx, to, method, req)
}

func (n *telephone) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls
}

// second is node 2 beside a rig's node 1.
func (r *txnRig) second(adapt ...func(*TxnConfig)) (*Transactions, *telephone) {
	r.t.Helper()
	n := &telephone{fakeTxnNode: fakeTxnNode{2, r.nodes}}
	cfg := TxnConfig{Meta: r.meta, Node: n, Self: 2, Local: func(string, int32) Participant { return nil }}
	for _, a := range adapt {
		a(&cfg)
	}
	x, err := NewTransactions(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(x.Close)
	return x, n
}

type timed struct {
	verdict
	at time.Time
}

func askAt(x partition.Coordinators, q partition.Question) chan timed {
	c := make(chan timed, 1)
	x.Verify(q, func(v partition.Verified, err error) { c <- timed{verdict{v, err}, time.Now()} })
	synctest.Wait()
	return c
}

func questionOf(a kafkatx.Answer) partition.Question {
	return partition.Question{TransactionalID: "x", ProducerID: a.ProducerID, Epoch: a.Epoch, Topic: "t", Number: 0}
}

// answeredNow checks that what was asked is answered in this instant of virtual time.
func answeredNow(t *testing.T, c chan timed) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-c:
		if got.err != nil || !got.v.Ongoing || !got.at.Equal(time.Now()) {
			t.Errorf("%+v, at %v, now it is %v", got.verdict, got.at, time.Now())
		}
	default:
		t.Error("not answered")
	}
}

func unansweredFor(t *testing.T, c chan timed, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	select {
	case got := <-c:
		t.Fatalf("answered: %+v", got.verdict)
	default:
	}
}

// Nobody leads the coordinator's shard for a while. The batch behind the question goes on in the moment in which somebody does.
func TestAQuestionWaitsUntilItsCoordinatorIsNamed(t *testing.T) {
	for _, by := range []string{"the image", "the own replica"} {
		synctest.Test(t, func(t *testing.T) {
			r := newTxnRig(t)
			a := r.open("x", 0)
			r.meta.lead(TransactionsTopic, 0, meta.NoLeader)
			x2, calls := r.second()
			own := informedShard{&fakeShard{}, newReplica(r.meta.Image(), TransactionsTopic)}
			x2.Open(TransactionsTopic, 0, own)
			x2.Led(own)
			c := askAt(x2, questionOf(a))
			unansweredFor(t, c, 1003*time.Millisecond)
			if n := calls.count(); n != 0 {
				t.Errorf("%d calls although nobody is known to lead", n)
			}
			if by == "the image" {
				r.meta.elect(TransactionsTopic, 0, 1, 1)
			} else {
				own.hears(lead{1, 1}, false)
				x2.Heard(TransactionsTopic, 0)
			}
			answeredNow(t, c)
			if n := calls.count(); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// The question comes to the node that was elected before that serves.
func TestACoordinatorThatLoadsHoldsQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		a := r.open("x", 0)
		r.lose()
		r.part.change(func(p *fakeShard) { p.elected = true })
		x2, calls := r.second()
		here, there := askAt(r.x, questionOf(a)), askAt(x2, questionOf(a))
		unansweredFor(t, here, 1003*time.Millisecond)
		unansweredFor(t, there, 0)
		r.lead(2)
		answeredNow(t, here)
		answeredNow(t, there)
		if n := calls.count(); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

// Who knows a marker of a coordinator's successor waits for that one.
func TestAQuestionIsNotPutToACoordinatorThatWasDeposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		a := r.open("x", 0)
		q := questionOf(a)
		q.MinTerm = 5
		x2, calls := r.second()
		here, there := askAt(r.x, q), askAt(x2, q)
		unansweredFor(t, here, time.Second)
		unansweredFor(t, there, 0)
		r.lead(5)
		answeredNow(t, here)
		r.meta.elect(TransactionsTopic, 0, 1, 5)
		answeredNow(t, there)
		if n := calls.count(); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

// A call that breaks is no news of a leader: it is repeated after pauses, until another one leads.
func TestACoordinatorThatIsOutOfReachIsAskedAgainAfterPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t, func(c *TxnConfig) { c.Hold = time.Minute })
		a := r.open("x", 0)
		x2, calls := r.second(func(c *TxnConfig) { c.Hold = time.Minute })
		r.meta.elect(TransactionsTopic, 0, 3, 7) // nobody is there
		c := askAt(x2, questionOf(a))
		unansweredFor(t, c, 10*time.Second)
		if n := calls.count(); n < 2 || n > 100 {
			t.Errorf("%d calls in 10 s", n)
		}
		r.meta.elect(TransactionsTopic, 0, 1, 8)
		answeredNow(t, c)
	})
}

func TestAQuestionWaitsForACoordinatorThatIsDownUntilItIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		down := true
		r := newTxnRig(t)
		a := r.open("x", 0)
		x2, calls := r.second(func(c *TxnConfig) {
			c.Alive = func(rpc.NodeID) bool {
				mu.Lock()
				defer mu.Unlock()
				return !down
			}
		})
		c := askAt(x2, questionOf(a))
		unansweredFor(t, c, time.Second)
		if n := calls.count(); n != 0 {
			t.Errorf("%d calls to a node that is down", n)
		}
		mu.Lock()
		down = false
		mu.Unlock()
		time.Sleep(lastAskAgain)
		synctest.Wait()
		if got := <-c; got.err != nil || !got.v.Ongoing {
			t.Errorf("%+v", got.verdict)
		}
	})
}

func TestAQuestionIsGivenUpAtItsDeadlineAndTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		a := r.open("x", 0)
		r.lose()
		r.x.questions.most = 5
		q := questionOf(a)
		start := time.Now()
		limit := askAt(r.x, q)
		q.Deadline = start.Add(time.Second)
		deadline := askAt(r.x, q)
		for c, want := range map[chan timed]time.Duration{limit: defaultHold, deadline: time.Second} {
			if got := <-c; !errors.Is(got.err, partition.ErrNotCoordinator) || got.at.Sub(start) != want {
				t.Errorf("%v after %v, want it after %v", got.err, got.at.Sub(start), want)
			}
		}
		left := askAt(r.x, questionOf(a))
		var more chan timed
		for range r.x.questions.most {
			more = askAt(r.x, questionOf(a))
		}
		if got := <-more; !errors.Is(got.err, partition.ErrNotCoordinator) {
			t.Errorf("more than may wait: %v", got.err)
		}
		r.x.Close()
		if got := <-left; !errors.Is(got.err, partition.ErrNotCoordinator) {
			t.Errorf("%v", got.err)
		}
		if got := <-askAt(r.x, questionOf(a)); !errors.Is(got.err, partition.ErrNotCoordinator) {
			t.Errorf("asked behind the end: %v", got.err)
		}
	})
}

func TestAQuestionAboutAVotedTransactionWaitsUntilItsCoordinatorIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newVotedRig(t)
		far := newVotedRig(t, func(c *VotedConfig) { c.Self = 2 })
		far.lose()
		far.calls.to = r.calls
		who := r.begin(0)
		q := questionOf(who)
		q.TransactionalID = votedOne
		far.meta.lead(VotedTopic, 0, meta.NoLeader)
		c := askAt(far.v, q)
		unansweredFor(t, c, time.Second)
		far.meta.lead(VotedTopic, 0, 1)
		answeredNow(t, c)
	})
}

// Its coordinator's node hears of the leader of a participant from Raft, before the control group has published it.
func TestAMessageOfAVoteGoesToWhomTheOwnReplicaNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var own *informedVoter
		r := newVotedRig(t, func(c *VotedConfig) { c.Local = func(string, int32) Voter { return own } })
		own = &informedVoter{r.voters[0], newReplica(r.meta.Image(), "t")}
		far := newVotedRig(t, func(c *VotedConfig) { c.Self = 2 })
		far.lose()
		r.calls.to = far.calls
		r.meta.lead("t", 0, meta.NoLeader)
		end := r.end(r.begin(0), true, kafkatx.Version0)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(far.voters[0].words()); n != 0 {
			t.Fatalf("%d messages although nobody leads", n)
		}
		far.voters[0].change(func() { far.voters[0].silent = true })
		own.hears(lead{2, 7}, false)
		r.v.Heard("t", 0)
		synctest.Wait()
		if words := far.voters[0].words(); len(words) != 1 {
			t.Fatalf("%q", words)
		}
		own.hears(lead{2, 8}, false) // elected anew: what was said before may be lost
		r.v.Heard("t", 0)
		r.v.Heard("t", 0)
		synctest.Wait()
		if n := len(far.voters[0].words()); n < 2 {
			t.Errorf("%d messages", n)
		}
		r.v.Report(votedOne, twopc.Vote{Txn: r.open(), From: "t-0", Yes: true})
		r.must(end, kafkatx.OK)
	})
}

type informedVoter struct {
	*fakeVoter
	*replicaOf
}
