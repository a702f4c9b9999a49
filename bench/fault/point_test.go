package fault

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gopherlog/bench/target"
)

func TestCoordinatorsAreLookedUpWhenTheFaultBegins(t *testing.T) {
	f := &fakeTarget{nodes: []target.Node{{ID: 1}, {ID: 2}}}
	env := &Env{Target: f, Roles: f, Coordinator: func(_ context.Context, of string) (int32, error) {
		return map[string]int32{"txn": 1, "group": 2}[of], nil
	}}
	for in, want := range map[string]int{"txn_coordinator": 1, "group_coordinator": 2} {
		sel, err := ParseSelector(in)
		if err != nil {
			t.Fatal(err)
		}
		if ids, err := sel.Resolve(t.Context(), env); err != nil || !slices.Equal(ids, []int{want}) {
			t.Errorf("%s resolves to %v, %v; want %d", in, ids, err, want)
		}
		if _, err := sel.Resolve(t.Context(), &Env{Target: f, Roles: f}); err == nil {
			t.Errorf("%s is found in a trial that has none", in)
		}
	}
}

func TestAFaultOnAWorkerTouchesNoNode(t *testing.T) {
	f := &fakeTarget{nodes: []target.Node{{ID: 1}}}
	env := &Env{Target: f, Roles: f, Worker: func(_ context.Context, n int, kind string, d time.Duration) (string, error) {
		if n != 2 || kind != "kill" || d != time.Millisecond {
			return "", errors.New("something else was asked for")
		}
		return "it vanished", nil
	}}
	e := Run(t.Context(), env, time.Now(), []Plan{{Kind: "kill", Target: "worker(2)", For: time.Millisecond}}, nil)[0]
	if !e.Proved() || e.Proof != "it vanished" || len(e.Nodes) != 0 {
		t.Errorf("%+v", e)
	}
	if e := Run(t.Context(), &Env{Target: f, Roles: f}, time.Now(), []Plan{{Kind: "kill", Target: "worker(0)", For: 1}}, nil)[0]; e.Proved() {
		t.Errorf("a trial without workers: %+v", e)
	}
}

// cuts remembers who was cut from whom.
type cuts struct {
	wires
	between [][2][]string
}

func (c *cuts) Cut(a, b []string) error {
	c.between = append(c.between, [2][]string{a, b})
	return nil
}

func TestHalvesLeaveClientsOnBothSides(t *testing.T) {
	f := &fakeTarget{}
	for i, host := range []string{"127.0.1.1", "127.0.1.2", "127.0.1.3", "127.0.1.4", "127.0.1.5"} {
		f.nodes = append(f.nodes, target.Node{ID: i + 1, Host: host})
	}
	net := &cuts{wires: wires{dropped: 1}}
	e := Run(t.Context(), &Env{Target: f, Roles: f, Net: net}, time.Now(), []Plan{{Kind: "partition", Shape: "halves", Target: "node(3)", For: time.Millisecond}}, nil)[0]
	few, many := []string{"127.0.1.1", "127.0.1.3"}, []string{"127.0.1.2", "127.0.1.4", "127.0.1.5"}
	want := [][2][]string{{few, many}, {{ClientHosts[0]}, many}, {{ClientHosts[1]}, few}}
	if d := cmp.Diff(want, net.between); d != "" || !e.Proved() || net.mends != 1 {
		t.Errorf("%s\n%+v, %d mends", d, e, net.mends)
	}
}

// pointed is a cluster whose nodes pass a point with every question.
type pointed struct {
	fakeTarget
	hits   int64
	armed  string
	killed bool
	mute   int // questions that it does not answer
	stuck  bool
}

func (p *pointed) Ask(context.Context, int, string) ([]byte, error) {
	if p.mute > 0 {
		p.mute--
		return nil, errors.New("no answer in time")
	}
	if !p.stuck {
		p.hits++
	}
	return json.Marshal([]map[string]any{{"name": "txn/before-decision", "hits": p.hits}})
}

func (p *pointed) Control(_ context.Context, _ int, _ string, body any) error {
	p.armed = body.(map[string]any)["action"].(string)
	return nil
}

func (p *pointed) Kill(context.Context, int) error { p.killed = true; return nil }

func TestAKillAtAFailpointWaitsUntilTheNodeStandsThere(t *testing.T) {
	p := &pointed{fakeTarget: fakeTarget{nodes: []target.Node{{ID: 1, Client: "127.0.0.1:1"}}}, hits: 100}
	env := &Env{Target: p, Roles: p}
	e := Run(t.Context(), env, time.Now(), []Plan{{Kind: "kill", Target: "node(1)", For: time.Millisecond, Failpoint: "txn/before-decision", Hit: 5}}, nil)[0]
	if p.armed != "block nth=5" || !p.killed || p.hits < 106 || !strings.HasPrefix(e.Proof, "node 1 stood at txn/before-decision, pass 5; ") {
		t.Errorf("%+v, armed %q, killed %v after %d hits", e, p.armed, p.killed, p.hits)
	}
	p = &pointed{fakeTarget: p.fakeTarget}
	e = Run(t.Context(), &Env{Target: p, Roles: p}, time.Now(), []Plan{{Kind: "kill", Target: "node(1)", Failpoint: "no/such-point", Hit: 1}}, nil)[0]
	if e.Proved() || p.killed {
		t.Errorf("an unknown point: %+v", e)
	}
}

func TestABusyNodeIsAskedAgainWhetherItStandsAtAFailpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pointed{fakeTarget: fakeTarget{nodes: []target.Node{{ID: 1, Client: "127.0.0.1:1"}}}, mute: 3}
		e := Run(t.Context(), &Env{Target: p, Roles: p}, time.Now(), []Plan{{Kind: "kill", Target: "node(1)", For: time.Millisecond, Failpoint: "txn/before-decision", Hit: 2}}, nil)[0]
		if e.Proof == "" || !p.killed || p.mute != 0 {
			t.Errorf("%+v, %d questions left", e, p.mute)
		}
	})
}

func TestANodeThatNeverComesToAFailpointIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pointed{fakeTarget: fakeTarget{nodes: []target.Node{{ID: 1}}}, stuck: true}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		e := Run(ctx, &Env{Target: p, Roles: p}, time.Now(), []Plan{{Kind: "kill", Target: "node(1)", Failpoint: "txn/before-decision", Hit: 2}}, nil)[0]
		if e.Proved() || p.killed || p.armed != "off" {
			t.Errorf("%+v, armed %q", e, p.armed)
		}
	})
}
