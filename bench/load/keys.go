package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"gopherlog/bench/scenario"
)

// keys draws message keys. One goroutine at a time.
type keys struct {
	draw func() int64 // nil: no keys
}

func newKeys(k scenario.Keys, seed int64, producer, producers int) *keys {
	rnd := rand.New(rand.NewPCG(uint64(seed), 0x6b6579<<16|uint64(producer)))
	n := int64(k.Space)
	switch k.Dist {
	case "none":
		return &keys{}
	case "sequential":
		at := int64(producer) - int64(producers)
		return &keys{func() int64 { at = (at + int64(producers)) % n; return at }}
	case "uniform":
		return &keys{func() int64 { return rnd.Int64N(n) }}
	case "zipf":
		return &keys{newZipf(n, k.Theta, rnd).draw}
	case "hotset":
		hot := max(1, int64(k.HotShare*float64(n)))
		return &keys{func() int64 {
			if hot == n || rnd.Float64() < k.HotLoad {
				return rnd.Int64N(hot)
			}
			return hot + rnd.Int64N(n-hot)
		}}
	}
	panic(fmt.Sprintf("load: key distribution %q", k.Dist))
}

// next appends a key to b[:0]; nil where messages have none.
func (k *keys) next(b []byte) []byte {
	if k.draw == nil {
		return nil
	}
	b = append(b[:0], "key-"...)
	return strconv.AppendInt(b, k.draw(), 10)
}

// zipf draws rank r in [0, n) with a weight of (r+1)^-theta, for any theta >= 0, by rejection-inversion: constant time, no table
// (Hörmann and Derflinger 1996). Low ranks are the popular ones.
type zipf struct {
	n, theta     float64
	hX1, hN, cut float64
	rnd          *rand.Rand
}

func newZipf(n int64, theta float64, rnd *rand.Rand) *zipf {
	z := &zipf{n: float64(n), theta: theta, rnd: rnd}
	z.hX1 = z.integral(1.5) - 1
	z.hN = z.integral(z.n + 0.5)
	z.cut = 2 - z.inverse(z.integral(2.5)-z.weight(2))
	return z
}

func (z *zipf) weight(x float64) float64 { return math.Exp(-z.theta * math.Log(x)) }

// integral is the antiderivative of weight, written so that theta = 1 is no special case.
func (z *zipf) integral(x float64) float64 {
	l := math.Log(x)
	return ratioExpm1((1-z.theta)*l) * l
}

func (z *zipf) inverse(y float64) float64 {
	t := max(y*(1-z.theta), -1)
	return math.Exp(ratioLog1p(t) * y)
}

func (z *zipf) draw() int64 {
	for {
		u := z.hN + z.rnd.Float64()*(z.hX1-z.hN)
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.n)
		if k-x <= z.cut || u >= z.integral(k+0.5)-z.weight(k) {
			return int64(k) - 1
		}
	}
}

// ratioExpm1 is (e^x - 1) / x, near 1 for small x.
func ratioExpm1(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Expm1(x) / x
	}
	return 1 + x/2
}

// ratioLog1p is ln(1 + x) / x, near 1 for small x.
func ratioLog1p(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Log1p(x) / x
	}
	return 1 - x/2
}
