package check

import (
	"slices"

	"gopherlog/bench/scenario"
)

// described is what a rule is called and what it counts.
type described struct{ id, name, what, of string }

// rules in the order in which they are reported.
var rules = []described{
	{"A1", "inconsistent offset", "an offset that held two different messages, or held one and then none", "messages read or acknowledged at a known offset"},
	{"A2", "duplicate", "further copies of a message in the log", "messages in the log"},
	{"A3", "phantom", "messages that were never sent, failed for certain, lie in the wrong partition or do not match their checksum", "messages read"},
	{"A4", "lost write", "acknowledged messages that are absent below an offset that was read", "acknowledged messages"},
	{"A5", "unseen", "acknowledged messages that were not read, and that nothing proves absent", "acknowledged messages"},
	{"A6", "lost tail", "acknowledged messages beyond the end that the log had after the faults", "acknowledged messages"},
	{"A7", "loss shape", "where the lost messages of a lane lie: before, between or after those that were delivered", "acknowledged messages"},
	{"A8", "replicas differ", "batches that are not byte for byte the same at all replicas that hold them", "batches that replicas hold"},
	{"A9", "reordered", "messages of a lane that stand before an earlier one", "messages in the log"},
	{"A10", "out of real time", "messages that stand before one that was acknowledged when they were sent", "messages acknowledged at a known offset"},
	{"A11", "end went back", "end offsets that were smaller than an earlier answer of the same or an older leader epoch", "end offset answers"},
	{"A12", "behind", "replicas that still lack something after the final read", "replicas"},

	{"B1", "skipped within a poll", "neighbours of one poll between which the log holds a message that the reader did not get", "neighbours within a poll"},
	{"B2", "went back within a poll", "messages of one poll that stand at or before the one delivered before them", "neighbours within a poll"},
	{"B3", "skipped between polls", "polls that begin behind a message which the reader did not get, without a reset", "neighbours between polls"},
	{"B4", "went back between polls", "polls that begin at or before the message delivered last, without a reset", "neighbours between polls"},
	{"B5", "delivered again after a commit", "messages delivered to a group although a commit that covers them had returned before", "deliveries to groups"},
	{"B6", "committed and never delivered", "messages below a group's committed position that no member was given", "messages below committed positions"},
	{"B7", "premature commit", "commits beyond what the member had processed", "commits"},
	{"B8", "position went back", "positions told by the group that are smaller than one committed before", "positions told"},
	{"B9", "zombie commit", "commits accepted although a later generation had given the partition away before they were asked", "accepted commits"},
	{"B10", "split ownership", "times at which two members of one generation held the same partition", "assignments"},
	{"B11", "position after an abort", "aborted transactions behind which the member went on elsewhere than at their first input", "aborted transactions with inputs"},
	{"B12", "stuck", "partitions that a group stopped reading before their end", "partitions of groups"},

	{"C1", "aborted read", "messages of aborted transactions that a committed read delivered", "messages of transactions that committed reads delivered"},
	{"C2", "early read", "messages delivered before the commit of their transaction was asked, or without that it ever was", "messages of transactions read during the run"},
	{"C3", "torn transaction", "transactions of which a part is readable and a part is not, or that were committed and are gone", "transactions"},
	{"C5", "circular reads", "transactions that read, each through others, what they wrote themselves", "reads of one transaction from another"},
	{"C7", "outputs of an input", "inputs with no readable output, or with more than one", "inputs below the group's position"},
	{"C8", "offsets without outputs", "transactions of which the outputs are readable and the offsets not committed, or the other way round", "transactions with inputs"},
	{"C9", "zombie write", "transactions of a fenced session that were committed, or became readable, though asked after the fence", "transactions of transactional ids that were taken over"},
	{"C10", "late end marker", "transactions under C1 or C3 whose predecessor's end was in doubt", "transactions under C1 and C3"},
	{"C11", "hanging transaction", "partitions whose last stable offset stood still below their end for longer than a transaction may", "partitions"},
	{"C12", "balance", "producers whose readable messages do not add up to those of their committed transactions", "producers with transactions"},

	{"D1", "half commit", "transactions that one participant committed and another aborted", "transactions with an outcome"},
	{"D2", "in doubt", "promises of participants without an outcome", "promises"},
	{"D3", "applied twice", "outcomes that a participant applied more than once", "outcomes at participants"},
	{"D4", "decision changed", "transactions that were decided, or ended by one participant, both ways", "transactions with an outcome"},
	{"D5", "commit without a promise", "commits at a participant that had promised nothing", "commits at participants"},
	{"D6", "commit without a decision", "commits at a participant that no coordinator decided", "commits at participants"},
}

// RuleIDs lists the rules in order.
func RuleIDs() []string {
	ids := make([]string, len(rules))
	for i, r := range rules {
		ids[i] = r.id
	}
	return ids
}

// Describe names a rule and says in a phrase what it counts; ok is false for an unknown id.
func Describe(id string) (name, what string, ok bool) {
	for _, r := range rules {
		if r.id == id {
			return r.name, r.what, true
		}
	}
	return "", "", false
}

const (
	transactional  scenario.Guarantee = "transactional"
	twoPhaseCommit scenario.Guarantee = "two_phase_commit"
)

// must lists what each guarantee promises: these counts have to be zero.
var must = map[scenario.Guarantee][]string{
	scenario.AtMostOnce:  {"A1", "A2", "A3", "A8", "A11", "B1", "B2", "B5", "B8", "B9", "B10", "B12"},
	scenario.AtLeastOnce: {"A1", "A3", "A4", "A5", "A6", "A8", "A11", "B1", "B2", "B3", "B4", "B6", "B7", "B8", "B9", "B10", "B12"},
	scenario.Idempotent:  {"A1", "A2", "A3", "A4", "A5", "A6", "A8", "A9", "A10", "A11", "B1", "B2", "B3", "B4", "B6", "B7", "B8", "B9", "B10", "B12"},
	transactional:        committedMust,
	twoPhaseCommit:       append(slices.Clone(committedMust), "D1", "D2", "D3", "D4", "D5", "D6"),
}

var committedMust = []string{"A1", "A2", "A3", "A4", "A5", "A6", "A8", "A9", "A10", "A11", "B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "B10", "B12",
	"C1", "C2", "C3", "C5", "C7", "C8", "C9", "C11", "C12"}

// DemandOf is the verdict table: what guarantee g asks of rule id. A5 never proves a violation: where it must be zero and is not, the
// verdict is inconclusive. What a guarantee without transactions makes of a pipeline (C7) is counted.
func DemandOf(g scenario.Guarantee, id string) Demand {
	zero, ok := must[g]
	if _, _, known := Describe(id); !ok || !known {
		return NotApplicable
	}
	switch {
	case slices.Contains(zero, id):
		return MustBeZero
	case id[0] == 'D' && g != twoPhaseCommit, id[0] == 'C' && id != "C7" && !hasTransactions(g):
		return NotApplicable
	}
	return Measured
}

func hasTransactions(g scenario.Guarantee) bool { return g == transactional || g == twoPhaseCommit }

// required are the rules without whose evidence the verdict is inconclusive: those that make guarantee g what it is, and where a group
// was to read or a pipeline to work, that it did.
func required(g scenario.Guarantee, o Options, grouped bool) (ids []string) {
	if o.Require != nil {
		return o.Require
	}
	if o.Replicas != nil {
		ids = append(ids, "A8")
	}
	if o.Votes != nil { // the brokers were to write down how they voted
		ids = append(ids, "D1")
	}
	if hasTransactions(g) {
		ids = append(ids, "C1", "C3")
	}
	if grouped {
		ids = append(ids, "B6")
	}
	if len(o.Transforms) > 0 {
		ids = append(ids, "C7")
		if hasTransactions(g) {
			ids = append(ids, "C8")
		}
	}
	return ids
}
