package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gopherlog/bench/load"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
)

// What is overwritten must fit into one row of the terminal: the next one would begin in the middle of it.
func TestALiveLineNeverNeedsASecondRow(t *testing.T) {
	for _, cols := range []int{20, 80, 200} {
		var out bytes.Buffer
		p := &progress{w: &out, live: true, cols: func() int { return cols }}
		cell := scenario.Cell{}
		cell.Name, cell.Guarantee = "price", scenario.TwoPhaseCommit
		p.TrialStarts(1, 30, cell, 0)
		for range 20 {
			p.TrialGlance(load.Progress{Phase: "steady", At: 7 * time.Second, Acked: 898, P50: 2 * time.Millisecond, P99: 900 * time.Millisecond, Failed: 140})
		}
		p.Note("the load client fell behind its schedule: " + strings.Repeat("again and ", 30))
		p.TrialEnds(result.Trial{Invalid: []string{"the load client fell behind its schedule: slot lateness p99 236.06ms, more than 10 % of the ack p99 376.18ms"}}, 10*time.Second, time.Minute)
		for row := range strings.SplitSeq(strings.ReplaceAll(out.String(), "\r", "\n"), "\n") {
			if n := utf8.RuneCountInString(row); n > cols {
				t.Errorf("%d columns: a row of %d: %q", cols, n, row)
			}
		}
	}
}

func TestElsewhereALineStaysALine(t *testing.T) {
	var out bytes.Buffer
	p := &progress{w: &out}
	p.Note(strings.Repeat("long ", 100))
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q", out.String())
	}
}
