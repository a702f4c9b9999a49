package target

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"
)

func TestStatIsReadBehindWhateverTheCommandIsCalled(t *testing.T) {
	// utime 150, stime 50 ticks; 9 threads; 25 pages
	tail := " S 1 1 1 0 -1 4194560 10 0 0 0 150 50 0 0 20 0 9 0 12345 1000000 25 18446744073709551615 1 1 0"
	want := ProcSample{CPU: 2 * time.Second, Threads: 9, RSS: 25 * int64(os.Getpagesize()), State: 'S'}
	for _, name := range []string{"server", "a b", "a) R 1 2 3", "(((", "", "new\nline"} {
		if got, err := parseStat(fmt.Sprintf("42 (%s)%s", name, tail)); err != nil || got != want {
			t.Errorf("command %q: %+v, %v; want %+v", name, got, err, want)
		}
	}
	for _, bad := range []string{"", "42 server S 1", "42 (server) S 1 2 3"} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q: %+v, want an error", bad, got)
		}
	}
}

func TestOwnProcessIsInTheProcessTable(t *testing.T) {
	s, err := ReadProc(os.Getpid())
	if err != nil || s.RSS <= 0 || s.Threads < 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := ReadProc(1 << 30); err == nil {
		t.Error("a process that cannot exist was read")
	}
}

func TestTheShareThatTheHostTookIsOfAllProcessorsTime(t *testing.T) {
	read := func(line string) MachineSample {
		s, err := parseMachine(line + "\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n")
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return s
	}
	before := read("cpu  100 0 50 800 10 0 5 35 20 0")
	if want := (MachineSample{Total: 10 * time.Second, Stolen: 350 * time.Millisecond}); before != want {
		t.Errorf("%+v, want %+v: the guests' 20 are in the first field already", before, want)
	}
	for line, want := range map[string]float64{
		"cpu  150 0 70 820 10 0 5 45 90 0": 0.1, // 10 of 100 more ticks
		"cpu  150 0 70 830 10 0 5 35 20 0": 0,
		"cpu  150 0 70 830 10 0 5 34 20 0": 0, // stepped back
		"cpu  100 0 50 800 10 0 5 35 20 0": 0, // no time has passed
	} {
		if got := read(line).StolenSince(before); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
	for _, bad := range []string{"", "cpu 1 2 3 4", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3 x 5 6 7 8"} {
		if got, err := parseMachine(bad); err == nil {
			t.Errorf("%q: %+v, want an error", bad, got)
		}
	}
}

func TestMetricsKeepLabelsAndLeaveOutBuckets(t *testing.T) {
	text := "# HELP a of a\n# TYPE a counter\na 1\nb{api=\"Produce v9\",error=\"\"} 2.5e3\nh_bucket{le=\"0.1\"} 7\nh_sum 0.5\nh_count 7\n\nbroken\nword word\nnan NaN\n"
	got, err := parseMetrics(strings.NewReader(text))
	want := map[string]float64{"a": 1, `b{api="Produce v9",error=""}`: 2500, "h_sum": 0.5, "h_count": 7}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
