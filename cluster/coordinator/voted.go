package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

// VotedTopic is the internal topic of transactional ids that commit by vote.
const VotedTopic = "__two_phase_commit"

// UnknownProducerID is what clients of a voted transaction are told that cannot commit any more: all of them go on by aborting it.
const UnknownProducerID kafkatx.Code = 59

// Voter is a partition that is led here, as coordinators of voted transactions see it; *partition.Partition is the real one.
type Voter interface {
	// Hear hands a message to the participant. It may be lost. It does not block.
	Hear(transactionalID string, m twopc.Message)
}

// VotedConfig is what Voted is made of. Meta, Node, Self and Local are required.
type VotedConfig struct {
	Meta TxnMeta
	Node Node
	Self rpc.NodeID
	// Local finds a replica on this node; nil if there is none.
	Local func(topic string, number int32) Voter
	// Nudge makes the participants of this node that are in doubt ask again: a coordinator may have moved. nil: they ask in their own time.
	Nudge func()
	// Alive is the failure detector's view of a peer; nil: everybody is.
	Alive func(rpc.NodeID) bool
	// Nodes is how many nodes the cluster is meant to have; nil: those that are registered.
	Nodes func() int
	// Prefix begins the transactional ids; empty: none is voted on.
	Prefix twopc.Prefix
	// Replicas of each shard, if there are as many nodes, from the moment when the topic is made: 3, or 1 for the protocol of the textbooks,
	// whose participants wait in doubt until their coordinator returns. A lone replica syncs what it decides.
	Replicas int
	// Machine configures the machines; nil: twopc.Defaults.
	Machine *twopc.Config
	// MaxTimeout is the longest timeout of a transaction that clients may ask for (15 minutes).
	MaxTimeout time.Duration
	// Expiry is after how long without a change a transactional id is forgotten (7 days).
	Expiry time.Duration
	// SweepEvery is how often they are looked at (10 minutes).
	SweepEvery time.Duration
	// Hold is how long a request waits for the end of a transaction that is in its way before it is answered CONCURRENT_TRANSACTIONS (5 s).
	Hold       time.Duration
	Facts      *partition.Facts // nil: none are kept
	Failpoints *failpoint.Set
	Logger     *slog.Logger          // nil: silent
	Registerer prometheus.Registerer // nil: no metrics
	Now        func() time.Time      // nil: time.Now
}

func (c VotedConfig) withDefaults() VotedConfig {
	if c.Machine == nil {
		d := twopc.Defaults()
		c.Machine = &d
	}
	if c.Replicas <= 0 {
		c.Replicas = maxReplicas
	}
	for _, d := range []struct {
		of *time.Duration
		is time.Duration
	}{{&c.MaxTimeout, 15 * time.Minute}, {&c.Expiry, 7 * 24 * time.Hour}, {&c.SweepEvery, defaultSweepEvery}, {&c.Hold, defaultHold}} {
		if *d.of <= 0 {
			*d.of = d.is
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Nodes == nil {
		c.Nodes = func() int { return 0 }
	}
	if c.Alive == nil {
		c.Alive = func(rpc.NodeID) bool { return true }
	}
	if c.Nudge == nil {
		c.Nudge = func() {}
	}
	return c
}

// Voted are the transactional ids that commit by vote, of the shards that this node leads, and the way of this node's participants to their
// coordinators. All methods may be called from any goroutine. Close ends every goroutine.
type Voted struct {
	cfg       VotedConfig
	shards    *shards
	post      *postOffice
	questions *questions[twopc.Answer]
	stats     *votedStats
	unhook    func()
	closed    sync.Once

	ends atomic.Int64 // commits that were asked for; only a planted fault counts them

	imageMu sync.Mutex // guards known
	known   *meta.Image
}

// NewVoted prepares Voted; shards come as their replicas open.
func NewVoted(cfg VotedConfig) (*Voted, error) {
	var missing []error
	for what, is := range map[string]bool{"Meta": cfg.Meta == nil, "Node": cfg.Node == nil, "Self": cfg.Self <= 0, "Local": cfg.Local == nil} {
		if is {
			missing = append(missing, errors.New("coordinator: "+what+" is missing"))
		}
	}
	if len(missing) > 0 {
		return nil, errors.Join(missing...)
	}
	v := &Voted{cfg: cfg.withDefaults()}
	k := kind{
		topic: VotedTopic, replicas: v.cfg.Replicas, points: v.cfg.Failpoints,
		keep:  func() kept { return newVotedTable() },
		begin: func(t *term) machines { return newVotedTerm(v, t) },
	}
	if v.cfg.Replicas == 1 { // or a power cut would forget a decision that participants act on
		k.configs = map[string]string{"flush.messages": "1"}
	}
	v.shards = newShards(k, cfg.Meta, v.cfg.Nodes, v.cfg.Logger, v.cfg.Now)
	v.post = newPostOffice(v)
	v.stats = newVotedStats()
	if err := v.stats.register(cfg.Registerer); err != nil {
		return nil, err
	}
	v.questions = v.newQuestions()
	v.questions.start()
	v.known = cfg.Meta.Image()
	v.unhook = cfg.Meta.Subscribe(v.onImage)
	cfg.Node.Hear(voteMethod, v.post.serve)
	cfg.Node.Handle(askMethod, v.serveVerify)
	return v, nil
}

// Close unloads all shards: whoever waits is sent to another coordinator, as is everybody who asks from then on.
func (v *Voted) Close() {
	v.closed.Do(func() {
		v.unhook()
		v.cfg.Node.Hear(voteMethod, nil)
		v.cfg.Node.Handle(askMethod, nil)
	})
	v.questions.close()
	v.shards.close()
	v.post.close()
}

// Owns decides by the prefix whether transactions of the id are voted on.
func (v *Voted) Owns(transactionalID string) bool { return v.cfg.Prefix.Owns(transactionalID) }

// Open is called when a replica of an internal topic opens; nil: the topic is none of ours.
func (v *Voted) Open(topic string, number int32, p Partition) partition.Kept {
	k := v.shards.open(topic, number, p)
	if l, ours := k.(*late); ours {
		t := l.kept.(*votedTable)
		t.facts, t.topic, t.number = v.cfg.Facts, topic, number
	}
	return k
}

// Led is called when leadership of a shard's replica began or ended. It does not block.
func (v *Voted) Led(p Partition) {
	v.shards.led(p)
	v.questions.look()
}

// Heard is called when this node's replica of a partition heard something of who leads it: whoever waits for that partition asks or tells again
// at once, and does not wait until the image has it. It does not block.
func (v *Voted) Heard(topic string, number int32) {
	t := v.cfg.Meta.Image().Topic(topic)
	if topic == VotedTopic {
		v.questions.look()
	}
	if to := v.partitionLead(t, number); to.node == meta.NoLeader || to == leadOf(v.cfg.Self, t, number, nil) {
		return // nobody leads, or the image says the same
	}
	if topic == VotedTopic {
		v.cfg.Nudge()
		return
	}
	all, _ := v.shards.terms()
	for _, t := range all {
		m := t.machines.(*votedTerm)
		if m.news.add(partition.MemberOf(topic, number)) {
			t.post(func() { m.tellAgain(m.news.take()) })
		}
	}
}

// partitionLead is who leads a partition, by the image or by what the replica of this node has heard.
func (v *Voted) partitionLead(t *meta.Topic, number int32) lead {
	if t == nil {
		return lead{node: meta.NoLeader}
	}
	return leadOf(v.cfg.Self, t, number, v.cfg.Local(t.Name, number))
}

// Find returns the shard that coordinates a transactional id; its topic is made if it is not there yet. An error means that it cannot be made
// now.
func (v *Voted) Find(ctx context.Context, id string) (t *meta.Topic, number int32, err error) {
	t, err = v.shards.ensure(ctx)
	if err != nil {
		return nil, 0, err
	}
	return t, ShardOf(id, len(t.Partitions)), nil
}

// Report carries a participant's message to the coordinator of the transactional id. It may be lost. It does not block.
func (v *Voted) Report(transactionalID string, m twopc.Message) {
	v.post.send(letter{id: transactionalID, message: m, up: true})
}

// onImage makes those ask or tell again at once who wait for a partition that has another leader now. It does not block.
func (v *Voted) onImage(image *meta.Image) {
	v.imageMu.Lock()
	old := v.known
	v.known = image
	v.imageMu.Unlock()
	if moved(old.Topic(VotedTopic), image.Topic(VotedTopic)) {
		v.cfg.Nudge()
	}
	v.questions.look()
	all, _ := v.shards.terms()
	for _, t := range all {
		t.post(func() { t.machines.(*votedTerm).lookAgain(old, image) })
	}
}

// moved says that a partition of the topic has got a leader that it did not have, or the same one in a later term.
func moved(old, now *meta.Topic) bool {
	if now == nil || old == now {
		return false
	}
	for i := range now.Partitions {
		if leaderMoved(old, now, int32(i)) {
			return true
		}
	}
	return false
}

func leaderMoved(old, now *meta.Topic, number int32) bool {
	to := leadOf(meta.NoLeader, now, number, nil)
	return to.node != meta.NoLeader && to != leadOf(meta.NoLeader, old, number, nil)
}

// memberPartition is the partition that a participant's name stands for.
func memberPartition(m twopc.Member) (topic string, number int32, ok bool) {
	at := strings.LastIndexByte(string(m), '-')
	if at < 0 {
		return "", 0, false
	}
	n, err := strconv.ParseInt(string(m[at+1:]), 10, 32)
	return string(m[:at]), int32(n), err == nil && n >= 0
}

// Requests are answered exactly once, by calling done from any goroutine, possibly before the method returns; done must not block. One that
// meets a transaction which is still ending waits for its end first, within VotedConfig.Hold. Their events are those of Kafka's protocol:
// clients do not know which one they speak. Request and Fresh are filled in here.

// InitProducerID is InitProducerId with a transactional id.
func (v *Voted) InitProducerID(id string, e kafkatx.InitProducerID, done func(kafkatx.Answer)) {
	if e.Timeout <= 0 || e.Timeout > v.cfg.MaxTimeout {
		done(refusal(kafkatx.InvalidTransactionTimeout))
		return
	}
	claim := twopc.Identity{Producer: e.ProducerID, Epoch: e.Epoch}
	v.ask(id, &paper{
		until: v.patience(time.Time{}), takesID: true, done: func(a twopc.Answer) { done(answerOf(a, true)) },
		event: func(r twopc.Request, fresh int64) twopc.Event {
			return twopc.Init{Request: r, Claim: claim, Timeout: e.Timeout, Fresh: fresh}
		},
	})
}

// AddPartitions is AddPartitionsToTxn, and AddOffsetsToTxn with the partition of the group's offsets.
func (v *Voted) AddPartitions(id string, e kafkatx.AddPartitions, done func(kafkatx.Answer)) {
	members := make([]twopc.Member, len(e.Partitions))
	for i, p := range e.Partitions {
		members[i] = partition.MemberOf(p.Topic, p.Number)
	}
	v.ask(id, &paper{
		until: v.patience(time.Time{}), done: func(a twopc.Answer) { done(answerOf(a, false)) },
		event: func(r twopc.Request, _ int64) twopc.Event {
			return twopc.Add{Request: r, Owner: twopc.Identity{Producer: e.ProducerID, Epoch: e.Epoch}, Members: members, Version: int8(e.Version)}
		},
	})
}

// EndTxn is EndTxn.
func (v *Voted) EndTxn(id string, e kafkatx.EndTxn, done func(kafkatx.Answer)) {
	raises := e.Version >= kafkatx.Version2
	v.ask(id, &paper{
		until: v.patience(time.Time{}), takesID: raises, commits: e.Commit, done: func(a twopc.Answer) { done(answerOf(a, raises)) },
		event: func(r twopc.Request, fresh int64) twopc.Event {
			owner := twopc.Identity{Producer: e.ProducerID, Epoch: e.Epoch}
			return twopc.End{Request: r, Owner: owner, Commit: e.Commit, Version: int8(e.Version), Fresh: fresh}
		},
	})
}

// patience is until when a request is held.
func (v *Voted) patience(deadline time.Time) time.Time {
	until := v.cfg.Now().Add(v.cfg.Hold)
	if !deadline.IsZero() && deadline.Before(until) {
		return deadline
	}
	return until
}

// ask hands a request to the goroutine that decides about the transactional id.
func (v *Voted) ask(id string, a *paper) {
	if id == "" || !fits(id) {
		a.refuse(TxnInvalidRequest)
		return
	}
	t, why := v.shards.find(id)
	if t == nil {
		a.refuse(kafkatx.Code(why))
		return
	}
	m := t.machines.(*votedTerm)
	if why := t.ask(func() { m.request(m.live(id), a) }); why != codeNone {
		a.refuse(kafkatx.Code(why))
	}
}

// answerOf is an answer in Kafka's words. owner: the request is answered with a producer id and epoch.
func answerOf(a twopc.Answer, owner bool) kafkatx.Answer {
	out := refusal(codeOfResult(a.Result))
	if a.Result == twopc.Done && owner {
		out.ProducerID, out.Epoch = a.Owner.Producer, a.Owner.Epoch
	}
	return out
}

func refusal(c kafkatx.Code) kafkatx.Answer {
	return kafkatx.Answer{Code: c, ProducerID: kafkatx.None, Epoch: kafkatx.None}
}

// codeOfResult is Kafka's code for what a request came to. Results from notACode on are codes already.
func codeOfResult(r twopc.Result) kafkatx.Code {
	switch r {
	case twopc.Done:
		return kafkatx.OK
	case twopc.Busy:
		return kafkatx.ConcurrentTransactions
	case twopc.Aborted, twopc.Stale:
		return UnknownProducerID
	case twopc.Fenced:
		return kafkatx.ProducerFenced
	case twopc.BadState:
		return kafkatx.InvalidTxnState
	case twopc.BadID:
		return kafkatx.InvalidProducerIDMapping
	}
	if r >= asCode {
		return kafkatx.Code(r - asCode)
	}
	return kafkatx.NotCoordinator
}

// asCode is added to codes that no machine chose, to travel in the place of a result.
const asCode twopc.Result = 100
