package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
	"gopherlog/txn/producer"
)

const (
	// retryEvery is how often replicas that could not be opened are tried again, damaged ones excepted.
	retryEvery = 5 * time.Second
	// closeTimeout bounds the end of one replica that is removed.
	closeTimeout = 10 * time.Second
)

var (
	// errNotYet: the image may be old, so nothing is created or set aside by it.
	errNotYet   = errors.New("the image is not current yet")
	errLost     = errors.New("the only copy was on a disk that this node no longer has")
	errVanished = errors.New("its directory has vanished: the replica must not vote without what it promised")
)

// awaitReady lets destructive steps go on once the image is current.
func (m *Manager) awaitReady() {
	for m.cfg.Meta.WaitReady(m.ctx) != nil {
		if !m.sleep(100 * time.Millisecond) {
			return
		}
	}
	m.ready.Store(true)
	kick(m.followKick)
}

// sleep waits; false when the manager closes.
func (m *Manager) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-m.stop:
		return false
	}
}

func (m *Manager) followLoop() {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	swept := false
	for {
		select {
		case <-m.stop:
			return
		case <-m.followKick:
		case <-retry.C:
		}
		img, ready := m.cfg.Meta.Image(), m.ready.Load()
		if ready {
			m.removeGone(img)
			if !swept {
				m.sweep(img)
				swept = true
			}
		}
		m.adjust(img)
		m.openMissing(img, ready)
	}
}

// removeGone closes and deletes replicas whose topic is no longer in the image, or that moved away.
func (m *Manager) removeGone(img *meta.Image) {
	var gone []*slot
	m.mu.Lock()
	for key, s := range m.slots {
		if pi := img.Partition(key.id, key.number); pi != nil && pi.Server(m.node) == m.cfg.Self {
			continue
		}
		if pi := img.Partition(key.id, key.number); pi != nil && pi.Has(m.node) && s.p == nil {
			continue // lost, and still said to be
		}
		gone = append(gone, s)
		delete(m.slots, key)
		m.unname(s)
	}
	m.mu.Unlock()
	parallel(atOnce, len(gone), func(i int) { m.remove(gone[i]) })
}

// unname takes a slot's partition out of topics. mu is held.
func (m *Manager) unname(s *slot) {
	parts := m.topics[s.topic.Name]
	if int(s.key.number) >= len(parts) || parts[s.key.number] == nil || parts[s.key.number] != s.p {
		return
	}
	parts = slices.Clone(parts)
	parts[s.key.number] = nil
	if slices.ContainsFunc(parts, func(p *Partition) bool { return p != nil }) {
		m.topics[s.topic.Name] = parts
	} else {
		delete(m.topics, s.topic.Name)
	}
}

func (m *Manager) remove(s *slot) {
	dir := m.dir(s.topic.Name, s.key.number)
	m.troubles.news("open "+dirName(s.topic.Name, s.key.number), nil) // nobody waits for it any more
	if s.p == nil {
		if id, err := readMetadata(m.cfg.FS, dir); err == nil && id == s.key.id {
			_ = m.discard(dir, s.key) // told; sweep tries again at the next start
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := m.closePartition(ctx, s.p); err != nil {
		m.logger.Warn("close a deleted partition", "partition", s.p.label, "error", err)
	}
	_ = m.discard(dir, s.key)
}

// discard makes a directory and everything kept for its group go away, in an order that survives a crash at each step. It tells of a
// failure once; the caller decides what that means.
func (m *Manager) discard(dir string, key slotKey) error {
	aside, err := setAside(m.cfg.FS, dir, key.id)
	if err == nil {
		err = replica.Forget(m.cfg.KV, groupID(key))
	}
	if err == nil {
		err = m.cfg.FS.RemoveAll(aside)
	}
	if news := m.troubles.news("discard "+dir, err); err != nil {
		if news {
			m.logger.Warn("remove a deleted partition", "directory", dir, "error", err)
		}
		return fmt.Errorf("remove what an older topic of that name left in %s: %w", dir, err)
	}
	m.logger.Info("partition removed", "directory", dir)
	return nil
}

// sweep runs once, when the image is current: directories of topics that it does not know go.
func (m *Manager) sweep(img *meta.Image) {
	root := m.cfg.FS.PathJoin(m.cfg.DataDir, topicsDir)
	names, err := m.cfg.FS.List(root)
	if err != nil {
		return // nothing was ever created
	}
	parallel(atOnce, len(names), func(i int) { m.sweepOne(img, m.cfg.FS.PathJoin(root, names[i]), names[i]) })
}

func (m *Manager) sweepOne(img *meta.Image, dir, name string) {
	if strings.HasSuffix(name, deletedSuffix) {
		if err := m.cfg.FS.RemoveAll(dir); err != nil {
			m.logger.Warn("remove a deleted partition", "directory", dir, "error", err)
		}
		return
	}
	id, err := readMetadata(m.cfg.FS, dir)
	if err != nil {
		m.logger.Warn("directory belongs to no partition and is left alone", "directory", dir, "error", err)
		return
	}
	number, ok := numberOf(name)
	if pi := img.Partition(id, number); ok && pi != nil && pi.Server(m.node) == m.cfg.Self {
		return
	}
	_ = m.discard(dir, slotKey{id, number})
}

func numberOf(name string) (int32, bool) {
	n, err := strconv.ParseInt(name[strings.LastIndexByte(name, '-')+1:], 10, 32)
	return int32(n), err == nil
}

// adjust hands changed topic configs and assignments to open partitions. What their logs need waits for the disk and is done without
// the lock.
func (m *Manager) adjust(img *meta.Image) {
	changed := m.adopt(img)
	parallel(atOnce, len(changed), func(i int) { changed[i].tune() })
}

// adopt returns the partitions whose logs must be told.
func (m *Manager) adopt(img *meta.Image) (changed []*Partition) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, s := range m.slots {
		t := img.TopicByID(s.key.id)
		if t == nil || t == s.topic || s.p == nil {
			continue
		}
		s.topic = t
		s.p.assigned.Store(&t.Partitions[s.key.number])
		if settings, err := m.settings(t); err == nil {
			was := s.p.settings.Swap(settings)
			if was.SegmentBytes != settings.SegmentBytes || was.SyncEach != settings.SyncEach {
				changed = append(changed, s.p)
			}
		}
	}
	return changed
}

// tune hands the settings to the log. Where that fails the replica is failing by itself, and says so.
func (p *Partition) tune() {
	s := p.settings.Load()
	if err := p.group.Tune(s.SegmentBytes, s.SyncEach); err != nil {
		p.logger.Warn("topic configs wait until the replica is opened again", "partition", p.label, "error", err)
	}
}

func (m *Manager) settings(t *meta.Topic) (*Settings, error) {
	parsed, err := meta.ParseTopicConfig(t.Configs, m.cfg.TopicDefaults)
	if err != nil {
		return nil, fmt.Errorf("configs of topic %s: %w", t.Name, err)
	}
	return &Settings{TopicConfig: parsed, ProducerExpiry: m.cfg.ProducerExpiry}, nil
}

type job struct {
	topic  *meta.Topic
	number int32
}

// openMissing opens what the image gives this node and is not open.
func (m *Manager) openMissing(img *meta.Image, ready bool) {
	var jobs []job
	m.mu.RLock()
	for _, t := range img.Topics {
		for n := range t.Partitions {
			if s := m.slots[slotKey{t.ID, int32(n)}]; t.Partitions[n].Has(m.node) && (s == nil || s.retriable()) {
				jobs = append(jobs, job{t, int32(n)})
			}
		}
	}
	m.mu.RUnlock()
	parallel(openAtOnce, len(jobs), func(i int) { m.openJob(jobs[i], ready) })
	if len(jobs) > 0 {
		m.lookAtAll()
	}
}

// retriable: it failed, and not because its data is damaged.
func (s *slot) retriable() bool {
	var damage *log.CorruptionError
	return s.p == nil && !errors.As(s.err, &damage) && !errors.Is(s.err, errVanished)
}

func (m *Manager) openJob(j job, ready bool) {
	select {
	case <-m.stop:
		return
	default:
	}
	p, err := m.open(j.topic, j.number, ready)
	if errors.Is(err, errNotYet) {
		return
	}
	s := &slot{key: slotKey{j.topic.ID, j.number}, topic: j.topic, p: p, err: err}
	label := dirName(j.topic.Name, j.number)
	switch news := m.troubles.news("open "+label, err); {
	case news && err != nil: // and not each time it is tried again
		m.logger.Error("replica is out of service", "partition", label, "error", err)
	case news:
		m.logger.Info("replica is in service again", "partition", label)
	}
	m.mu.Lock()
	m.slots[s.key] = s
	if p != nil {
		parts := slices.Clone(m.topics[j.topic.Name])
		if short := int(j.number) + 1 - len(parts); short > 0 {
			parts = append(parts, make([]*Partition, short)...)
		}
		parts[j.number] = p
		m.topics[j.topic.Name] = parts
	}
	m.mu.Unlock()
	if p != nil {
		p.watch()
		m.lookAt(p)
	}
}

func (m *Manager) dir(topic string, number int32) string {
	return m.cfg.FS.PathJoin(m.cfg.DataDir, topicsDir, dirName(topic, number))
}

func groupID(key slotKey) rpc.GroupID { return rpc.GroupID{Topic: key.id, Partition: key.number} }

// open opens one replica, creating it if it never was here.
func (m *Manager) open(t *meta.Topic, number int32, ready bool) (*Partition, error) {
	pi := &t.Partitions[number]
	if pi.Server(m.node) != m.cfg.Self {
		if !ready {
			return nil, errNotYet // an old image may name the disk that this one replaced
		}
		return nil, errLost
	}
	settings, err := m.settings(t)
	if err != nil {
		return nil, err
	}
	key := slotKey{t.ID, number}
	dir := m.dir(t.Name, number)
	fresh, err := m.prepare(dir, key, ready)
	if err != nil {
		return nil, err
	}
	l, err := m.openLog(dir, key, settings)
	if err != nil {
		return nil, err
	}
	if err := m.mark(key); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p := m.newPartition(t, number, l, settings)
	p.fresh = fresh
	g, err := replica.Open(replica.Config{
		ID: groupID(key), Self: m.cfg.Self, Bootstrap: pi.Founders,
		Log: l, KV: m.cfg.KV, Node: m.cfg.Node, FSM: machine{p},
		BootID: m.cfg.BootID, SyncEach: settings.SyncEach, NeedData: t.Internal,
		InflightBytes: PartitionBudget, Timers: m.cfg.Timers,
		Logger: m.logger, Sampler: m.shared.sampler, Observer: m.shared.timings, Failpoints: m.cfg.Failpoints, Now: m.cfg.Now,
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p.group = g
	return p, nil
}

func (m *Manager) newPartition(t *meta.Topic, number int32, l *log.Log, s *Settings) *Partition {
	p := &Partition{
		topic: t.Name, id: t.ID, number: number, label: dirName(t.Name, number),
		log: l, node: m.node, failpoints: m.cfg.Failpoints, logger: m.logger, now: m.cfg.Now,
		budget: m.budgetOf(t), disk: &m.shared.disk, own: NewBudget(PartitionBudget),
		changed:  func(p *Partition) { m.dirty.add(p); kick(m.publishKick); m.lookAt(p) },
		trimmed:  func(p *Partition) { m.untidy.add(p); kick(m.trimKick) },
		overfull: func(p *Partition) { m.overfull.add(p); kick(m.retainKick) },
		unled:    m.lookAt,
		heard:    func(*Partition) {},

		coordinators: m.cfg.Coordinators, ballot: m.cfg.Ballot, voted: *m.cfg.Voted, facts: m.cfg.Facts,
		producers: producer.New(), standings: newStandings(), opened: m.cfg.Now(),
	}
	p.settings.Store(s)
	p.assigned.Store(&t.Partitions[number])
	if m.cfg.Keeper != nil {
		p.heard = m.cfg.Keeper.Heard
	}
	if t.Internal && m.cfg.Keeper != nil {
		p.kept, p.led = m.cfg.Keeper.Open(p), m.cfg.Keeper.Led
	}
	return p
}

// prepare makes sure that dir is this partition's directory. It creates and sets aside only when the image is current.
func (m *Manager) prepare(dir string, key slotKey, ready bool) (fresh bool, err error) {
	fs := m.cfg.FS
	there, err := vfs.Exists(fs, dir)
	if err != nil {
		return false, err
	}
	if there {
		id, err := readMetadata(fs, dir)
		switch {
		case err == nil && id == key.id:
			return false, nil
		case !ready:
			return false, errNotYet
		case err == nil:
			if err := m.discard(dir, slotKey{id, key.number}); err != nil {
				return false, err
			}
		case errors.Is(err, errNoMetadata):
			if empty, e := isEmptyDir(fs, dir); e != nil || !empty {
				return false, errors.Join(fmt.Errorf("%s holds files: %w", dir, err), e)
			}
		default:
			return false, err
		}
	}
	if !ready {
		return false, errNotYet
	}
	return true, m.create(dir, key)
}

func (m *Manager) openLog(dir string, key slotKey, s *Settings) (*log.Log, error) {
	same, err := replica.SameBoot(m.cfg.KV, groupID(key), m.cfg.BootID)
	if err != nil {
		return nil, err
	}
	l, found, err := log.Open(log.Config{
		FS: m.cfg.FS, Dir: dir, Sidecar: replica.Sidecar(m.cfg.KV, groupID(key)),
		TopicID: key.id, Partition: key.number,
		SegmentBytes: s.SegmentBytes, SyncEach: s.SyncEach, SameBoot: same,
		Committer: m.shared.committer, CacheBudget: m.shared.caches,
		Failpoints: m.cfg.Failpoints, Observer: m.shared.timings, Logger: m.logger, Now: m.cfg.Now,
		Beside: besideSegment,
	})
	if err != nil {
		return nil, err
	}
	if found.CutBytes > 0 || found.CutEntries > 0 || len(found.Rebuilt) > 0 {
		m.logger.Info("log recovered", "directory", dir, "cut_bytes", found.CutBytes, "cut_entries", found.CutEntries, "rebuilt", found.Rebuilt)
	}
	return l, nil
}
