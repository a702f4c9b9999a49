package price

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
)

// Creates lists everything that the run creates, and what becomes of it, a paragraph each.
func (p *Plan) Creates() []string {
	copies := "as many copies as the cluster makes by default"
	if p.Copies > 0 {
		copies = fmt.Sprintf("%d copies", p.Copies)
	}
	out := []string{fmt.Sprintf("topic %sTIME-try: 1 partition, %s. One record for each right that is tried. Removed before the load begins.", p.Stem(), copies)}
	for _, s := range p.Scenarios {
		cells := s.Expand()
		sent := fmt.Sprintf("at most %.0f records", p.Rate*s.Phases.Sending().Seconds()) // a pipeline makes as many again
		if s.Load.Model == "closed" {
			sent = "as many records as the cluster takes in " + s.Phases.Sending().String()
		}
		for _, t := range s.Topics {
			out = append(out, fmt.Sprintf("%d topics %sTIME-bBB-cCC-%s, BB 01 to %02d, CC 01 to %02d, one after the other: %d partitions, %s%s; %s of %d bytes each. Removed when its trial ends.",
				len(cells)*s.Runs.Repeats, p.Stem(), t.Name, s.Runs.Repeats, len(cells), t.Partitions, copies, settings(t.Config), sent, p.Bytes))
		}
	}
	if p.Workers > 0 {
		out = append(out, fmt.Sprintf("%d groups %sTIME-bBB-cCC-%s of %s, one for each trial, and %sTIME-try to try the right. Removed at the end.",
			len(p.Scenarios[0].Expand())*p.Blocks, p.Stem(), groupName, count(p.Workers, "member", "members"), p.Stem()))
	}
	return append(append(out, p.createsIDs()...), p.createsLogs()...)
}

// createsIDs tells of transactional ids: no client can remove one.
func (p *Plan) createsIDs() []string {
	var out []string
	for _, g := range p.Priced() {
		if !g.Transacts() {
			continue
		}
		trials := 0
		for _, s := range p.Scenarios {
			trials += s.Runs.Repeats
		}
		workers := 0
		if p.Workers > 0 {
			workers = p.Blocks * p.Workers
		}
		each := "producer"
		if workers > 0 {
			each = "producer and worker"
		}
		out = append(out, fmt.Sprintf("%d transactional ids %s…, one for each %s of a trial of %s, and one to try the right. No client can remove them; the cluster forgets them by itself (transactional.id.expiration.ms).",
			trials*p.Producers+workers+1, p.idStem(g), each, g))
	}
	return out
}

// logs are the internal topics that the run needs, each with what it is for.
func (p *Plan) logs() (out [][2]string) {
	for _, g := range p.transacting() {
		if g == scenario.TwoPhaseCommit {
			out = append(out, [2]string{load.VotedLog, "transaction that commits by vote"})
		} else {
			out = append(out, [2]string{load.TransactionLog, "transaction"})
		}
	}
	if p.Workers > 0 {
		out = append(out, [2]string{load.GroupLog, "consumer group"})
	}
	return out
}

// createsLogs tells of the internal topics that the cluster makes because of the run.
func (p *Plan) createsLogs() (out []string) {
	for _, log := range p.logs() {
		if p.Facts.Internal.Has(log[0]) {
			continue
		}
		unless := ""
		if slices.Contains(p.Facts.Internal.Hidden, log[0]) {
			unless = " Or it is there already: you may not see whether it is."
		}
		out = append(out, fmt.Sprintf("topic %s: not by us, but by the cluster, with its first %s and as its own settings say. It stays.%s", log[0], log[1], unless))
	}
	return out
}

// Touches lists what the run changes beside what it creates, and what it only looks at, a paragraph each.
func (p *Plan) Touches() (out []string) {
	var there []string
	for _, log := range p.logs() {
		if p.Facts.Internal.Has(log[0]) {
			there = append(there, log[0])
		}
	}
	if len(there) > 0 {
		what := "the cluster writes down its transactions there"
		if p.Workers > 0 {
			what = "the cluster writes down its transactions, groups and committed offsets there"
		}
		out = append(out, fmt.Sprintf("%s: %s, as of any client's.", strings.Join(there, ", "), what))
	}
	if n := p.producerIDs(); n > 0 {
		out = append(out, fmt.Sprintf("the cluster's producer ids: about %d are drawn, which nobody gives back. There are 2^63.", n))
	}
	return append(out, p.disks(), "nothing else. The names of topics, groups and transactional ids are listed, to find what earlier runs left; no setting, ACL or quota is changed, and no other topic is written or read.")
}

// producerIDs is how many producers take an id, once each.
func (p *Plan) producerIDs() (n int) {
	for _, s := range p.Scenarios {
		for _, c := range s.Expand() {
			if c.Guarantee == scenario.Idempotent || c.Guarantee.Transacts() {
				n += c.Runs.Repeats * p.Producers
			}
			if c.Guarantee.Transacts() && len(s.Consumers.Groups) > 0 {
				n += c.Runs.Repeats * p.Workers
			}
		}
	}
	return n
}

// disks is what the largest topic holds in one copy, as far as that can be told.
func (p *Plan) disks() string {
	text := ""
	for _, s := range p.Scenarios {
		if s.Load.Model == "open" {
			text = fmt.Sprintf("disks: at most %s for each copy of a topic", size(int64(p.Rate*s.Phases.Sending().Seconds())*int64(p.Bytes)))
			continue
		}
		text += fmt.Sprintf(", at saturation what the cluster takes in %s: its retention of %s a partition acts only as often as the cluster looks (Kafka: every five minutes)",
			s.Phases.Sending(), s.Topics[0].Config["retention.bytes"])
	}
	return text + ". A cluster frees the disk of a removed topic by itself (Kafka: a minute later, file.delete.delay.ms)."
}

// size is a number of bytes for people.
func size(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.0f KiB", math.Ceil(float64(bytes)/(1<<10)))
}

// idStem begins the transactional ids of a guarantee.
func (p *Plan) idStem(g scenario.Guarantee) string {
	if g == scenario.TwoPhaseCommit {
		return VotedPrefix + p.Stem()
	}
	return p.Stem()
}

func settings(config map[string]string) string {
	var out []string
	for k, v := range config {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	if len(out) == 0 {
		return ""
	}
	return ", " + strings.Join(out, ", ")
}
