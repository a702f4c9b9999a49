package load

import (
	"fmt"
	"math/rand/v2"
	"time"

	"gopherlog/bench/scenario"
)

// Arrivals is a schedule fixed in advance: each call tells the next intended time. Times never go back.
type Arrivals interface{ Next() time.Duration }

// constant spaces its slots evenly. The n-th is computed from n, so that no rounding adds up.
type constant struct {
	period float64 // nanoseconds
	offset float64
	n      int64
}

func (c *constant) Next() time.Duration {
	t := c.offset + float64(c.n)*c.period
	c.n++
	return time.Duration(t)
}

// poisson draws exponential gaps: many independent sources look like that.
type poisson struct {
	mean float64 // nanoseconds
	at   float64
	rnd  *rand.Rand
}

func (p *poisson) Next() time.Duration {
	p.at += p.rnd.ExpFloat64() * p.mean
	return time.Duration(p.at)
}

// NewArrivals is the schedule of producer i of n, which together offer l.Rate. Equal seeds give equal schedules.
func NewArrivals(l scenario.Load, seed int64, i, n int) Arrivals {
	mean := float64(n) / float64(l.Rate) * float64(time.Second)
	switch l.Arrival {
	case "constant":
		return &constant{period: mean, offset: mean * float64(i) / float64(n)}
	case "poisson":
		return &poisson{mean: mean, rnd: rand.New(rand.NewPCG(uint64(seed), 0x617272<<16|uint64(i)))}
	}
	panic(fmt.Sprintf("load: arrival %q", l.Arrival))
}
