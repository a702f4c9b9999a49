package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"gopherlog/bench/fault"
	"gopherlog/bench/result"
)

func TestAClusterOfSomebodyElsesIsToldAsFarAsItIsKnown(t *testing.T) {
	for want, sys := range map[string]result.System{
		"3 nodes, RF 3, tier T1":                        {Name: "gopherlog", Nodes: 3, ReplicationFactor: 3, Tier: "T1"},
		"RF 2, durability as its owner runs it":         {Name: "external", ReplicationFactor: 2},
		"RF not known, durability as its owner runs it": {Name: "external"},
		"1 node, RF not known, tier T2":                 {Name: "kafka", Nodes: 1, Tier: "T2"},
	} {
		if got := setUp(sys); got != want {
			t.Errorf("%+v: %q, want %q", sys, got, want)
		}
	}
}

func TestErrorsOfDifferentPortsAreOne(t *testing.T) {
	if got := plainError("dial tcp 127.0.1.1:4321: refused\nthen closed"); got != "dial tcp 127.0.1.1: refused; then closed" {
		t.Errorf("%q", got)
	}
}

func TestReasonsAreCountedWithoutTheirFigures(t *testing.T) {
	got := kindsOf([]string{"it fell behind: p99 2ms", "it fell behind: p99 3ms", "a sender ended early"})
	if d := cmp.Diff([]string{"it fell behind", "a sender ended early"}, got); d != "" {
		t.Error(d)
	}
}

func TestATimelineEndsWithTheLoad(t *testing.T) {
	second := func(sent, acked int64) result.Second { return result.Second{Sent: sent, Acked: acked} }
	for name, c := range map[string]struct {
		rows []result.Second
		want int
	}{
		"the drain":          {[]result.Second{second(300, 300), second(300, 280), second(3, 9), second(0, 0)}, 2},
		"a stall at the end": {[]result.Second{second(300, 300), second(300, 0), second(300, 0)}, 3},
		"answers come late":  {[]result.Second{second(300, 0), second(0, 300)}, 2},
		"all of it":          {[]result.Second{second(0, 0)}, 1},
	} {
		if got := len(whileSending(c.rows)); got != c.want {
			t.Errorf("%s: %d seconds, want %d", name, got, c.want)
		}
	}
}

func TestNamesOfRowsHaveRoomBesideTheirMarks(t *testing.T) {
	for _, lo := range []float64{0.9, 0.2, 0.001} {
		p := newPlot("", "")
		p.X.Min, p.X.Max, p.X.Scale = lo, 2, plot.LogScale{}
		makeRoom(&p.X, 90, 50, 340)
		if at := 340 * p.X.Norm(lo); at < 89.9 {
			t.Errorf("the lowest mark of %g stands %.0f points from the left", lo, at)
		}
		if at := 340 * p.X.Norm(2); at > 290.1 {
			t.Errorf("beside the highest mark above %g are %.0f points", lo, 340-at)
		}
	}
}

func TestTheLabelOfALogarithmicAxisTakesNoWidthFromItsPlot(t *testing.T) {
	p := newPlot("seconds for which a reader got nothing of a partition with waiting records", "")
	p.HideY()
	setLog(&p.X, 0.001, 5)
	makeRoom(&p.X, 430, 0, fullWidth-rightMargin)
	single(p, fullWidth, 100)
	if area := p.DataCanvas(draw.New(vgsvg.New(fullWidth, 100))); area.Max.X < fullWidth-2*rightMargin {
		t.Errorf("the plot ends at %.0f of %.0f points", area.Max.X, fullWidth)
	}
}

func TestFaultsAreNamedByWhatTheyHit(t *testing.T) {
	for want, e := range map[string]fault.Event{
		"worker 0 killed": {Kind: "kill", Target: "worker(0)"},
		"leader of load/0 and half of the clients cut off":   {Kind: "partition", Shape: "halves", Target: "leader(load/0)"},
		"transaction coordinator killed at voted/after-vote": {Kind: "kill", Target: "txn_coordinator", Failpoint: "voted/after-vote"},
		"node 2 frozen": {Kind: "pause", Target: "node(2)"},
	} {
		if got := struck(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
