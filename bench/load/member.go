package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"gopherlog/bench/history"
)

// member is one place in a group, taken by one incarnation after the other: who crashes or turns zombie is replaced. It has the number of
// a producer, as it may be one.
type member struct {
	groups    *groups
	group     string
	name      string
	number    uint16
	transform bool
	cfg       MemberConfig
	log       *history.Stream // what it read and what became of its partitions
	sends     *history.Stream
	acks      *history.Stream
	txns      *history.Stream
	tally     *tally
	bodies    *bodies

	mu       sync.Mutex // guards bodies, rnd, sessions, current
	rnd      *rand.Rand
	sessions int
	current  *incarnation
}

func newMember(g *groups, group string, n int, number uint16, cfg ProducerConfig, transform bool) (*member, error) {
	p := g.run.plan
	name := fmt.Sprintf("%s-%02d", group, n)
	m := &member{groups: g, group: group, name: name, number: number, transform: transform, tally: newTally(p.Phases, p.Interval),
		bodies: newBodies(p.Load.Value, p.Producers.Compression, p.Seed, int(number)), rnd: rand.New(rand.NewPCG(uint64(p.Seed), 0x6d656d<<16|uint64(number)))}
	cfg.ClientID = "mqbench-" + name
	cfg.TransactionalID = ""
	if g.commit == "in_transaction" && transform {
		cfg.TransactionalID = TransactionalID(p.Guarantee, p.Prefix, p.RunID, int(number))
	}
	m.cfg = MemberConfig{ClientID: cfg.ClientID, Group: group, Topics: g.inputs, ReadCommitted: p.Guarantee.Transacts(),
		SessionTimeout: g.plan.SessionTimeout, Rebalance: g.plan.Rebalance, Producer: cfg}
	if g.run.history == nil {
		return m, nil
	}
	var err error
	if m.log, err = g.run.history.GroupStream(history.RoleGroup, "group-"+name, group); err != nil || !transform {
		return m, err
	}
	for _, s := range []struct {
		to         **history.Stream
		role, name string
	}{{&m.sends, history.RoleSends, "sends"}, {&m.acks, history.RoleAcks, "acks"}, {&m.txns, history.RoleTxns, "txns"}} {
		if *s.to, err = g.run.stream(s.role, fmt.Sprintf("%s-%02d", s.name, number)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// work keeps the place taken until ctx ends.
func (m *member) work(ctx context.Context) {
	var zombies sync.WaitGroup
	defer zombies.Wait()
	for ctx.Err() == nil {
		inc, err := m.join(ctx)
		if err != nil {
			if ctx.Err() == nil {
				m.groups.run.errors.class(fmt.Errorf("group %s: %w", m.group, err))
			}
			pause(ctx, memberPause)
			continue
		}
		zombies.Go(func() { inc.live(ctx) })
		select {
		case <-inc.replace: // a zombie lives on beside its replacement
		case <-inc.ended:
		}
	}
}

// join starts the next incarnation.
func (m *member) join(ctx context.Context) (*incarnation, error) {
	m.mu.Lock()
	session := m.sessions
	m.sessions++
	m.mu.Unlock()
	if session > history.MaxSession {
		return nil, fmt.Errorf("member %s used up the %d sessions of the history format", m.name, history.MaxSession)
	}
	inc := &incarnation{member: m, session: uint16(session), sequence: make([]uint64, len(m.groups.run.places)),
		replace: make(chan struct{}), ended: make(chan struct{}), frozen: make(chan time.Duration, 1)}
	cfg := m.cfg
	cfg.Watch = inc.watch()
	client, err := m.groups.grouper.NewMember(ctx, cfg)
	if err != nil {
		return nil, err
	}
	inc.client = client
	if cfg.Producer.TransactionalID != "" {
		epoch, err := client.Init(ctx)
		if err != nil {
			client.Close()
			return nil, err
		}
		inc.transaction(history.Inited, 0, epoch)
	}
	m.mu.Lock()
	m.current = inc
	m.mu.Unlock()
	return inc, nil
}

// chance draws from the seed.
func (m *member) chance(p float64) bool {
	if p <= 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rnd.Float64() < p
}

// body is a value of the next size. A zombie and its replacement both ask.
func (m *member) body() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bodies.next(nil)
}

// processTime is how long the next message takes.
func (m *member) processTime() time.Duration {
	p := m.groups.plan.ProcessTime
	if p.Mean == 0 || p.Dist == "constant" {
		return p.Mean
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.rnd.ExpFloat64() * float64(p.Mean))
}

// A trouble is what befalls an incarnation in the midst of a poll.
type trouble int

const (
	noTrouble trouble = iota
	rejoins
	crashes
	turnsZombie
	dawdles
)

// trouble draws what befalls an incarnation in the poll at hand.
func (m *member) trouble() trouble {
	c := m.groups.plan.Churn
	for _, t := range []struct {
		p    float64
		what trouble
	}{{c.Crash, crashes}, {c.Zombie, turnsZombie}, {c.Slow, dawdles}, {c.Rejoin, rejoins}} {
		if m.chance(t.p) {
			return t.what
		}
	}
	return noTrouble
}
