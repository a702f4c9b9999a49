package rpc

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func TestThresholdFollowsSlowPongs(t *testing.T) {
	var r roundTrips
	for range 100 {
		r.add(2 * ms)
	}
	if got := deadThreshold(300*ms, r.p99()); got != 300*ms {
		t.Errorf("fast pongs: %v, want the floor", got)
	}
	for range 16 {
		r.add(200 * ms)
	}
	if got := deadThreshold(300*ms, r.p99()); got != time.Second {
		t.Errorf("slow pongs: %v, want five times the slow ones", got)
	}
	for range pongWindow {
		r.add(2 * ms)
	}
	if got := deadThreshold(300*ms, r.p99()); got != 300*ms {
		t.Errorf("fast again: %v, want the floor", got)
	}
}

func TestSilence(t *testing.T) {
	for _, c := range []struct {
		name       string
		pong, tick time.Duration
		wantDead   bool
		wantAgain  time.Duration
	}{
		{name: "too early", pong: 100 * ms, tick: 10 * ms, wantAgain: 200 * ms},
		{name: "silent", pong: 300 * ms, tick: 90 * ms, wantDead: true},
		{name: "a node that was stopped itself blames nobody", pong: 5 * time.Second, tick: 5 * time.Second, wantAgain: 300 * ms},
		{name: "a starved node gives another threshold", pong: 400 * ms, tick: 201 * ms, wantAgain: 300 * ms},
	} {
		dead, again := silence(c.pong, c.tick, 300*ms, 100*ms)
		if dead != c.wantDead || again != c.wantAgain {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, dead, again, c.wantDead, c.wantAgain)
		}
	}
}
