package scenario

import (
	"fmt"
	"strings"
	"time"
)

// transaction refuses what no transaction can be, or what nobody would make one of.
func (d *decoder) transaction(s *Scenario) {
	x := s.Producers.Transaction
	if d.given["producers.transaction"] && !s.Guarantee.Transacts() && !d.sweepHas("guarantee", string(Transactional)) && !d.sweepHas("guarantee", string(TwoPhaseCommit)) {
		d.bad("producers.transaction", "belongs to guarantees with transactions, and the guarantee is %s", s.Guarantee)
	}
	if x.MaxDuration <= 0 {
		d.bad("producers.transaction.max_duration", "a transaction that may not last cannot hold a record")
	}
	if x.Timeout < time.Second || x.Timeout > 15*time.Minute {
		d.bad("producers.transaction.timeout", "%v is not between 1s and 15m, which brokers take", x.Timeout)
	} else if s.Guarantee.Transacts() && x.MaxDuration >= x.Timeout {
		d.bad("producers.transaction.max_duration", "%v is not shorter than the timeout of a transaction, %v: the broker would abort it first", x.MaxDuration, x.Timeout)
	}
	for _, t := range s.Topics {
		if s.Consumers.Transform.To != t.Name && x.Partitions > t.Partitions {
			d.bad("producers.transaction.partitions", "topic %s has only %d", t.Name, t.Partitions)
		}
	}
}

// consumers refuses groups that have nothing to read, and what only groups can do.
func (d *decoder) consumers(s *Scenario) {
	c := s.Consumers
	seen := map[string]bool{}
	for i, g := range c.Groups {
		path := fmt.Sprintf("consumers.groups.%d.name", i)
		if !namePattern.MatchString(g.Name) {
			d.bad(path, "%q is not made of letters, digits, dots and dashes", g.Name)
		}
		if seen[g.Name] {
			d.bad(path, "group %q is listed twice", g.Name)
		}
		seen[g.Name] = true
	}
	if len(c.Groups) == 0 {
		for _, key := range []string{"transform", "commit", "process_time", "churn"} {
			if d.given["consumers."+key] {
				d.bad("consumers."+key, "there is no group that could do this: consumers.groups is empty")
			}
		}
	}
	d.transform(s)
	switch {
	case len(c.Groups) > 0 && !s.Load.ReadAlong:
		d.bad("load.read_along", "false: what groups have to read is known from a reader beside them")
	case c.Commit == "in_transaction" && (!s.Guarantee.Transacts() || c.Transform.To == ""):
		d.bad("consumers.commit", "in_transaction needs a transform and a guarantee with transactions")
	case c.SessionTimeout < time.Second:
		d.bad("consumers.session_timeout", "%v is less than the 1s that brokers take", c.SessionTimeout)
	case c.Rebalance < time.Second:
		d.bad("consumers.rebalance_timeout", "%v is less than the 1s that brokers take", c.Rebalance)
	}
}

func (d *decoder) transform(s *Scenario) {
	t := s.Consumers.Transform
	var names []string
	for _, x := range s.Topics {
		names = append(names, x.Name)
	}
	for key, name := range map[string]string{"from": t.From, "to": t.To} {
		if name != "" && !contains(names, name) {
			d.bad("consumers.transform."+key, "there is no topic %q among %s", name, strings.Join(names, ", "))
		}
	}
	switch {
	case t.To == "":
	case t.From == t.To:
		d.bad("consumers.transform.to", "a transform into the topic that it reads would never end")
	case t.From == "" && len(names) == 1:
		d.bad("consumers.transform.to", "there is no other topic that could be read")
	case s.Load.Value.Size.Fixed > 0 && s.Load.Value.Size.Fixed < HeaderBytes+OriginBytes, s.Load.Value.Size.Fixed == 0 && s.Load.Value.Size.Median < HeaderBytes+OriginBytes:
		d.bad("load.value.size", "%v is less than the %d bytes in which a transformed message says what it was made from", s.Load.Value.Size, HeaderBytes+OriginBytes)
	}
}

// Inputs are the topics that producers send to.
func (s *Scenario) Inputs() (names []string) {
	for _, t := range s.Topics {
		if t.Name != s.Consumers.Transform.To {
			names = append(names, t.Name)
		}
	}
	return names
}

// CommitPoint is when members of groups commit their positions.
func (s *Scenario) CommitPoint() string {
	switch {
	case s.Consumers.Commit != "":
		return s.Consumers.Commit
	case s.Guarantee == AtMostOnce:
		return "before_process"
	case s.Guarantee.Transacts() && s.Consumers.Transform.To != "":
		return "in_transaction"
	}
	return "after_process"
}
