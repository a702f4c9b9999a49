package price

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
)

// A Right is something that the cluster must allow its user, in the words of Kafka's ACLs.
type Right struct {
	Operation string
	Resource  string // Topic, Group, Cluster, TransactionalId
	Prefix    string // the names that it is wanted for begin with it; "": there is only one such resource
}

// String says the right as one reads it aloud.
func (r Right) String() string {
	if r.Prefix == "" {
		return r.Operation + " on the " + r.Resource
	}
	return fmt.Sprintf("%s on %s %s*", r.Operation, r.Resource, r.Prefix)
}

// grants are the commands of Kafka's own tool that allow rights to a principal, one for each resource.
func grants(rights []Right, principal, brokers string) []string {
	flags := map[string]string{"Topic": "--topic", "Group": "--group", "Cluster": "--cluster", "TransactionalId": "--transactional-id"}
	var out []string
	operations, done := map[string]string{}, map[string]bool{}
	for _, r := range rights {
		operations[r.Resource+r.Prefix] += " --operation " + r.Operation
	}
	for _, r := range rights {
		if done[r.Resource+r.Prefix] {
			continue
		}
		done[r.Resource+r.Prefix] = true
		line := fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal %s%s %s", brokers, principal, operations[r.Resource+r.Prefix], flags[r.Resource])
		if r.Prefix != "" {
			line += " " + r.Prefix + " --resource-pattern-type prefixed"
		}
		out = append(out, line)
	}
	return out
}

// Missing is a right that the cluster refused.
type Missing struct {
	Right
	Answer error // the cluster's own words
}

// A Report is what trying the rights told.
type Report struct {
	Missing   []Missing
	Untried   []Right           // they need something that is missing
	Left      string            // the topic that the rights were tried on, where it may be created and not removed
	Copies    int               // of a partition that the run creates; 0: not known
	Effective map[string]string // settings of a topic that the run creates; nil where they may not be read
	Notes     []string
	Without   []scenario.Guarantee // can be priced without what is missing; empty: nothing can
}

// Wants lists the rights that the run takes.
func (p *Plan) Wants() []Right {
	topic := func(op string) Right { return Right{op, "Topic", p.Prefix} }
	out := []Right{topic("Create"), topic("Describe"), topic("Write"), topic("Read"), topic("Delete")}
	for _, g := range p.Priced() {
		switch {
		case g == scenario.Idempotent:
			out = append(out, idempotentWrite)
		case g.Transacts():
			out = append(out, p.idRight(g, "Describe"), p.idRight(g, "Write"))
		}
	}
	if p.Workers > 0 {
		out = append(out, Right{"Read", "Group", p.Prefix}, Right{"Delete", "Group", p.Prefix})
	}
	return out
}

// idRight is one on the transactional ids of a guarantee.
func (p *Plan) idRight(g scenario.Guarantee, op string) Right {
	if g == scenario.TwoPhaseCommit {
		return Right{op, "TransactionalId", VotedPrefix + p.Prefix}
	}
	return Right{op, "TransactionalId", p.Prefix}
}

var idempotentWrite = Right{"IdempotentWrite", "Cluster", ""}

// Check tries every right with one record each, on a topic of its own that is gone when it returns, unless it may not be
// removed. With dry it changes nothing, and tries what can be tried so. Its error is of the cluster, not of a right.
func (p *Plan) Check(ctx context.Context, i *load.Inspector, now time.Time, dry bool) (*Report, error) {
	c := &checking{plan: p, ctx: ctx, inspector: i, topic: p.Try(now), report: &Report{}}
	// First what does not exist and what is not made, which leaves nothing behind. (Kafka tells who may describe a topic, and not
	// remove it, that it does not exist: that is found out with a real one.)
	c.try(Right{"Delete", "Topic", p.Prefix}, func() error { return i.DeleteTopic(ctx, c.topic.Name) })
	c.try(Right{"Create", "Topic", p.Prefix}, func() error { return i.CreateTopic(ctx, c.topic, true) })
	if p.wants(idempotentWrite) {
		c.try(idempotentWrite, func() error { return i.TakeProducerID(ctx, "") })
	}
	if len(c.report.Missing) > 0 && !dry { // there will be no topic: ids can be asked for without, and stay
		for _, g := range p.transacting() {
			c.tryID(g, func(id string) error { return i.TakeProducerID(ctx, id) })
		}
	}
	if c.failed != nil {
		return c.report, c.failed
	}
	var err error
	if !dry && len(c.report.Missing) == 0 {
		err = c.withTopic()
	}
	wants := p.Wants()
	for _, w := range wants {
		if !slices.Contains(c.tried, w) {
			c.report.Untried = append(c.report.Untried, w)
		}
	}
	if len(c.report.Missing) > 0 {
		c.report.Without = p.without(append(rightsIn(c.report.Missing), c.report.Untried...))
	}
	slices.SortStableFunc(c.report.Missing, func(a, b Missing) int { return slices.Index(wants, a.Right) - slices.Index(wants, b.Right) })
	return c.report, err
}

// without lists the guarantees that take none of these rights; none where at_least_once takes one, beside which all others are told.
func (p *Plan) without(missing []Right) (rest []scenario.Guarantee) {
	for _, g := range p.Priced() {
		alone := &Plan{Options: p.Options}
		alone.Guarantees = []scenario.Guarantee{g}
		if !slices.ContainsFunc(alone.Wants(), func(r Right) bool { return slices.Contains(missing, r) }) {
			rest = append(rest, g)
		}
	}
	if !slices.Contains(rest, scenario.AtLeastOnce) {
		return nil
	}
	return rest
}

func rightsIn(ms []Missing) (out []Right) {
	for _, m := range ms {
		out = append(out, m.Right)
	}
	return out
}

// transacting are the guarantees with transactions that are priced.
func (p *Plan) transacting() []scenario.Guarantee {
	return slices.DeleteFunc(p.Priced(), func(g scenario.Guarantee) bool { return !g.Transacts() })
}

func (p *Plan) wants(r Right) bool { return slices.Contains(p.Wants(), r) }

// checking is a Check while it goes on.
type checking struct {
	plan      *Plan
	ctx       context.Context
	inspector *load.Inspector
	topic     load.TopicSpec
	report    *Report
	tried     []Right
	failed    error // the first answer that was no refusal of a right
}

// try says whether the right is there. What fails otherwise ends the check.
func (c *checking) try(r Right, do func() error) bool {
	if c.failed != nil {
		return false
	}
	err := do()
	if err == nil {
		c.tried = append(c.tried, r)
		return true
	}
	resource := load.DeniedResource(err)
	if resource == "" {
		c.failed = fmt.Errorf("try %s: %w", r, err)
		return false
	}
	c.tried = append(c.tried, r)
	if resource != r.Resource { // it takes another right than the one that was thought of
		r = Right{r.Operation, resource, r.Prefix}
	}
	if slices.ContainsFunc(c.report.Missing, func(m Missing) bool { return m.Right == r }) {
		return false
	}
	c.report.Missing = append(c.report.Missing, Missing{r, err})
	return false
}

// withTopic makes the topic, tries everything on it, and removes it, also after an interrupt.
func (c *checking) withTopic() error {
	i, name := c.inspector, c.topic.Name
	err := i.CreateTopic(c.ctx, c.topic, false)
	if err == nil {
		c.onTopic(name)
	} else if c.ctx.Err() == nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	interrupted, failed := c.ctx.Err(), c.failed
	c.failed = nil
	removed := c.try(Right{"Delete", "Topic", c.plan.Prefix}, func() error {
		return i.Remove(context.WithoutCancel(c.ctx), load.Leftovers{Topics: []string{name}})
	})
	if !removed {
		c.report.Left = name
	}
	return errors.Join(interrupted, failed, c.failed)
}

// idOf is the transactional id that goes with a topic's name.
func (p *Plan) idOf(g scenario.Guarantee, topic string) string {
	if g == scenario.TwoPhaseCommit {
		return VotedPrefix + topic
	}
	return topic
}

// tryID tries a transactional id. A cluster that fails at it otherwise than for want of a right cannot have the guarantee
// priced, and is priced without.
func (c *checking) tryID(g scenario.Guarantee, do func(id string) error) {
	if c.failed != nil {
		return
	}
	describe, write := c.plan.idRight(g, "Describe"), c.plan.idRight(g, "Write")
	if c.try(write, func() error { return do(c.plan.idOf(g, c.topic.Name)) }) {
		c.tried = append(c.tried, describe)
		return
	}
	if c.failed != nil && c.ctx.Err() == nil {
		first, _, _ := strings.Cut(errors.Unwrap(c.failed).Error(), ". ") // some of Kafka's descriptions are essays
		why := fmt.Sprintf("a transaction of one record failed: %s.", strings.TrimRight(first, "."))
		if c.failed = c.plan.Without(g, why); c.failed == nil {
			c.report.Notes = append(c.report.Notes, fmt.Sprintf("%s is left out: %s", g, why))
		}
	}
}

// onTopic tries what needs a topic.
func (c *checking) onTopic(name string) {
	i := c.inspector
	right := func(op string) Right { return Right{op, "Topic", c.plan.Prefix} }
	described := c.try(right("Describe"), func() (err error) { c.report.Copies, err = i.DescribeTopic(c.ctx, name); return err })
	written := described && c.try(right("Write"), func() error { return i.Write(c.ctx, name) })
	if written {
		c.try(right("Read"), func() error { return i.Read(c.ctx, name) })
	}
	if written && c.plan.wants(idempotentWrite) {
		c.try(idempotentWrite, func() error { return i.WriteIdempotent(c.ctx, name) })
	}
	for _, g := range c.plan.transacting() {
		if written {
			c.tryID(g, func(id string) error { return i.Transact(c.ctx, id, name) })
		}
	}
	if written && c.plan.Workers > 0 && c.try(Right{"Read", "Group", c.plan.Prefix}, func() error { return i.CommitOffset(c.ctx, name, name) }) {
		c.try(Right{"Delete", "Group", c.plan.Prefix}, func() error { return i.DeleteGroup(c.ctx, name) })
	}
	if c.failed == nil {
		c.readSettings(name)
	}
}

// readSettings asks for what only the report tells. A run goes on without it.
func (c *checking) readSettings(topic string) {
	m, err := c.inspector.TopicConfigs(c.ctx, topic)
	if err != nil {
		why := err.Error()
		if load.DeniedResource(err) != "" {
			why = "for want of " + Right{"DescribeConfigs", "Topic", c.plan.Prefix}.String()
		}
		c.report.Notes = append(c.report.Notes, "the topics' settings cannot be read back, and the report will not name them: "+why)
		return
	}
	c.report.Effective = m
}

// Text says what is missing and how to grant it.
func (r *Report) Text(principal, brokers string) string {
	var b strings.Builder
	if principal == "" {
		principal = "'User:<you>'"
	}
	fmt.Fprintf(&b, "The cluster refuses %s:\n", count(len(r.Missing), "right", "rights"))
	var all []Right
	for _, m := range r.Missing {
		all = append(all, m.Right)
		fmt.Fprintf(&b, "  ✗ %s\n      answered: %v\n", m.Right, m.Answer)
	}
	if len(r.Untried) > 0 {
		b.WriteString("Wanted as well, and not tried because of these:\n")
		for _, u := range r.Untried {
			fmt.Fprintf(&b, "  ? %s\n", u)
		}
	}
	if r.Left != "" {
		fmt.Fprintf(&b, "Left on the cluster, empty but for a few bytes, for want of the right to remove it: topic %s\n", r.Left)
	}
	b.WriteString("An administrator grants them with Kafka's own tool:\n")
	for _, line := range grants(append(all, r.Untried...), principal, brokers) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	fmt.Fprintf(&b, "Where a right is denied and not merely missing, the denial comes first: --list instead of --add shows it, --remove takes it away.\n")
	if len(r.Without) > 1 {
		var names []string
		for _, g := range r.Without {
			names = append(names, string(g))
		}
		fmt.Fprintf(&b, "Without them the others can be priced: -guarantees %s\n", strings.Join(names, ","))
	}
	return b.String()
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
