package group

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/table.txt anew; read the difference")

// TestEveryStateAnswersEveryEvent compares what each state does on each event with testdata/table.txt, which is meant to be read.
func TestEveryStateAnswersEveryEvent(t *testing.T) {
	var b strings.Builder
	for _, s := range tableStates(t) {
		fmt.Fprintf(&b, "%s: %s\n", s.name, s.state)
		for _, e := range tableEvents() {
			r := newRig(t)
			r.state, r.slow = s.state, true
			effects := r.do(e.event)
			line := effects
			if r.state.String() != s.state.String() {
				line = strings.TrimPrefix(effects+"\n"+strings.Repeat(" ", 33)+"=> "+r.state.String(), "\n"+strings.Repeat(" ", 33))
			} else if effects == "" {
				line = "nothing"
			}
			fmt.Fprintf(&b, "  %-30s %s\n", e.name, line)
		}
	}
	const file = "testdata/table.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(b.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		if i >= len(got) || got[i] != line {
			t.Fatalf("line %d:\ngot  %s\nwant %s", i+1, got[min(i, len(got)-1)], line)
		}
	}
}

type tableState struct {
	name  string
	state State
}

func tableStates(t *testing.T) []tableState {
	emptied := two(t, "a", "b")
	emptied.do(leave(9, "a", "b"))
	emptied.do(Durable{})
	promised := newRig(t)
	e := enter(9, "a")
	e.RequireID = true
	promised.do(e)
	delaying := newRig(t)
	delaying.cfg = Defaults()
	delaying.do(enter(9, "a"))
	preparing := two(t, "a", "b@i")
	preparing.do(join(9, "a"))
	beginning := two(t, "a", "b@i")
	beginning.slow = true
	beginning.do(join(8, "a"))
	beginning.do(join(9, "b@i"))
	completing := two(t, "a", "b@i")
	completing.do(join(8, "a"))
	completing.do(join(9, "b@i"))
	syncing := two(t, "a", "b@i")
	syncing.do(join(8, "a"))
	syncing.do(join(9, "b@i"))
	syncing.do(sync(10, "b@i", 3))
	syncing.do(sync(11, "a", 3, "a:A", "b:B"))
	return []tableState{
		{"unknown", newRig(t).state},
		{"emptied", emptied.state},
		{"promised", promised.state},
		{"delaying", delaying.state},
		{"preparing", preparing.state},
		{"beginning", beginning.state},
		{"completing", completing.state},
		{"assigning", syncing.state},
		{"stable", two(t, "a", "b@i").state},
		{"silent", State{Silent: true}},
	}
}

type tableEvent struct {
	name  string
	event Event
}

func tableEvents() []tableEvent {
	first := enter(90, "n")
	first.RequireID = true
	short := enter(90, "n")
	short.Session = 1
	return []tableEvent{
		{"join, new", enter(90, "n")},
		{"join, new, needs an id", first},
		{"join, new, static", enter(90, "n@j")},
		{"join, static again", enter(90, "n@i")},
		{"join, other protocol", enter(90, "n", "roundrobin:1")},
		{"join, session too short", short},
		{"join a", join(90, "a")},
		{"join a, changed", join(90, "a", "range:2")},
		{"join b@i", join(90, "b@i")},
		{"join b@i, changed", join(90, "b@i", "range:2")},
		{"join x@i, fenced", join(90, "x@i")},
		{"join x", join(90, "x")},
		{"sync a 2", sync(90, "a", 2, "a:1", "b:2")},
		{"sync a 3", sync(90, "a", 3, "a:1", "b:2")},
		{"sync b@i 2", sync(90, "b@i", 2)},
		{"sync b@i 3", sync(90, "b@i", 3)},
		{"sync x@i 2, fenced", sync(90, "x@i", 2)},
		{"sync a 3, other protocol", Sync{Request: 90, MemberID: "a", Generation: 3, Protocol: "sticky"}},
		{"heartbeat a 2", beat(90, "a", 2)},
		{"heartbeat a 3", beat(90, "a", 3)},
		{"heartbeat x@i 2, fenced", beat(90, "x@i", 2)},
		{"leave a", leave(90, "a")},
		{"leave @i", leave(90, "@i")},
		{"leave x, x@i, a", leave(90, "x", "x@i", "a")},
		{"commit, nobody", commit(90, "", -1, false)},
		{"commit a 2", commit(90, "a", 2, false)},
		{"commit a 3", commit(90, "a", 3, false)},
		{"commit x@i 2, fenced", commit(90, "x@i", 2, false)},
		{"transactional commit, nobody", commit(90, "", -1, true)},
		{"transactional commit a 2", commit(90, "a", 2, true)},
		{"transactional commit a 3", commit(90, "a", 3, true)},
		{"remove", Remove{90}},
		{"durable", Durable{}},
		{"session of a", Timer{TimerSession, "a"}},
		{"session of b", Timer{TimerSession, "b"}},
		{"rebalance due", Timer{Kind: TimerRebalance}},
		{"sync due", Timer{Kind: TimerSync}},
		{"lost", Lost{}},
	}
}
