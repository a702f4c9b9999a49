package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*math.Abs(b) }

func TestSummaryOfSixIsTheRangeWithConfidence(t *testing.T) {
	got := Summary([]float64{5, 1, 4, 2, 6, 3})
	if got.Center != 3.5 || got.Lo != 1 || got.Hi != 6 || got.N != 6 || got.Confidence < 0.95 {
		t.Errorf("got %+v, want 3.5 [1, 6] with at least 95 %%", got)
	}
}

func TestSummaryOfFewerClaimsNoConfidence(t *testing.T) {
	if got := Summary([]float64{3, 1, 2}); got != (Interval{Center: 2, Lo: 1, Hi: 3, N: 3}) {
		t.Errorf("got %+v, want the range 2 [1, 3] without confidence", got)
	}
}

// The known values are those of the exact binomial bound: 1-0.05^(1/n) for none
// seen, and for one of ten the root of (1-p)^10 + 10p(1-p)^9 = 0.05.
func TestUpperBoundIsExact(t *testing.T) {
	for _, c := range []struct {
		k, n int64
		want float64
	}{{0, 0, 1}, {0, 1, 0.95}, {0, 10, 0.258866}, {0, 1_000_000, 2.99573e-6}, {1, 10, 0.394163}, {10, 10, 1}} {
		if got := UpperBound(c.k, c.n); !near(got, c.want, 1e-5) {
			t.Errorf("UpperBound(%d, %d) = %g, want %g", c.k, c.n, got, c.want)
		}
	}
}

func TestRatioCancelsWhatABlockShares(t *testing.T) {
	var blocks []Block
	for i := range 8 { // the machine's speed differs tenfold between blocks, the ratio does not
		speed := math.Pow(10, float64(i%2))
		blocks = append(blocks, Block{A: 2 * speed, B: speed})
	}
	if got := Ratio(blocks, 1); !near(got.Center, 2, 1e-9) || !near(got.Lo, 2, 1e-9) || !near(got.Hi, 2, 1e-9) || got.Confidence == 0 {
		t.Errorf("got %+v, want 2 [2, 2]", got)
	}
}

func TestRatioIntervalCoversTheTruthAboutAsOftenAsItSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	covered := 0
	const runs = 150
	for run := range runs {
		var blocks []Block
		for range 10 {
			blocks = append(blocks, Block{A: 1.5 * math.Exp(0.2*rng.NormFloat64()), B: 1})
		}
		if iv := Ratio(blocks, int64(run)); iv.Lo <= 1.5 && 1.5 <= iv.Hi {
			covered++
		}
	}
	if covered < runs*88/100 {
		t.Errorf("covered the true ratio in %d of %d runs, want about 95 %%", covered, runs)
	}
}

func TestDriftNeedsBothSizeAndEvidence(t *testing.T) {
	rising := []float64{1, 1, 1.1, 1, 1.2, 2, 2.1, 2, 2.2, 2}
	if d := DriftTest(rising, 0.2); !d.Drifting || !near(d.Change, 1, 0.1) {
		t.Errorf("a doubling is not seen: %+v", d)
	}
	for name, s := range map[string][]float64{"small": {1, 1.01, 1, 1.01, 1.02, 1.03, 1.02, 1.03}, "noisy": {1, 3, 1, 3, 1, 3, 3, 1}, "short": {1, 9}} {
		if d := DriftTest(s, 0.2); d.Drifting {
			t.Errorf("%s series drifts: %+v", name, d)
		}
	}
}

func TestOrderRunsEveryCellOncePerBlockAndRepeatsFromItsSeed(t *testing.T) {
	a, b := Order(42, 5, 4), Order(42, 5, 6)
	if !slices.Equal(a, b[:len(a)]) {
		t.Error("a longer run does not begin with the shorter one")
	}
	shuffled := false
	for block := range 4 {
		var cells []int
		for _, x := range a[block*5 : block*5+5] {
			if x.Block != block || x.Seed != a[block*5].Seed {
				t.Errorf("block %d: %+v", block, x)
			}
			cells = append(cells, x.Cell)
		}
		shuffled = shuffled || !slices.IsSorted(cells)
		slices.Sort(cells)
		if !slices.Equal(cells, []int{0, 1, 2, 3, 4}) {
			t.Errorf("block %d runs cells %v", block, cells)
		}
	}
	if !shuffled {
		t.Error("no block is shuffled")
	}
}
