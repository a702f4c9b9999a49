package groups

import (
	"fmt"

	"gopherlog/txn/explore"
)

// invariants of the world. They read the durable log and what the members were told; the machine is not asked whether it did well.
type invariants struct{ Setting }

// logDigest sums up the coordinator's log.
type logDigest struct {
	begun   [maxGenerations + 2]bool    // whether a record of the generation is durable
	made    [maxGenerations + 2]bool    // whether its assignment is
	before  [maxGenerations + 2]offsets // what was committed before that
	commits map[entry]bool
	fault   string
}

func digest(id explore.ID, log, _ []explore.Record, _ explore.Local) any {
	if id != coordinatorID {
		return nil
	}
	d, table, newest, assigned := &logDigest{commits: map[entry]bool{}}, nowhere, int32(0), int32(0)
	for _, r := range log {
		e := r.(entry)
		if e.Group == nil {
			if e.Generation < assigned {
				d.fault = fmt.Sprintf("a commit of generation %d landed in generation %d", e.Generation, assigned)
			}
			table = table.with(e.Offsets)
			d.commits[e] = true
			continue
		}
		g := e.Group.Generation
		if g < newest {
			d.fault = fmt.Sprintf("generation %d came after generation %d", g, newest)
		}
		newest, d.begun[g] = g, true
		if e.Group.Unassigned {
			continue
		}
		if assigned = g; !d.made[g] {
			d.made[g], d.before[g] = true, table
		}
	}
	return d
}

func (in invariants) member(v explore.View, i int) memberLocal {
	return v.Local(memberID(i)).(memberLocal)
}

// always: no two members have a partition in one generation, nobody starts before what was committed in generations before, no commit of a
// generation lands when a later one is assigned, nobody is told of a generation that is not durable, and what was acknowledged is.
func (in invariants) always(v explore.View) error {
	d := v.Digest(coordinatorID).(*logDigest)
	if d.fault != "" {
		return fmt.Errorf("%s", d.fault)
	}
	owner := map[string]int{}
	for i := range in.Members {
		l := in.member(v, i)
		if l.Generation > 0 && !d.begun[l.Generation] {
			return fmt.Errorf("m%d was told of generation %d, which the next coordinator would not know", i, l.Generation)
		}
		for _, c := range l.Claims {
			if err := in.claim(d, i, c, owner); err != nil {
				return err
			}
		}
		for _, a := range l.Acked {
			if !d.commits[a] {
				return fmt.Errorf("lost: m%d was told that %s are committed", i, a)
			}
		}
	}
	return nil
}

func (in invariants) claim(d *logDigest, i int, c claim, owner map[string]int) error {
	if !d.made[c.Generation] {
		return fmt.Errorf("m%d has its assignment of generation %d, which is not durable", i, c.Generation)
	}
	for _, p := range c.Parts {
		key := fmt.Sprint(c.Generation, string(p))
		if other, taken := owner[key]; taken && other != i {
			return fmt.Errorf("partition %c has two owners in generation %d: m%d and m%d", p, c.Generation, other, i)
		}
		owner[key] = i
		if at, was := c.Start[p-'0'], d.before[c.Generation][p-'0']; c.Start != nowhere && at < was {
			return fmt.Errorf("m%d starts partition %c at %d in generation %d, and %d was committed before it", i, p, at, c.Generation, was)
		}
	}
	return nil
}

// ended: every member has left, or the world has had its tries or generations; and nothing is under way.
func (in invariants) ended(v explore.View) bool {
	l := v.Local(coordinatorID).(local)
	if in.over(l) {
		return true
	}
	for i := range in.Members {
		if s := in.member(v, i).Stage; s != finished && s != gone {
			return false
		}
	}
	return len(v.Pending(coordinatorID)) == 0
}

// spent: answers to what a member has stopped waiting for. In a punctual world requests too, unless a zombie would send them.
func (in invariants) spent(v explore.View, m explore.Message) bool {
	switch b := m.Body.(type) {
	case answer:
		return in.past(v, b.request)
	case ask:
		return in.Punctual && b.Kind != commit && b.Kind != fetch && b.Kind != leave && in.past(v, b.request)
	}
	return false
}

// past says that the member will not wait for the answer to that request any more: within one try it only goes forward.
func (in invariants) past(v explore.View, r request) bool {
	l := in.member(v, r.Member)
	if l.Stage == finished || l.Stage == gone || r.Try < l.Try {
		return true
	}
	if r.Kind == beat {
		return false
	}
	now, waits := member{in.Setting, r.Member}.waits(l)
	switch {
	case waits:
		return r.Kind < now.Kind || r.Kind == now.Kind && r.Number < now.Number
	case l.Stage == idle:
		return true
	}
	return r.Kind < commit || r.Kind == commit && r.Number < l.Done
}
