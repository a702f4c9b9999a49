package partition

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// controlTimeout bounds the replication of one control entry that nobody waits for.
	controlTimeout = 5 * time.Second
	// diskEvery is how often the free space is looked at.
	diskEvery = time.Second
)

// filesLoop removes files below log starts that moved, and looks how full the disk is. It waits for no commit.
func (m *Manager) filesLoop() {
	look := time.NewTicker(diskEvery)
	defer look.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-look.C:
			m.shared.disk.look(m.cfg.FS, m.cfg.DataDir)
		case <-m.trimKick:
			for p := range m.untidy.take() {
				m.trimFiles(p)
			}
		}
	}
}

// housekeepLoop lets leaders propose what retention and expiry want gone: every RetentionEvery, and at once where
// retention.bytes is exceeded, so that a topic under load keeps what it is asked to keep and no more.
func (m *Manager) housekeepLoop() {
	tick := time.NewTicker(m.cfg.RetentionEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-m.retainKick:
			due := slices.Collect(maps.Keys(m.overfull.take()))
			parallel(atOnce, len(due), func(i int) { m.retain(due[i], time.Time{}) })
		case <-tick.C:
			all := m.All()
			parallel(atOnce, len(all), func(i int) { m.tidy(all[i]) })
		}
	}
}

// retain waits for the trim entry, if one is due, but not for the files.
func (m *Manager) retain(p *Partition, now time.Time) {
	ctx, cancel := context.WithTimeout(m.ctx, controlTimeout)
	defer cancel()
	if err := p.retain(ctx, now, m.mayTrim); err != nil {
		m.logger.Debug("retention", "partition", p.label, "error", err)
	}
}

func (m *Manager) tidy(p *Partition) {
	now := m.cfg.Now()
	m.retain(p, now)
	ctx, cancel := context.WithTimeout(m.ctx, controlTimeout)
	defer cancel()
	if err := p.expireProducers(ctx, now); err != nil {
		m.logger.Debug("producer expiry", "partition", p.label, "error", err)
	}
	m.trimFiles(p) // again: a snapshot that was missing may be there now
}

func (m *Manager) trimFiles(p *Partition) {
	err := p.trimFiles()
	if m.troubles.news("trim "+p.label, err) && err != nil {
		m.logger.Warn("remove segments below the log start", "partition", p.label, "error", err)
	}
}

// mayTrim says whether every live follower is in sync, so that none would need the segments that go; a disk that runs full
// overrides it.
func (m *Manager) mayTrim(p *Partition) bool {
	if m.shared.disk.low.Load() {
		return true
	}
	fit := p.InSyncNodes()
	for _, s := range p.group.Voters() {
		if n := s.Node(); n != m.node && m.net.Alive(n) && !slices.Contains(fit, n) {
			return false
		}
	}
	return true
}
