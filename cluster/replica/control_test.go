package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"gopherlog/cluster/rpc"
)

// listFSM keeps all commands.
type listFSM struct {
	mu   sync.Mutex
	cmds []string
}

func (f *listFSM) Apply(index uint64, cmd []byte) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cmds = append(f.cmds, string(cmd))
	return len(f.cmds)
}

func (f *listFSM) Snapshot() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []byte(strings.Join(f.cmds, "\n"))
}

func (f *listFSM) Restore(state []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cmds = nil
	if len(state) > 0 {
		f.cmds = strings.Split(string(state), "\n")
	}
	return nil
}

func (f *listFSM) all() string { return string(f.Snapshot()) }

// controlRig is the control group on several nodes.
type controlRig struct {
	*rig
	ctl map[rpc.NodeID]*Control
	fsm map[rpc.NodeID]*listFSM
}

func newControlRig(t *testing.T, n int, founders int) *controlRig {
	r := newBareRig(t, n)
	c := &controlRig{rig: r, ctl: map[rpc.NodeID]*Control{}, fsm: map[rpc.NodeID]*listFSM{}}
	t.Cleanup(func() {
		for _, x := range r.nodes {
			c.stop(x)
		}
		r.close()
	})
	for i, x := range r.nodes {
		x.openNode()
		var list []rpc.ServerID
		if i < founders {
			list = r.servers[:founders]
		}
		c.start(x, list)
	}
	return c
}

func (c *controlRig) start(x *rigNode, founders []rpc.ServerID) {
	c.t.Helper()
	c.fsm[x.id] = &listFSM{}
	ctl, err := OpenControl(ControlConfig{
		Self: x.self, Bootstrap: founders, FSM: c.fsm[x.id], KV: x.db, Node: x.node, FS: x.disk, Dir: "control",
		Timers: quick(), Logger: c.logger.With("node", x.id),
	})
	c.must(err)
	c.ctl[x.id] = ctl
}

func (c *controlRig) stop(x *rigNode) {
	if ctl := c.ctl[x.id]; ctl != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := ctl.Close(ctx); err != nil {
			c.t.Errorf("close control on node %d: %v", x.id, err)
		}
		delete(c.ctl, x.id)
	}
}

func (c *controlRig) leader() *Control {
	c.t.Helper()
	var l *Control
	c.eventually("control group has a leader", func() bool {
		for _, ctl := range c.ctl {
			if ctl.IsLeader() {
				l = ctl
				return true
			}
		}
		return false
	})
	return l
}

func (c *controlRig) apply(cmd string) {
	c.t.Helper()
	c.eventually("command "+cmd+" is applied", func() bool {
		_, err := c.leader().Apply(context.Background(), []byte(cmd))
		if errors.Is(err, ErrLost) {
			c.t.Fatalf("%s: %v", cmd, err)
		}
		return err == nil
	})
}

func (c *controlRig) agree() {
	c.t.Helper()
	c.eventually("control states agree", func() bool {
		seen := make(map[string]bool)
		for id := range c.ctl {
			seen[c.fsm[id].all()] = true
		}
		return len(seen) == 1
	})
}

func TestControlGroupOfOneAppliesAndRestarts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newControlRig(t, 1, 1)
		for i := range 20 {
			c.apply(fmt.Sprint("cmd", i))
		}
		x := c.nodes[0]
		before := c.fsm[x.id].all()
		got, err := c.leader().Apply(context.Background(), []byte("last"))
		if err != nil || got != 21 {
			t.Fatalf("apply returned %v, %v; want 21", got, err)
		}
		c.stop(x)
		c.start(x, nil)
		c.must(c.leader().Barrier(context.Background()))
		if got, want := c.fsm[x.id].all(), before+"\nlast"; got != want {
			t.Errorf("after a restart the state is %q, want %q", got, want)
		}
	})
}

func TestControlGroupGrowsFromOneToThree(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newControlRig(t, 3, 1)
		c.apply("first")
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l := c.leader()
		for _, x := range c.nodes[1:] {
			c.must(l.AddNonvoter(ctx, x.self))
			c.eventually("new member caught up", func() bool { return l.CaughtUp(x.self) })
			c.must(l.AddVoter(ctx, x.self))
		}
		c.apply("second")
		c.agree()
		if n := len(l.Members()); n != 3 {
			t.Fatalf("%d members, want 3", n)
		}
		target := c.nodes[2]
		c.must(l.TransferTo(ctx, target.self))
		c.eventually("the target leads", func() bool { return c.ctl[target.id].IsLeader() })
		c.apply("third")
		c.agree()
		if _, err := l.Apply(ctx, []byte("no")); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a deposed leader's Apply says %v, want ErrNotLeader", err)
		}
	})
}

func TestControlGroupSurvivesPowerLossOfAll(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newControlRig(t, 3, 3)
		for i := range 10 {
			c.apply(fmt.Sprint("cmd", i))
		}
		c.agree()
		want := c.fsm[1].all()
		for i, x := range c.nodes {
			c.net.isolate(x.id)
			c.stop(x)
			x.kill(true, uint64(i))
		}
		for _, x := range c.nodes {
			x.openNode()
			c.start(x, c.servers)
		}
		c.must(c.leader().Barrier(context.Background()))
		c.agree()
		if got := c.fsm[1].all(); got != want {
			t.Errorf("state is %q, want %q", got, want)
		}
	})
}

func TestControlSnapshotReplacesALogTail(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newControlRig(t, 3, 3)
		c.apply("a")
		c.agree()
		away := c.nodes[2]
		if c.leader() == c.ctl[away.id] {
			away = c.nodes[1]
		}
		c.net.isolate(away.id)
		for i := range 30 {
			c.apply(fmt.Sprint("b", i))
		}
		// Compact by hand: the library would wait for thousands of entries.
		l := c.leader()
		c.must(l.raft().Snapshot().Error())
		last := l.log.last()
		c.must(l.log.DeleteRange(1, last-1))
		c.net.heal()
		c.agree()
		c.apply("c")
		c.agree()
		c.eventually("the instance was replaced", func() bool { return !c.ctl[away.id].sealed.Load() })
		if got := c.ctl[away.id].status().LastIndex; got < last {
			t.Errorf("log of the refilled member ends at %d, want at least %d", got, last)
		}
	})
}
