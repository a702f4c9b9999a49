package partition

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/log"
)

const (
	// atOnce is how many partitions are visited or removed side by side.
	atOnce = 8
	// openAtOnce is how many are opened or closed: most of that is waiting for syncs, which the disk merges.
	openAtOnce = 64
)

// Manager makes this node carry the replicas that the cluster's image gives it, and moves leadership where it belongs.
//
// Goroutines, all ended by Close: follow opens and removes replicas; elect lets leaderless groups campaign; publish tells
// the control group about leaderships; duties returns leaderships to preferred replicas and reconciles membership;
// housekeep runs retention, expiry and the removal of files.
type Manager struct {
	cfg    Config
	node   rpc.NodeID
	net    network
	logger *slog.Logger
	shared shared

	mu     sync.RWMutex // guards slots, topics
	slots  map[slotKey]*slot
	topics map[string][]*Partition // by name and number; nil where this node serves none

	ready    atomic.Bool // the image is current: what it does not name does not exist
	draining atomic.Bool

	followKick, electKick, publishKick, trimKick, retainKick chan struct{}

	dirty    dirtySet // leadership changed
	unled    dirtySet // leadership may be undecided
	lookAll  atomic.Bool
	untidy   dirtySet // log start moved
	names    together // syncs of the directory that holds all partitions'
	overfull dirtySet // more is kept than retention.bytes asks for
	troubles troubles
	internal *Budget // produce budget of internal topics
	stop     chan struct{}
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	closing  sync.Once
	unhook   func()
}

// network is what the elector needs of *rpc.Node.
type network interface {
	Alive(id rpc.NodeID) bool
	ReportsDead(id rpc.NodeID) map[rpc.NodeID]bool
	Call(ctx context.Context, to rpc.NodeID, method string, request []byte) ([]byte, error)
	TimeoutNow(group rpc.GroupID, target rpc.ServerID) error
}

type slotKey struct {
	id     meta.TopicID
	number int32
}

// slot is one replica that this node has or should have.
type slot struct {
	key   slotKey
	topic *meta.Topic // of the image by which it was opened or last adjusted
	p     *Partition
	err   error // why it is not open
}

// dirtySet collects partitions for a goroutine that works them off.
type dirtySet struct {
	mu  sync.Mutex
	set map[*Partition]struct{}
}

func (d *dirtySet) add(p *Partition) {
	d.mu.Lock()
	if d.set == nil {
		d.set = make(map[*Partition]struct{})
	}
	d.set[p] = struct{}{}
	d.mu.Unlock()
}

func (d *dirtySet) take() map[*Partition]struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	set := d.set
	d.set = nil
	return set
}

// Open starts the manager and returns at once: replicas open as the image names them.
func Open(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	m := &Manager{
		cfg: cfg, node: cfg.Self.Node(), net: cfg.Node, logger: cfg.Logger,
		shared: shared{
			budget:    NewBudget(cfg.ProduceBudget),
			caches:    log.NewBudget(cfg.CacheBudget),
			committer: log.NewCommitter(cfg.SyncWorkers),
			sampler:   replica.NewSampler(),
			timings:   newTimings(),
		},
		slots:       make(map[slotKey]*slot),
		topics:      make(map[string][]*Partition),
		followKick:  make(chan struct{}, 1),
		electKick:   make(chan struct{}, 1),
		publishKick: make(chan struct{}, 1),
		trimKick:    make(chan struct{}, 1),
		retainKick:  make(chan struct{}, 1),
		internal:    NewBudget(cfg.ProduceBudget / internalShare),
		stop:        make(chan struct{}),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	if err := m.register(); err != nil {
		m.cancel()
		return nil, err
	}
	cfg.Node.Handle(methodGroups, m.answerGroups)
	cfg.Node.OnPeerChange(func(rpc.NodeID, bool) { m.lookAtAll() })
	cfg.Node.OnReport(func(rpc.NodeID) { m.lookAtAll() })
	for _, loop := range []func(){m.followLoop, m.awaitReady, m.electLoop, m.publishLoop, m.dutiesLoop, m.housekeepLoop, m.filesLoop} {
		m.wg.Add(1)
		go func() { defer m.wg.Done(); loop() }()
	}
	m.unhook = cfg.Meta.Subscribe(func(*meta.Image) { kick(m.followKick) })
	return m, nil
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Get returns the partition if this node carries a working replica of it, else ErrUnknownPartition, or why it is out of
// service.
func (m *Manager) Get(topic string, partition int32) (*Partition, error) {
	m.mu.RLock()
	parts := m.topics[topic]
	if partition >= 0 && int(partition) < len(parts) && parts[partition] != nil {
		p := parts[partition]
		m.mu.RUnlock()
		return p, nil
	}
	m.mu.RUnlock()
	return nil, m.whyNot(topic, partition)
}

// ByID is Get by topic id.
func (m *Manager) ByID(id meta.TopicID, partition int32) (*Partition, error) {
	m.mu.RLock()
	s := m.slots[slotKey{id, partition}]
	m.mu.RUnlock()
	switch {
	case s == nil:
		return nil, ErrUnknownPartition
	case s.p == nil:
		return nil, fmt.Errorf("%w: %w", ErrStorage, s.err)
	}
	return s.p, nil
}

// whyNot is asked by every request for a replica that is not here: it must not look at all slots.
func (m *Manager) whyNot(topic string, partition int32) error {
	t := m.cfg.Meta.Image().Topic(topic)
	if t == nil {
		return ErrUnknownPartition
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if s := m.slots[slotKey{t.ID, partition}]; s != nil && s.err != nil {
		return fmt.Errorf("%w: %w", ErrStorage, s.err)
	}
	return ErrUnknownPartition
}

// All returns the open partitions in no order.
func (m *Manager) All() []*Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*Partition, 0, len(m.slots))
	for _, s := range m.slots {
		if s.p != nil {
			all = append(all, s.p)
		}
	}
	return all
}

// Failed returns why replicas that this node should carry are out of service, by directory name.
func (m *Manager) Failed() map[string]error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	failed := make(map[string]error)
	for _, s := range m.slots {
		err := s.err
		if s.p != nil {
			err = s.p.group.Status().Failed
		}
		if err != nil {
			failed[dirName(s.topic.Name, s.key.number)] = err
		}
	}
	return failed
}

// Ready says whether every replica that the image gives this node is open or known to have failed, and why not yet.
func (m *Manager) Ready() (ok bool, reason string) {
	if !m.ready.Load() {
		return false, "the cluster's image is not current yet"
	}
	missing := 0
	img := m.cfg.Meta.Image()
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, t := range img.Topics {
		for n := range t.Partitions {
			if t.Partitions[n].Has(m.node) && m.slots[slotKey{t.ID, int32(n)}] == nil {
				missing++
			}
		}
	}
	if missing > 0 {
		return false, fmt.Sprintf("%d replicas are still being opened", missing)
	}
	return true, ""
}

// DirName is the directory of a partition below the data directory.
func (m *Manager) DirName(topic string, partition int32) string {
	return m.cfg.FS.PathJoin(topicsDir, dirName(topic, partition))
}

// internalShare is the part of the produce budget that internal topics have beside it: whatever clients make wait, coordinators go on.
const internalShare = 4

// budgetOf is the budget for waiting batches that a topic's partitions share.
func (m *Manager) budgetOf(t *meta.Topic) *Budget {
	if t.Internal {
		return m.internal
	}
	return m.shared.budget
}

// BudgetUsed is how many bytes of clients' batches are queued or in flight.
func (m *Manager) BudgetUsed() int64 { return m.shared.budget.Used() }

// Close closes all replicas and ends all goroutines. Leaderships are not handed over: Drain does that.
func (m *Manager) Close(ctx context.Context) error {
	m.closing.Do(func() {
		m.unhook()
		m.cfg.Node.Handle(methodGroups, nil)
		close(m.stop)
		m.cancel()
	})
	m.wg.Wait()
	m.unregister()
	all := m.All()
	errs := make([]error, len(all))
	parallel(openAtOnce, len(all), func(i int) { errs[i] = m.closePartition(ctx, all[i]) })
	m.mu.Lock()
	clear(m.slots)
	clear(m.topics)
	m.mu.Unlock()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) closePartition(ctx context.Context, p *Partition) error {
	err := p.close(ctx)
	if e := p.log.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("close partition %s: %w", p.label, err)
	}
	return nil
}

// parallel calls fn(0) … fn(n-1), at most width at a time, and waits.
func parallel(width, n int, fn func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(width, n) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				fn(i)
			}
		}()
	}
	wg.Wait()
}
