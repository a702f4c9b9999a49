package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

// TransactionsTopic is the internal topic of transactional ids.
const TransactionsTopic = "__transaction_state"

// Codes that a coordinator of transactions answers with beside those of the machine.
const (
	TxnLoadInProgress kafkatx.Code = 14
	TxnInvalidRequest kafkatx.Code = 42
	TxnIDNotFound     kafkatx.Code = 105
)

// defaultHold is how long a request waits for the end of a transaction that is in its way.
const defaultHold = 5 * time.Second

// TxnMeta is what transactions need of the control group; *meta.Controller is the real one.
type TxnMeta interface {
	Meta
	NextProducerID(ctx context.Context) (int64, error)
	CatchUp(ctx context.Context) error
}

// Participant is a partition that is led here; *partition.Partition is the real one.
type Participant interface {
	WriteMarker(m producer.Marker, deadline time.Time, done func(error))
}

// Node is what coordinators need of the transport between nodes; *rpc.Node is the real one.
type Node interface {
	// CallUp asks another node, and does not wait for one that is down: coordinators hear of who is to be asked instead.
	CallUp(ctx context.Context, to rpc.NodeID, method string, req []byte) ([]byte, error)
	Handle(method string, h rpc.Handler)
	// Tell sends a message that may be lost; Hear hands those of a method to h, which must not block. They do not block.
	Tell(to rpc.NodeID, method string, data []byte) error
	Hear(method string, h func(from rpc.NodeID, data []byte))
}

// TxnConfig is what Transactions are made of. Meta, Node, Self and Local are required.
type TxnConfig struct {
	Meta TxnMeta
	Node Node
	Self rpc.NodeID
	// Local finds a replica on this node; nil if there is none.
	Local func(topic string, number int32) Participant
	// Alive is the failure detector's view of a peer; nil: everybody is.
	Alive func(rpc.NodeID) bool
	// Nodes is how many nodes the cluster is meant to have; nil: those that are registered.
	Nodes func() int
	// Machine configures the machines; nil: kafkatx.Defaults.
	Machine *kafkatx.Config
	// Voted coordinates the transactional ids that it owns; nil: none commits by vote.
	Voted *Voted
	// Hold is how long a request waits for the end of a transaction that is in its way before it is answered CONCURRENT_TRANSACTIONS (5 s).
	Hold       time.Duration
	Failpoints *failpoint.Set
	Logger     *slog.Logger          // nil: silent
	Registerer prometheus.Registerer // nil: no metrics
	Now        func() time.Time      // nil: time.Now
}

func (c TxnConfig) withDefaults() TxnConfig {
	if c.Machine == nil {
		d := kafkatx.Defaults()
		c.Machine = &d
	}
	if c.Hold <= 0 {
		c.Hold = defaultHold
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
	return c
}

// Transactions are the transactional ids of the shards that this node leads, and whom partitions of this node ask about transactions,
// wherever they are coordinated. All methods may be called from any goroutine. Close ends every goroutine.
type Transactions struct {
	cfg       TxnConfig
	shards    *shards
	markers   *markers
	questions *questions[word]
	stats     *txnStats
	unhook    func()
	closed    sync.Once

	verifying atomic.Int64 // questions to other nodes under way
	wg        sync.WaitGroup
	mu        sync.Mutex // guards over
	over      bool
}

// NewTransactions prepares Transactions; shards come as their replicas open.
func NewTransactions(cfg TxnConfig) (*Transactions, error) {
	var missing []error
	for what, is := range map[string]bool{"Meta": cfg.Meta == nil, "Node": cfg.Node == nil, "Self": cfg.Self <= 0, "Local": cfg.Local == nil} {
		if is {
			missing = append(missing, errors.New("coordinator: "+what+" is missing"))
		}
	}
	if len(missing) > 0 {
		return nil, errors.Join(missing...)
	}
	x := &Transactions{cfg: cfg.withDefaults()}
	x.shards = newShards(kind{
		topic: TransactionsTopic, replicas: maxReplicas, points: x.cfg.Failpoints,
		keep:  func() kept { return newTxnTable() },
		begin: func(t *term) machines { return newTxnTerm(x, t) },
	}, cfg.Meta, x.cfg.Nodes, x.cfg.Logger, x.cfg.Now)
	x.stats = newTxnStats(x)
	if err := x.stats.register(cfg.Registerer); err != nil {
		return nil, err
	}
	x.markers = newMarkers(x)
	x.questions = x.newQuestions()
	x.questions.start()
	x.unhook = cfg.Meta.Subscribe(func(*meta.Image) { x.lookAgain() })
	cfg.Node.Handle(markersMethod, x.markers.serve)
	cfg.Node.Handle(verifyMethod, x.serveVerify)
	return x, nil
}

// Close unloads all shards: whoever waits is sent to another coordinator, as is everybody who asks from then on.
func (x *Transactions) Close() {
	x.closed.Do(func() {
		x.unhook()
		x.cfg.Node.Handle(markersMethod, nil)
		x.cfg.Node.Handle(verifyMethod, nil)
	})
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	x.questions.close()
	x.shards.close()
	x.markers.close()
	x.wg.Wait()
}

// Open is called when a replica of an internal topic opens; nil: the topic is none of ours.
func (x *Transactions) Open(topic string, number int32, p Partition) partition.Kept {
	return x.shards.open(topic, number, p)
}

// Led is called when leadership of a shard's replica began or ended. It does not block.
func (x *Transactions) Led(p Partition) {
	x.shards.led(p)
	x.questions.look()
}

// Heard is called when this node's replica of a partition heard something of who leads it. It does not block.
func (x *Transactions) Heard(string, int32) { x.lookAgain() }

func (x *Transactions) lookAgain() {
	x.markers.look()
	x.questions.look()
}

// Topic is the internal topic whose shards coordinate a transactional id.
func (x *Transactions) Topic(id string) string {
	if x.votes(id) {
		return VotedTopic
	}
	return TransactionsTopic
}

// Find returns the shard that coordinates a transactional id; its topic is made if it is not there yet. An error means that it cannot be made
// now.
func (x *Transactions) Find(ctx context.Context, id string) (t *meta.Topic, number int32, err error) {
	if x.votes(id) {
		return x.cfg.Voted.Find(ctx, id)
	}
	t, err = x.shards.ensure(ctx)
	if err != nil {
		return nil, 0, err
	}
	return t, ShardOf(id, len(t.Partitions)), nil
}

// Every request below is answered exactly once, by calling done from any goroutine, possibly before the method returns; done must not block.
// One that meets a transaction which is still ending waits for its end first, within TxnConfig.Hold. Request and Fresh of the events are
// filled in here.

// InitProducerID is InitProducerId with a transactional id.
func (x *Transactions) InitProducerID(id string, e kafkatx.InitProducerID, done func(kafkatx.Answer)) {
	if x.votes(id) {
		x.cfg.Voted.InitProducerID(id, e, done)
		return
	}
	x.ask(id, time.Time{}, done, func(r kafkatx.Request, fresh int64) kafkatx.Event {
		e.Request, e.Fresh = r, fresh
		return e
	})
}

// AddPartitions is AddPartitionsToTxn, and AddOffsetsToTxn with the partition of the group's offsets.
func (x *Transactions) AddPartitions(id string, e kafkatx.AddPartitions, done func(kafkatx.Answer)) {
	if x.votes(id) {
		x.cfg.Voted.AddPartitions(id, e, done)
		return
	}
	x.ask(id, time.Time{}, done, func(r kafkatx.Request, _ int64) kafkatx.Event {
		e.Request = r
		return e
	})
}

// EndTxn is EndTxn.
func (x *Transactions) EndTxn(id string, e kafkatx.EndTxn, done func(kafkatx.Answer)) {
	if x.votes(id) {
		x.cfg.Voted.EndTxn(id, e, done)
		return
	}
	x.ask(id, time.Time{}, done, func(r kafkatx.Request, fresh int64) kafkatx.Event {
		e.Request, e.Fresh = r, fresh
		return e
	})
}

// votes says that transactions of the id commit by vote.
func (x *Transactions) votes(id string) bool { return x.cfg.Voted != nil && x.cfg.Voted.Owns(id) }

// ask hands a request to the goroutine that decides about the transactional id. It is held until deadline at most; zero: no sooner than Hold.
func (x *Transactions) ask(id string, deadline time.Time, done func(kafkatx.Answer), event func(r kafkatx.Request, fresh int64) kafkatx.Event) {
	t, why := x.term(id)
	if t == nil {
		done(kafkatx.Answer{Code: kafkatx.Code(why), ProducerID: kafkatx.None, Epoch: kafkatx.None})
		return
	}
	x.askTerm(t, id, deadline, done, event)
}

func (x *Transactions) askTerm(t *txnTerm, id string, deadline time.Time, done func(kafkatx.Answer), event func(r kafkatx.Request, fresh int64) kafkatx.Event) {
	refuse := func(c kafkatx.Code) { done(kafkatx.Answer{Code: c, ProducerID: kafkatx.None, Epoch: kafkatx.None}) }
	if id == "" || !fits(id) {
		refuse(TxnInvalidRequest)
		return
	}
	until := x.cfg.Now().Add(x.cfg.Hold)
	if !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	if why := t.ask(func() { t.request(t.live(id), &asked{event: event, done: done, until: until}) }); why != codeNone {
		refuse(kafkatx.Code(why))
	}
}

// term returns the shard's term that decides about a transactional id, or why there is none here.
func (x *Transactions) term(id string) (*txnTerm, code) {
	t, why := x.shards.find(id)
	if t == nil {
		return nil, why
	}
	return t.machines.(*txnTerm), codeNone
}
