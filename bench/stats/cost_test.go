package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// measured makes blocks of transactions that cost a + b·n, with noise, beside records that cost plain.
func measured(rng *rand.Rand, blocks int, a, b, plain, noise float64, sizes ...float64) []CostBlock {
	var out []CostBlock
	for range blocks {
		x := CostBlock{Plain: plain * math.Exp(noise*rng.NormFloat64())}
		for _, n := range sizes {
			x.Costs = append(x.Costs, Cost{n, (a + b*n) * math.Exp(noise*rng.NormFloat64())})
		}
		out = append(out, x)
	}
	return out
}

func TestFitFindsWhatATransactionCostsExactlyWithoutNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	l, ok := FitCost(measured(rng, 8, 0.045, 4e-6, 5e-6, 0, 1, 10, 100, 1000), 1)
	if !ok || !near(l.A.Center, 0.045, 1e-9) || !near(l.B.Center, 4e-6, 1e-6) || !near(l.Half.Center, 0.045/(2*5e-6-4e-6), 1e-6) || l.Off > 1e-9 || !l.Over {
		t.Errorf("%+v", l)
	}
	if l.A.Confidence == 0 || l.A.Lo > l.A.Center || l.A.Hi < l.A.Center || l.A.N != 8 {
		t.Errorf("%+v", l.A)
	}
}

func TestFitWithoutAPlainRateHalvesThatOfLargeTransactions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	l, ok := FitCost(measured(rng, 3, 0.001, 2e-6, 0, 0, 1, 1000), 1)
	if !ok || l.Over || !near(l.Half.Center, 500, 1e-6) || l.Half.Confidence != 0 {
		t.Errorf("%v %+v", ok, l)
	}
}

func TestFitIntervalCoversTheTruthAboutAsOftenAsItSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const runs = 30
	var a, half int
	for run := range runs {
		l, ok := FitCost(measured(rng, 10, 0.01, 5e-6, 5e-6, 0.1, 1, 10, 100, 1000), int64(run))
		if !ok {
			t.Fatal("no fit")
		}
		if l.A.Lo <= 0.01 && 0.01 <= l.A.Hi {
			a++
		}
		if l.Half.Lo <= 2000 && 2000 <= l.Half.Hi {
			half++
		}
	}
	if a < runs*80/100 || half < runs*80/100 {
		t.Errorf("covered a in %d and n50 in %d of %d runs, want about 95 %%", a, half, runs)
	}
}

func TestFitOfOneSizeIsRefusedAndCostsAreNeverNegative(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	if _, ok := FitCost(measured(rng, 6, 1, 1, 1, 0, 10), 1); ok {
		t.Error("a line through one size")
	}
	l, ok := FitCost([]CostBlock{{Costs: []Cost{{1, 1}, {10, 20}}}}, 1) // more than proportional: a would be negative
	if !ok || l.A.Center != 0 || l.B.Center <= 0 || l.Half.Center != 0 {
		t.Errorf("%+v", l)
	}
	l, ok = FitCost([]CostBlock{{Costs: []Cost{{1, 2}, {10, 1}}}}, 1)
	if !ok || l.B.Center != 0 || !math.IsInf(l.Half.Center, 1) {
		t.Errorf("%+v", l)
	}
	slow := measured(rng, 1, 0.01, 5e-6, 2e-6, 0, 1, 100) // large transactions never reach half of the plain rate
	if l, _ := FitCost(slow, 1); !math.IsInf(l.Half.Center, 1) {
		t.Errorf("%+v", l.Half)
	}
}

func TestASideThatNeverReachesHalfOfItsRateCounts(t *testing.T) {
	side := func(blocks int, a, b float64) map[int]CostBlock {
		out := map[int]CostBlock{}
		for i := range blocks {
			out[i] = CostBlock{Plain: 1e-5, Costs: []Cost{{1, a + b}, {1000, a + 1000*b}}}
		}
		return out
	}
	for _, blocks := range []int{3, 6} {
		iv, ok := HalfRatio(side(blocks, 0.001, 1e-5), side(blocks, 0.01, 1e-5), 1)
		if !ok || iv.N != blocks || math.Abs(iv.Center-0.1) > 1e-6 || iv.Lo > iv.Center || iv.Hi < iv.Center || (iv.Confidence > 0) != (blocks == 6) {
			t.Errorf("%d blocks: %+v, %v", blocks, iv, ok)
		}
		if iv, ok := HalfRatio(side(blocks, 0.001, 1e-5), side(blocks, 0.01, 3e-5), 1); !ok || iv.Hi > 1e-6 {
			t.Errorf("beside one that never does: %+v, %v", iv, ok)
		}
		if iv, ok := HalfRatio(side(blocks, 0.001, 3e-5), side(blocks, 0.01, 3e-5), 1); ok {
			t.Errorf("neither does: %+v", iv)
		}
	}
	if iv, ok := HalfRatio(side(3, 0.001, 1e-5), nil, 1); ok {
		t.Errorf("beside nothing: %+v", iv)
	}
}
