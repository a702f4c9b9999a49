package suite

import (
	"testing"
	"time"

	"gopherlog/bench/hdr"
	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
)

// What was aborted is acknowledged and never read: readers do not fall behind by it.
func TestReadersDoNotLagByWhatWasAborted(t *testing.T) {
	quiet := hdr.Merge(hdr.NewRecorder(time.Second))
	o := &load.Outcome{Ack: quiet, Visible: quiet, Seconds: []load.Tick{
		{At: 0, Acked: 100, Read: 60},
		{At: time.Second, Acked: 100, Aborted: 50, Read: 80},
		{At: 2 * time.Second, Acked: 100, Aborted: 20, Read: 90},
	}}
	tr := &oneTrial{run: &run{}, outcome: o}
	tr.cell.Load.ReadAlong = true
	for i, want := range []int64{40, 10, 0} {
		if got := tr.seconds()[i].Lag; got != want {
			t.Errorf("second %d: readers lag by %d records, want %d", i, got, want)
		}
	}
}

// A cluster that is kept serves scenarios that come later: they read what its nodes wrote down of votes.
func TestAKeptClusterTellsOfVotesToLaterScenarios(t *testing.T) {
	plain := scenario.Cell{Scenario: scenario.Scenario{Runs: scenario.Runs{FreshCluster: true}, Guarantee: scenario.Idempotent}}
	s := &run{cells: []scenario.Cell{plain}}
	if s.opensControl(plain) {
		t.Error("a cluster of one trial without votes opens its control port")
	}
	plain.Runs.FreshCluster = false
	if !s.opensControl(plain) {
		t.Error("a kept cluster does not open its control port")
	}
}
