package check

import (
	"strings"
	"testing"

	"gopherlog/bench/replicas"
)

func TestReplicasThatWereToBeReadAndWereNotLeaveTheVerdictOpen(t *testing.T) {
	for name, c := range map[string]struct {
		held *replicas.Report
		want Status
		why  string
	}{
		"all read":    {agreeing(), Pass, ""},
		"none read":   {&replicas.Report{Unread: []string{"the network was not mended"}}, Inconclusive, "A8 was not checked: of no partition two replicas were read: the network was not mended"},
		"one of each": {alone(), Inconclusive, "A8 was not checked"},
		"not asked":   {nil, Pass, ""},
	} {
		w := perfect()
		w.held = c.held
		v := w.judge(t, strict())
		if v.Status != c.want || !strings.Contains(strings.Join(v.Reasons, "; "), c.why) {
			t.Errorf("%s: %s %q", name, v.Status, v.Reasons)
		}
	}
}

// alone is a report in which every partition has one copy.
func alone() *replicas.Report {
	r := agreeing()
	for i := range r.Partitions {
		r.Partitions[i].Copies = r.Partitions[i].Copies[:1]
	}
	return r
}

func TestADamagedReplicaIsNamedWithNodeAndOffset(t *testing.T) {
	w := perfect()
	w.held = alone() // its own checksum says it: no second one is needed
	w.held.Partitions[2].Different = 40
	for i := range 40 {
		w.held.Partitions[2].Differences = append(w.held.Partitions[2].Differences, replicas.Difference{Node: 1, Offset: int64(i), Kind: replicas.Damaged, What: "the bytes have checksum 1"})
	}
	v := w.judge(t, strict())
	r := rule(t, v, "A8")
	if v.Status != Violated || r.Count != 40 || len(r.Examples) != MaxExamples || r.Shapes[replicas.Damaged] != 40 {
		t.Errorf("%s %+v", v.Status, r)
	}
	if got := r.Examples[3].String(); got != "in/2 offset 3: node 1: the bytes have checksum 1" {
		t.Errorf("%q", got)
	}
}

func TestAPartitionThatWasNotReadToItsEndCallsNobodyLate(t *testing.T) {
	w := perfect()
	w.held.Partitions[0].Copies[0].End, w.held.Partitions[0].Stopped = 100, "the time for it was over"
	if v := w.judge(t, strict()); v.Status != Pass || rule(t, v, "A12").Count != 0 || rule(t, v, "A12").Denominator != 6 {
		t.Errorf("%s %+v", v.Status, rule(t, v, "A12"))
	}
}
