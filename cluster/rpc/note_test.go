package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/rpc"
)

// hearing collects what a node is told.
type hearing struct {
	mu  sync.Mutex
	got map[string]int
}

func (h *hearing) hear(from rpc.NodeID, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.got == nil {
		h.got = map[string]int{}
	}
	h.got[fmt.Sprint(from, " ", len(data), " ", string(data[:min(len(data), 8)]))]++
}

func (h *hearing) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.got)
}

func TestWhatANodeIsToldArrivesOnceAndWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		h := &hearing{}
		n[2].Hear("news", h.hear)
		time.Sleep(time.Second)
		const many = 100
		for i := range many {
			if err := n[1].Tell(2, "news", append(fmt.Appendf(nil, "%08d", i), payload(i, i*500)...)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if n := h.count(); n != many {
			t.Errorf("%d of %d messages came", n, many)
		}
		for what, times := range h.got {
			if times != 1 {
				t.Errorf("%s came %d times", what, times)
			}
		}
		n[2].Hear("news", nil)
		if err := n[1].Tell(2, "news", []byte("nobody hears")); err != nil {
			t.Error(err)
		}
		if err := n[1].Tell(1, "own", nil); err != nil {
			t.Error(err)
		}
		if err := n[1].Tell(2, "news", make([]byte, 64<<10+1)); err == nil {
			t.Error("a message that is too long was taken")
		}
		if err := n[1].Tell(9, "news", nil); !errors.Is(err, rpc.ErrUnknownPeer) {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Second)
		if n := h.count(); n != many {
			t.Errorf("%d messages came, %d were sent to who hears", n, many)
		}
	})
}

func TestAMessageToAPeerThatIsDownIsLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 2, nil)
		time.Sleep(time.Second)
		network.Kill(2)
		time.Sleep(time.Second)
		within(t, time.Millisecond, "a message to a dead peer", func() {
			if err := n[1].Tell(2, "news", []byte("x")); !errors.Is(err, rpc.ErrDown) {
				t.Errorf("%v", err)
			}
		})
	})
}

// Who hears of another node to ask waits for none that is down; others give it a second to come back.
func TestOnlyACallWaitsForAPeerThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 2, nil)
		n[2].Handle("echo", func(_ context.Context, _ rpc.NodeID, req []byte) ([]byte, error) { return req, nil })
		time.Sleep(time.Second)
		if b, err := n[1].CallUp(t.Context(), 2, "echo", []byte("x")); err != nil || string(b) != "x" {
			t.Errorf("%q, %v", b, err)
		}
		network.Kill(2)
		time.Sleep(time.Second)
		within(t, time.Millisecond, "asking a dead peer", func() {
			if _, err := n[1].CallUp(t.Context(), 2, "echo", nil); !errors.Is(err, rpc.ErrDown) {
				t.Errorf("%v", err)
			}
		})
		start := time.Now()
		if _, err := n[1].Call(t.Context(), 2, "echo", nil); !errors.Is(err, rpc.ErrDown) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// What waits for the kernel waits alone: a peer that does not read keeps nobody who tells it something, and calls end with their patience.
func TestTellingAPeerThatDoesNotReadBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 2, nil)
		n[2].Handle("echo", func(_ context.Context, _ rpc.NodeID, req []byte) ([]byte, error) { return req, nil })
		time.Sleep(time.Second)
		network.Cut(1, 2)
		within(t, 100*time.Millisecond, "telling", func() {
			for range 2000 {
				_ = n[1].Tell(2, "news", make([]byte, 1000)) // some are lost
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		within(t, time.Second, "a call to a peer that does not read", func() {
			if _, err := n[1].Call(ctx, 2, "echo", nil); err == nil {
				t.Error("it was answered")
			}
		})
		network.Heal()
		eventually(t, "calls work again", func() bool {
			b, err := n[1].Call(t.Context(), 2, "echo", []byte("x"))
			return err == nil && string(b) == "x"
		})
	})
}

func TestCallsAreAnsweredWholeBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		n[2].Handle("grow", func(_ context.Context, _ rpc.NodeID, req []byte) ([]byte, error) {
			return bytes.Repeat(req, 40), nil
		})
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				req := payload(i, 1+i*250)
				if got, err := n[1].Call(t.Context(), 2, "grow", req); err != nil || !bytes.Equal(got, bytes.Repeat(req, 40)) {
					t.Errorf("call %d: %d bytes, %v", i, len(got), err)
				}
			})
		}
		wg.Wait()
	})
}

func BenchmarkShortCall(b *testing.B) {
	n := benchPair(b)
	n[2].Handle("echo", func(_ context.Context, _ rpc.NodeID, req []byte) ([]byte, error) { return req, nil })
	req := make([]byte, 100)
	if _, err := n[1].Call(b.Context(), 2, "echo", req); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n[1].Call(b.Context(), 2, "echo", req); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTellThereAndBack is a message and one that comes for it.
func BenchmarkTellThereAndBack(b *testing.B) {
	n := benchPair(b)
	back := make(chan bool, 1)
	n[2].Hear("news", func(_ rpc.NodeID, data []byte) { _ = n[2].Tell(1, "thanks", data) })
	n[1].Hear("thanks", func(rpc.NodeID, []byte) { back <- true })
	req := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		if err := n[1].Tell(2, "news", req); err != nil {
			b.Fatal(err)
		}
		<-back
	}
}

func benchPair(b *testing.B) map[rpc.NodeID]*rpc.Node {
	b.Helper()
	l1, l2 := loopback(b), loopback(b)
	out := map[rpc.NodeID]*rpc.Node{}
	for id, cfg := range map[rpc.NodeID]rpc.Config{
		1: {Node: 1, Listen: l1, Peers: map[rpc.NodeID]string{2: l2.Addr().String()}},
		2: {Node: 2, Listen: l2, Peers: map[rpc.NodeID]string{1: l1.Addr().String()}},
	} {
		n, err := rpc.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		n.Start()
		b.Cleanup(n.Close)
		out[id] = n
	}
	heard := atomic.Bool{}
	for id := range out {
		out[id].Hear("ready", func(rpc.NodeID, []byte) { heard.Store(true) })
	}
	for _, id := range []rpc.NodeID{1, 2} {
		for heard.Store(false); !heard.Load(); time.Sleep(10 * time.Millisecond) {
			_ = out[id].Tell(3-id, "ready", nil)
		}
	}
	time.Sleep(100 * time.Millisecond) // the plain streams are up, too
	return out
}
