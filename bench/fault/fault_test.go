package fault

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/bench/target"
)

func TestParseSelectorAcceptsTheFourFormsOnly(t *testing.T) {
	good := map[string]Selector{
		"all":             {Role: "all"},
		"node(2)":         {Role: "node", Node: 2},
		"leader(out/0)":   {Role: "leader", Topic: "out"},
		"follower(a.b/3)": {Role: "follower", Topic: "a.b", Partition: 3},
	}
	for in, want := range good {
		if got, err := ParseSelector(in); err != nil || got != want {
			t.Errorf("ParseSelector(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "leader", "leader(out)", "node(x)", "leader(out/-1)", "leader(out/99999999999)", "everyone"} {
		if got, err := ParseSelector(in); err == nil {
			t.Errorf("ParseSelector(%q) = %+v, want an error", in, got)
		}
	}
}

// fakeTarget answers like a cluster without having any process.
type fakeTarget struct {
	target.External
	nodes  []target.Node
	leader int32
}

func (f *fakeTarget) Nodes() []target.Node { return f.nodes }
func (f *fakeTarget) Replicas(context.Context, string) (map[int32][]int32, error) {
	return map[int32][]int32{0: {1, 2, 4}}, nil
}
func (f *fakeTarget) Leaders(context.Context, string) (map[int32]int32, error) {
	return map[int32]int32{0: f.leader}, nil
}

func TestFollowerIsARunningReplicaOtherThanTheLeader(t *testing.T) {
	f := &fakeTarget{leader: 2, nodes: []target.Node{{ID: 1, State: target.Down}, {ID: 2, State: target.Running}, {ID: 3, State: target.Running}, {ID: 4, State: target.Running}}}
	env := &Env{Target: f, Roles: f}
	for in, want := range map[string]int{"leader(t/0)": 2, "follower(t/0)": 4} {
		sel, err := ParseSelector(in)
		if err != nil {
			t.Fatal(err)
		}
		if ids, err := sel.Resolve(t.Context(), env); err != nil || len(ids) != 1 || ids[0] != want {
			t.Errorf("%s resolves to %v, %v; want %d", in, ids, err, want)
		}
	}
	sel, _ := ParseSelector("leader(t/7)")
	synctest.Test(t, func(t *testing.T) {
		if _, err := sel.Resolve(t.Context(), env); err == nil {
			t.Error("a partition without a leader must be an error, not node 0")
		}
	})
}

// electing is a cluster whose partition gets its leader at a certain time.
type electing struct {
	*fakeTarget
	at time.Time
}

func (e electing) Leaders(ctx context.Context, topic string) (map[int32]int32, error) {
	if time.Now().Before(e.at) {
		return map[int32]int32{0: -1}, nil
	}
	return e.fakeTarget.Leaders(ctx, topic)
}

func TestAFaultWaitsForItsPartitionToHaveALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{leader: 2, nodes: []target.Node{{ID: 1, State: target.Running}, {ID: 2, State: target.Running}}}
		env := &Env{Target: f, Roles: electing{f, time.Now().Add(4 * time.Second)}}
		for in, want := range map[string]int{"leader(t/0)": 2, "follower(t/0)": 1} {
			sel, _ := ParseSelector(in)
			if ids, err := sel.Resolve(t.Context(), env); err != nil || !slices.Equal(ids, []int{want}) {
				t.Errorf("%s resolves to %v, %v; want %d", in, ids, err, want)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		env.Roles = electing{f, time.Now().Add(time.Hour)}
		began := time.Now()
		if _, err := (Selector{Role: "leader", Topic: "t"}).Resolve(over, env); err == nil || time.Since(began) > 0 {
			t.Errorf("%v after %v, want an error at once: the trial is over", err, time.Since(began))
		}
	})
}

func TestPartitionWithoutNamespaceIsSkippedWithTheReason(t *testing.T) {
	f := &fakeTarget{leader: 1, nodes: []target.Node{{ID: 1}, {ID: 2}}}
	env := &Env{Target: f, Roles: f, NetReason: "the kernel says no"}
	events := Run(t.Context(), env, time.Now(), []Plan{{Kind: "partition", Shape: "isolate", Target: "leader(t/0)"}}, nil)
	if e := events[0]; !e.Skipped || e.Proved() || !strings.Contains(e.Error, "the kernel says no") {
		t.Errorf("got %+v, want a skipped event that carries the reason", e)
	}
}

func TestKillOfAnExternalSystemIsAnErrorNotAProof(t *testing.T) {
	f := &fakeTarget{leader: 1, nodes: []target.Node{{ID: 1, Client: "127.0.0.1:1"}}}
	events := Run(t.Context(), &Env{Target: f, Roles: f}, time.Now(), []Plan{{Kind: "kill", Target: "node(1)"}}, nil)
	if events[0].Proved() || events[0].Error == "" {
		t.Errorf("got %+v, want an unproved event with an error", events[0])
	}
}

// wires is a network without packets.
type wires struct {
	dropped     uint64
	cuts, mends int
}

func (w *wires) Cut(a, b []string) error  { w.cuts++; return nil }
func (w *wires) Dropped() (uint64, error) { return w.dropped, nil }
func (w *wires) Mend() error              { w.mends++; return nil }

func TestFaultWithoutProofIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, w := &fakeTarget{leader: 1, nodes: []target.Node{{ID: 1}, {ID: 2}, {ID: 3}}}, &wires{}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		e := Run(ctx, &Env{Target: f, Roles: f, Net: w}, time.Now(), []Plan{{Kind: "partition", Shape: "isolate", Target: "node(1)", For: time.Hour}}, nil)[0]
		if e.Proved() || e.Error == "" || w.cuts != 1 || w.mends != 1 {
			t.Errorf("%+v, %d cuts, %d mends; want an error and the rules removed", e, w.cuts, w.mends)
		}
	})
}

func TestPacketsOfOnePartitionDoNotProveAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, w := &fakeTarget{leader: 1, nodes: []target.Node{{ID: 1}, {ID: 2}, {ID: 3}}}, &wires{dropped: 9}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		cut := func(at time.Duration, node string, long time.Duration) Plan {
			return Plan{Kind: "partition", Shape: "isolate", Target: node, At: at, For: long}
		}
		events := Run(ctx, &Env{Target: f, Roles: f, Net: w}, time.Now(),
			[]Plan{cut(0, "node(1)", 50*time.Millisecond), cut(20*time.Millisecond, "node(2)", time.Millisecond), cut(100*time.Millisecond, "node(3)", time.Millisecond)}, nil)
		if !events[0].Proved() || events[1].Proved() || !events[2].Proved() || w.mends != 2 {
			t.Errorf("%+v, %d mends; want the second one refused", events, w.mends)
		}
	})
}
