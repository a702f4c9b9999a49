package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

const (
	memberPause    = 50 * time.Millisecond  // after a member could not be started, or a poll failed
	positionPause  = 100 * time.Millisecond // between looks at a group's positions
	zombieOverstay = 2 * time.Second        // how long beyond its session timeout a zombie stays away
)

// groups are the consumer groups of a trial. Their members work from the start of the load until they have read everything.
type groups struct {
	run     *runner
	grouper Grouper
	plan    scenario.Consumers
	commit  string // point of commit
	inputs  []string
	to      *topicPlan // nil: nothing is made of what is read
	members []*member
	crews   map[string][]*member // by group
	cancel  context.CancelFunc
	working sync.WaitGroup
}

// openGroups prepares the members; their producer numbers follow those of the producers.
func (r *runner) openGroups(cfg ProducerConfig) (*groups, error) {
	p := r.plan
	if len(p.Consumers.Groups) == 0 {
		return nil, nil
	}
	grouper, ok := r.driver.(Grouper)
	if !ok {
		return nil, errors.New("load: this driver has no consumer groups")
	}
	g := &groups{run: r, grouper: grouper, plan: p.Consumers, commit: p.CommitPoint, crews: map[string][]*member{}}
	for i := range r.topics {
		t := &r.topics[i]
		switch {
		case t.name == p.Consumers.Transform.To:
			g.to = t
		case p.Consumers.Transform.From == "" || p.Consumers.Transform.From == t.name:
			g.inputs = append(g.inputs, t.name)
		}
	}
	number := p.Producers.Count
	for i, group := range p.Consumers.Groups {
		for n := range group.Members {
			if number > history.MaxProducer {
				return nil, fmt.Errorf("load: more than %d producers and members", history.MaxProducer)
			}
			m, err := newMember(g, group.Name, n, uint16(number), cfg, i == 0 && g.to != nil)
			if err != nil {
				return nil, err
			}
			g.members = append(g.members, m)
			g.crews[group.Name] = append(g.crews[group.Name], m)
			number++
		}
	}
	return g, nil
}

func (g *groups) start() {
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	for _, m := range g.members {
		g.working.Go(func() { m.work(ctx) })
	}
}

// finish lets the groups read everything that can be read, at most until ctx ends, stops the members, and notes where the groups stand.
func (g *groups) finish(ctx context.Context) {
	if ctx.Err() == nil {
		g.awaitCaughtUp(ctx)
	}
	g.cancel()
	g.working.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*drainPatience)
	defer cancel()
	for _, group := range g.plan.Groups {
		if err := g.notePositions(last, group.Name); err != nil {
			g.run.errors.class(err)
		}
	}
}

// awaitCaughtUp waits until every group's positions passed the last message of every input. Markers stand behind it, over which a group
// may or may not step.
func (g *groups) awaitCaughtUp(ctx context.Context) {
	for {
		if g.run.readerCaughtUp(ctx) && g.caughtUp(ctx) {
			return
		}
		if !pause(ctx, positionPause) {
			g.run.note("consumer groups did not get to the end of their inputs")
			return
		}
	}
}

func (g *groups) caughtUp(ctx context.Context) bool {
	ask, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	for _, group := range g.plan.Groups {
		got, err := g.grouper.Positions(ask, group.Name)
		if err != nil {
			return false
		}
		at := map[history.Partition]int64{}
		for _, p := range got {
			at[history.Partition{Topic: p.Topic, Partition: p.Partition}] = p.Offset
		}
		for _, input := range g.inputs {
			t := g.run.reader.byTopic[input]
			for i := range t.partitions {
				if at[g.run.places[t.first+i]] < g.run.reader.messages[t.first+i].Load() {
					return false
				}
			}
		}
	}
	return true
}

func (g *groups) notePositions(ctx context.Context, group string) error {
	if g.run.history == nil {
		return nil
	}
	stream, err := g.run.history.GroupStream(history.RolePositions, "positions-"+group, group)
	if err != nil {
		return err
	}
	asked := g.run.clock.Now()
	for {
		ask, cancel := context.WithTimeout(ctx, drainPatience)
		got, err := g.grouper.Positions(ask, group)
		cancel()
		if err == nil {
			now := g.run.clock.Now()
			for _, p := range got {
				if flat, ok := g.run.flat(p.Topic, p.Partition); ok {
					stream.Append(history.Record{Kind: history.Group, Step: history.Position, Partition: uint32(flat), Offset: p.Offset, Epoch: -1, Asked: asked, At: now})
				}
			}
			return nil
		}
		if !pause(ctx, positionPause) {
			return err
		}
	}
}

// flat is the place of a partition in the trial's list.
func (r *runner) flat(topic string, partition int32) (int, bool) {
	for _, t := range r.topics {
		if t.name == topic && partition >= 0 && int(partition) < t.partitions {
			return t.first + int(partition), true
		}
	}
	return 0, false
}

// readerCaughtUp says whether the visible reader has read all that is readable now.
func (r *runner) readerCaughtUp(ctx context.Context) bool {
	q, kind := r.driver.EndOffsets, history.EndAnswer
	if teller, ok := r.driver.(StableTeller); ok && r.plan.Guarantee.Transacts() {
		q, kind = teller.StableOffsets, history.StableAnswer
	}
	ask, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	targets := r.ask(ask, kind, q, nil)
	ask2, done := context.WithTimeout(ctx, time.Second)
	defer done()
	return !missing(targets) && wait(ask2, func() bool { return passed(r.reader, targets) })
}
