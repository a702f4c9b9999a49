package check

import "gopherlog/bench/scenario"

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
	{"A9", "reordered", "messages of a lane that stand before an earlier one", "messages in the log"},
	{"A11", "end went back", "end offsets that were smaller than an earlier answer of the same or an older leader epoch", "end offset answers"},
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

// DemandOf is the verdict table: what guarantee g asks of rule id. A5 never proves a violation: where it must be zero and is not, the
// verdict is inconclusive.
func DemandOf(g scenario.Guarantee, id string) Demand {
	must := map[scenario.Guarantee]string{
		scenario.AtMostOnce:  " A1 A2 A3 A11 ",
		scenario.AtLeastOnce: " A1 A3 A4 A5 A6 A11 ",
		scenario.Idempotent:  " A1 A2 A3 A4 A5 A6 A9 A11 ",
	}
	zero, ok := must[g]
	if _, _, known := Describe(id); !ok || !known {
		return NotApplicable
	}
	for i := 0; i+len(id)+2 <= len(zero); i++ {
		if zero[i:i+len(id)+2] == " "+id+" " {
			return MustBeZero
		}
	}
	return Measured
}
