package price

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
)

func TestARateWhoseTrialsCannotBeJudgedIsRefusedWithWhatCan(t *testing.T) {
	for _, x := range []struct {
		rate     float64
		steady   time.Duration
		blocks   int
		saturate bool
		want     string // "": it is taken
	}{
		{1000, 4500 * time.Millisecond, 6, false, ""},
		{20, 2 * time.Second, 6, false, "20 records a second are about 53 in a trial, and fewer than 600 cannot be judged: -rate 226 would do, or -steady 23s at this rate, of which 3 blocks instead of 6 end within 10m"},
		{20, 2 * time.Second, 2, false, "-rate 226 would do, or -steady 23s at this rate"},
		{5, 2 * time.Second, 2, false, "-rate 226 would do (a longer trial would not: its measured part is 1m at most)"},
		{10, 2 * time.Second, 2, true, "-rate 226 would do (trials long enough for this rate would not end within 10m)"},
		{1000, time.Minute, 2, true, "one trial of each guarantee with a measured part of 1m does not end within 10m: -steady 38s would do"},
		{8, time.Minute, 2, true, "does not end within 10m: price fewer with -guarantees, or leave out -saturate"},
	} {
		o := options("a:1")
		o.Rate, o.Steady, o.Blocks, o.Saturate = x.rate, x.steady, x.blocks, x.saturate
		got := ""
		if err := o.Validate(); err != nil {
			got = err.Error()
		}
		if x.want == "" && got != "" || !strings.HasSuffix(got, x.want) {
			t.Errorf("%+v: %s", x, got)
		}
	}
}

// Whatever is asked for: what the refusal suggests is taken, and its run ends in time.
func TestWhatIsSuggestedForTooSmallARateIsTaken(t *testing.T) {
	rate, steady := regexp.MustCompile(`-rate (\S+) would do`), regexp.MustCompile(`-steady (\w+)`)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	suggested := 0
	for range 3_000 {
		o := options("a:1")
		o.Rate = 1 + 300*r.Float64()*r.Float64()
		o.Steady = time.Duration(100+r.IntN(60_000-100)) * time.Millisecond
		if r.IntN(2) == 0 {
			o.Steady = o.Steady.Round(time.Second) + time.Second
			o.Steady = min(o.Steady, mostSteady)
		}
		o.Blocks, o.Saturate, o.Workers = 1+r.IntN(mostBlocks), r.IntN(3) == 0, r.IntN(3)
		o.Guarantees = Guarantees[1 : 2+r.IntN(4)]
		err := o.Validate()
		if err == nil {
			ends(t, o)
			continue
		}
		text := err.Error()
		if m := rate.FindStringSubmatch(text); m != nil {
			more := o
			if more.Rate, err = strconv.ParseFloat(m[1], 64); err != nil || more.Rate <= o.Rate || more.Validate() != nil {
				t.Fatalf("%+v: %s: %v, %v", o, text, err, more.Validate())
			}
			ends(t, more)
			suggested++
		}
		if m := steady.FindStringSubmatch(text); m != nil && !strings.Contains(text, "price fewer") {
			other := o
			if other.Steady, err = time.ParseDuration(m[1]); err != nil || other.Steady > mostSteady || other.Validate() != nil {
				t.Fatalf("%+v: %s: %v, %v", o, text, err, other.Validate())
			}
			ends(t, other)
			suggested++
		}
		if strings.Contains(text, "price fewer") {
			fewer := o
			fewer.Guarantees, fewer.Saturate = []scenario.Guarantee{scenario.AtLeastOnce}, false
			if fewer.inTime() != nil {
				t.Fatalf("%+v: %s: %v", o, text, fewer.inTime())
			}
			suggested++
		}
		if !rate.MatchString(text) && !strings.Contains(text, "-steady") && !strings.Contains(text, "price fewer") {
			t.Fatalf("%+v: %s suggests nothing", o, text)
		}
	}
	if suggested < 300 {
		t.Errorf("only %d suggestions were tried", suggested)
	}
}

// ends checks that a block of each scenario ends in time.
func ends(t *testing.T, o Options) {
	t.Helper()
	scenarios := time.Duration(1)
	block := time.Duration(len(o.Guarantees)) * (o.Steady + o.warmup() + trialExtra + cooldown)
	if o.Saturate {
		scenarios = 2
	}
	if block > (MostTime-spare)/scenarios {
		t.Fatalf("%+v: a block of %s", o, block)
	}
}

func TestBlocksThatDoNotFitAreCountedOut(t *testing.T) {
	o := options("a:1")
	o.Rate, o.Steady, o.Blocks = 20, 23*time.Second, 6
	p, err := NewPlan(o, load.Facts{VotedPrefix: VotedPrefix})
	if err != nil {
		t.Fatal(err)
	}
	if n, short := p.Trials(); n != 15 || short != 3 || p.Takes() > MostTime || o.blocks() != 3 {
		t.Errorf("%d trials, %d blocks too many, %s, %d", n, short, p.Takes(), o.blocks())
	}
}
