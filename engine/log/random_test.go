package log

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: fresh ones")

// TestRandomOperationsMatchTwin does random things to a log on a crashable file system, kills it and cuts its
// power, and compares it with a twin in memory.
func TestRandomOperationsMatchTwin(t *testing.T) {
	seeds, steps := 60, 120
	if testing.Short() {
		seeds = 15
	}
	for i := range seeds {
		seed := *seedFlag
		if seed == 0 {
			seed = rand.Uint64()
		}
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("replay: go test ./engine/log -run TestRandomOperationsMatchTwin/0 -seed %d", seed)
				}
			}()
			newMonkey(t, seed).run(steps)
		})
		if !ok || *seedFlag != 0 {
			return
		}
	}
}

// Rows of the .ridx that a power cut left of entries which are gone are cut off; a second power cut must not bring them back.
func TestRowsThatWereCutOffDoNotComeBackWithTheNextPowerCut(t *testing.T) {
	for _, seed := range []uint64{9603693800461946769, 14252115179142803430, 15199394950730337608, 320130653240997097} {
		newMonkey(t, seed).run(120)
	}
}

// What a checkpoint made durable stays so behind a later checkpoint of a smaller index, a truncation and a power cut.
func TestACheckpointDoesNotMoveTheRecoveryPointBack(t *testing.T) {
	newMonkey(t, 12934124674242380545).run(120)
}

// monkey does random operations. What is durable for sure is counted in durable.
type monkey struct {
	*rig
	*rand.Rand
	w       *twin
	durable uint64
	term    uint64
	log     []string
}

func newMonkey(t *testing.T, seed uint64) *monkey {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := &monkey{Rand: rng, w: newTwin(), term: 1}
	m.rig = newRig(t, func(c *Config) {
		c.SyncEach = rng.IntN(3) == 0
		c.CacheBytes = []int64{1, 4096, 1 << 20}[rng.IntN(3)]
		c.CacheBudget = NewBudget(64 << 10)
		c.SegmentBytes = []int64{300, 2000, 10000}[rng.IntN(3)]
		c.Committer = NewCommitter(2)
	})
	return m
}

func (m *monkey) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *monkey) run(steps int) {
	defer func() {
		if m.t.Failed() {
			for _, line := range m.log {
				m.t.Log(line)
			}
		}
	}()
	for range steps {
		m.step()
		if err := m.w.compare(m.rig.log); err != nil {
			m.t.Fatal(err)
		}
	}
	m.check(m.rig.log.Close())
	rep, err := Verify(m.fs, m.cfg.Dir)
	if err != nil || len(rep.Problems) > 0 {
		m.t.Fatalf("verify: %v %v", rep.Problems, err)
	}
}

func (m *monkey) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *monkey) step() {
	l, last := m.rig.log, m.w.last()
	switch p := m.IntN(100); {
	case p < 55:
		m.appendSome()
	case p < 63 && len(m.w.entries) > 0:
		from := m.w.base.Index + 1 + m.Uint64N(uint64(len(m.w.entries)))
		m.note("truncate from %d", from)
		m.check(l.TruncateSuffix(from))
		m.w.truncate(from)
		m.durable = min(m.durable, from-1)
		m.term++
	case p < 70:
		m.snapSome()
	case p < 75:
		m.trim()
	case p < 80:
		index := m.w.base.Index + m.Uint64N(last-m.w.base.Index+2)
		m.note("checkpoint %d", index)
		m.check(l.Checkpoint(index))
		m.durable = max(m.durable, min(index, last))
	case p < 84:
		m.note("sync")
		m.check(l.Sync())
		m.durable = last
	case p < 86:
		b := Base{Index: last + m.Uint64N(20), Term: m.term, NextOffset: m.w.end + m.Int64N(100), State: []byte("state")}
		if b.Index == 0 {
			return
		}
		b.LogStart = b.NextOffset
		m.note("reset %+v", b)
		m.check(l.Reset(b))
		m.w = &twin{base: b, end: b.NextOffset}
		m.durable = b.Index
	case p < 91:
		m.note("kill")
		m.kill()
	case p < 92:
		m.cfg.SyncEach = !m.cfg.SyncEach
		m.note("tune, sync each %v", m.cfg.SyncEach)
		m.check(l.Tune(m.cfg.SegmentBytes, m.cfg.SyncEach))
		if m.cfg.SyncEach {
			m.durable = last
		}
	case p < 94:
		m.note("close")
		m.check(l.Close())
		m.durable = last
		m.kill()
	default:
		m.lose()
	}
}

func (m *monkey) appendSome() {
	var entries []Entry
	index := m.w.last() + 1
	if m.IntN(10) == 0 {
		m.term++
		entries = append(entries, side(index, m.term))
		index++
	}
	for range m.IntN(6) {
		switch m.IntN(8) {
		case 0:
			entries = append(entries, side(index, m.term))
		case 1:
			entries = append(entries, rollSide(index, m.term))
		case 2, 3:
			entries = append(entries, command(index, m.term))
		default:
			entries = append(entries, data(index, m.term, 1+m.IntN(5), m.IntN(120)))
		}
		index++
	}
	m.note("append %d entries before %d, term %d", len(entries), index, m.term)
	m.w.append(entries)
	if m.IntN(3) == 0 {
		m.check(m.rig.log.AppendBorrowed(entries))
		for _, e := range entries {
			clear(e.Data)
		}
	} else {
		m.check(m.rig.log.Append(entries))
	}
	if m.cfg.SyncEach {
		m.durable = m.w.last()
	}
}

// snapSome writes the .snap of some segment boundaries.
func (m *monkey) snapSome() {
	for _, s := range m.rig.log.Segments() {
		if s.FirstIndex-1 <= m.w.base.Index || m.IntN(2) == 0 {
			continue
		}
		index := s.FirstIndex - 1
		if !m.rig.log.SegmentEnd(index) {
			m.t.Fatalf("segment starts at %d, but SegmentEnd(%d) is false", s.FirstIndex, index)
		}
		term, _ := m.rig.log.Term(index)
		m.note("snap at %d", index)
		m.check(m.rig.log.WriteSnap(Base{Index: index, Term: term, NextOffset: s.BaseOffset, State: []byte{byte(index)}}))
	}
}

func (m *monkey) trim() {
	l := m.rig.log
	offset := l.StartOffset() + m.Int64N(l.EndOffset()-l.StartOffset()+1)
	limit := m.w.base.Index + m.Uint64N(m.w.last()-m.w.base.Index+1)
	m.note("trim to %d, limit %d", offset, limit)
	start, err := l.TrimTo(offset, limit)
	m.check(err)
	if start != offset || l.StartOffset() != offset {
		m.t.Fatalf("log start %d, want %d", start, offset)
	}
	first := l.FirstIndex()
	if first-1 > limit && first-1 > m.w.base.Index {
		m.t.Fatalf("trimmed index %d, limit %d", first-1, limit)
	}
	m.w.trimBelow(first)
	if first > 1 {
		b, err := l.OldestSnap()
		if err != nil || b.Index != first-1 {
			m.t.Fatalf("oldest snap %+v %v, first index %d", b, err, first)
		}
	}
	m.durable = max(m.durable, first-1)
}

// lose cuts the power: the log must be a prefix that holds everything durable.
func (m *monkey) lose() {
	keep := []int{0, 50, 90, 100}[m.IntN(4)]
	seed := m.Uint64()
	start := m.rig.log.StartOffset()
	rec := m.cutPower(seed, keep)
	m.note("power cut seed %d keep %d: %+v", seed, keep, rec)
	last := m.rig.log.LastIndex()
	if last < m.durable || last > m.w.last() {
		m.t.Fatalf("after the power cut the log ends at %d, durable %d, written %d", last, m.durable, m.w.last())
	}
	if b, err := m.rig.log.NewestSnap(); err == nil && (b.Index > last || m.rig.log.LastIndex() < b.Index) {
		m.t.Fatalf("a .snap at %d counts, the log ends at %d", b.Index, last)
	}
	m.w.truncate(last + 1)
	m.durable = 0 // what was recovered may not be synced again yet
	m.durable = max(m.w.base.Index, m.durable)
	if got := m.rig.log.StartOffset(); got != min(start, m.w.end) {
		m.t.Fatalf("log start %d, was %d", got, start)
	}
	m.cfg.SameBoot = true
	ask, largest := m.w.moments(5, m.rig.log.StartOffset())
	m.check(compareTimes(m.rig.log, ask, largest))
}
