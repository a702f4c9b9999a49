package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	testPoint  = Register("test/point", "nothing, in tests")
	otherPoint = Register("test/other", "nothing, in tests")
)

func TestNilAndUnarmedSetsNeverFire(t *testing.T) {
	var none *Set
	if err := none.Hit(testPoint); err != nil {
		t.Fatal(err)
	}
	if on, _ := none.Sabotage(AppendTwice); on {
		t.Fatal("a nil set has a sabotage switch on")
	}
	none.DisarmAll()
	s := New()
	if n := testing.AllocsPerRun(100, func() { _ = s.Hit(testPoint); s.Sabotage(AppendTwice) }); n != 0 {
		t.Fatalf("an unarmed pass allocates %v times", n)
	}
	if got := s.Hits(testPoint); got != 0 {
		t.Fatalf("unarmed passes were counted: %d", got)
	}
}

func TestOneArmedSetLeavesOthersAlone(t *testing.T) {
	a, b := New(), New()
	want := errors.New("planted")
	if err := a.Arm(testPoint, Action{Kind: Error, Err: want}); err != nil {
		t.Fatal(err)
	}
	if err := a.Hit(testPoint); !errors.Is(err, want) {
		t.Fatalf("got %v", err)
	}
	if err := errors.Join(a.Hit(otherPoint), b.Hit(testPoint)); err != nil {
		t.Fatalf("other point or other node was hit: %v", err)
	}
	a.Disarm(testPoint)
	if err := a.Hit(testPoint); err != nil {
		t.Fatalf("fired after Disarm: %v", err)
	}
}

func TestNthAndProbabilityChooseThePasses(t *testing.T) {
	s := New()
	fired := func(n int) (at []int) {
		for i := 1; i <= n; i++ {
			if s.Hit(testPoint) != nil {
				at = append(at, i)
			}
		}
		return at
	}
	if err := s.Arm(testPoint, Action{Kind: Error, Nth: 3}); err != nil {
		t.Fatal(err)
	}
	if at := fired(6); len(at) != 1 || at[0] != 3 {
		t.Fatalf("nth=3 fired at %v", at)
	}
	arm := func() []int {
		if err := s.Arm(testPoint, Action{Kind: Error, Probability: 0.1, Seed: 7}); err != nil {
			t.Fatal(err)
		}
		return fired(1000)
	}
	first, second := arm(), arm()
	if len(first) < 60 || len(first) > 150 {
		t.Fatalf("probability 0.1 fired %d times in 1000", len(first))
	}
	if len(first) != len(second) || first[0] != second[0] {
		t.Fatal("the same seed chose other passes")
	}
}

func TestBlockHoldsPassesUntilRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		if err := s.Arm(testPoint, Action{Kind: Block}); err != nil {
			t.Fatal(err)
		}
		passed := make(chan int, 4)
		pass := func(i int) { _ = s.Hit(testPoint); passed <- i }
		go pass(1)
		synctest.Wait()
		if len(passed) != 0 || s.Blocked(testPoint) != 1 {
			t.Fatalf("passed %d, blocked %d", len(passed), s.Blocked(testPoint))
		}
		s.Release(testPoint)
		synctest.Wait()
		go pass(2)
		synctest.Wait()
		if len(passed) != 1 {
			t.Fatalf("after one release %d passed", len(passed))
		}
		s.DisarmAll()
		synctest.Wait()
		if len(passed) != 2 {
			t.Fatal("DisarmAll left a pass blocked")
		}
	})
}

func TestSleepDelaysThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		if err := s.Arm(testPoint, Action{Kind: Sleep, Sleep: time.Minute}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := s.Hit(testPoint); err != nil || time.Since(start) != time.Minute {
			t.Fatalf("err %v after %v", err, time.Since(start))
		}
	})
}

func TestExitEndsTheProcessLikeAKill(t *testing.T) {
	if os.Getenv("FAILPOINT_EXIT") != "" {
		s := New()
		if err := s.Arm(testPoint, Action{Kind: Exit}); err != nil {
			t.Fatal(err)
		}
		_ = s.Hit(testPoint)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestExitEndsTheProcessLikeAKill$")
	cmd.Env = append(os.Environ(), "FAILPOINT_EXIT=1")
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != ExitCode {
		t.Fatalf("got %v, want exit code %d", err, ExitCode)
	}
}

func TestUnknownNamesAndSenselessActionsAreRefused(t *testing.T) {
	s := New()
	if err := s.Arm("test/never-registered", Action{Kind: Error}); !errors.Is(err, ErrUnknown) {
		t.Errorf("Arm: %v", err)
	}
	if err := s.SetSabotage("sabotage/none", true, 1); !errors.Is(err, ErrUnknown) {
		t.Errorf("SetSabotage: %v", err)
	}
	for _, a := range []Action{{}, {Kind: Do}, {Kind: Sleep}, {Kind: Error, Nth: -1}, {Kind: Error, Probability: 2}} {
		if err := s.Arm(testPoint, a); err == nil {
			t.Errorf("action %+v was taken", a)
		}
	}
}

func TestParseActionReadsWhatTheControlPortSends(t *testing.T) {
	for text, want := range map[string]Action{
		"error":                        {Kind: Error},
		"sleep 200ms nth=3":            {Kind: Sleep, Sleep: 200 * time.Millisecond, Nth: 3},
		"exit probability=0.01 seed=7": {Kind: Exit, Probability: 0.01, Seed: 7},
		"block":                        {Kind: Block},
	} {
		got, err := ParseAction(text)
		if err != nil || got.Kind != want.Kind || got.Sleep != want.Sleep || got.Nth != want.Nth || got.Probability != want.Probability || got.Seed != want.Seed {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "explode", "sleep", "sleep fast", "do", "error nth=x", "error 5s"} {
		if _, err := ParseAction(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func TestSabotageSwitchCarriesItsArgument(t *testing.T) {
	s := New()
	if err := s.SetSabotage(HideBatches, true, 5000); err != nil {
		t.Fatal(err)
	}
	if on, arg := s.Sabotage(HideBatches); !on || arg != 5000 {
		t.Fatalf("on %v, arg %d", on, arg)
	}
	if on, _ := s.Sabotage(AppendTwice); on {
		t.Fatal("another switch went on too")
	}
	s.DisarmAll()
	if on, _ := s.Sabotage(HideBatches); on {
		t.Fatal("still on after DisarmAll")
	}
}

func TestEveryNameSaysWhatItPrecedes(t *testing.T) {
	for _, n := range Names() {
		if What(n) == "" || !strings.Contains(string(n), "/") {
			t.Errorf("name %q, what %q: want package/point and a description", n, What(n))
		}
	}
}

func BenchmarkHitUnarmed(b *testing.B) {
	s := New()
	for b.Loop() {
		_ = s.Hit(testPoint)
	}
}
