package check

import (
	"fmt"
	"strings"
	"testing"

	"gopherlog/bench/scenario"
)

// The verdict table: V must be zero, m is measured, - does not apply.
const verdicts = `
      at_most_once at_least_once idempotent transactional two_phase_commit
A1    V            V             V          V             V
A2    V            m             V          V             V
A3    V            V             V          V             V
A4    m            V             V          V             V
A5    m            V             V          V             V
A6    m            V             V          V             V
A7    m            m             m          m             m
A8    V            V             V          V             V
A9    m            m             V          V             V
A10   m            m             V          V             V
A11   V            V             V          V             V
A12   m            m             m          m             m
B1    V            V             V          V             V
B2    V            V             V          V             V
B3    m            V             V          V             V
B4    m            V             V          V             V
B5    V            m             m          V             V
B6    m            V             V          V             V
B7    m            V             V          V             V
B8    V            V             V          V             V
B9    V            V             V          V             V
B10   V            V             V          V             V
B11   m            m             m          m             m
B12   V            V             V          V             V
C1    -            -             -          V             V
C2    -            -             -          V             V
C3    -            -             -          V             V
C5    -            -             -          V             V
C7    m            m             m          V             V
C8    -            -             -          V             V
C9    -            -             -          V             V
C10   -            -             -          m             m
C11   -            -             -          V             V
C12   -            -             -          V             V
D1    -            -             -          -             V
D2    -            -             -          -             V
D3    -            -             -          -             V
D4    -            -             -          -             V
D5    -            -             -          -             V
D6    -            -             -          -             V
`

func TestVerdictTable(t *testing.T) {
	signs := map[Demand]string{MustBeZero: "V", Measured: "m", NotApplicable: "-"}
	guarantees := []scenario.Guarantee{scenario.AtMostOnce, scenario.AtLeastOnce, scenario.Idempotent, transactional, twoPhaseCommit}
	got := []string{fmt.Sprintf("%-5s", "")}
	for _, g := range guarantees {
		got[0] += fmt.Sprintf(" %-13s", g)
	}
	for _, id := range RuleIDs() {
		row := fmt.Sprintf("%-5s", id)
		for _, g := range guarantees {
			row += " " + signs[DemandOf(g, id)]
		}
		got = append(got, row)
	}
	want := strings.Split(strings.Trim(verdicts, "\n"), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d rows, not %d", len(got), len(want))
	}
	for i := range want {
		if a, b := strings.Fields(got[i]), strings.Fields(want[i]); strings.Join(a, " ") != strings.Join(b, " ") {
			t.Errorf("got  %s\nwant %s", a, b)
		}
	}
}
