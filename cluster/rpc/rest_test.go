package rpc_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// idle is a group whose follower has answered all that the leader has; the
// follower's requests arrive on the channel.
func idle(t *testing.T, rest time.Duration, f func(g rpc.GroupTransport, p raft.AppendPipeline, log raft.LogStore, arrived <-chan *raft.AppendEntriesRequest)) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		opts := rpc.GroupOptions{Bulk: true, Suppress: true, Rest: rest}
		log := memoryLog{raft.NewInmemStore()}
		g1 := n[1].Group(testTopic, server1, log, opts)
		g2 := n[2].Group(testTopic, server2, nil, opts)
		arrived := make(chan *raft.AppendEntriesRequest, 10)
		defer answerWith(g2, func(cmd any) (any, error) {
			a := cmd.(*raft.AppendEntriesRequest)
			arrived <- a
			return success(a), nil
		})()
		if err := log.store.StoreLog(entry(1, 10)); err != nil {
			t.Fatal(err)
		}
		if _, err := send(g1, server2, request(0, entry(1, 10))); err != nil {
			t.Fatal(err)
		}
		<-arrived
		time.Sleep(500 * time.Millisecond) // pings
		p := openPipeline(t, g1, server2)
		defer p.Close()
		f(g1, p, log.store, arrived)
	})
}

func TestAnIdleGroupsRequestsRest(t *testing.T) {
	idle(t, time.Second, func(g rpc.GroupTransport, p raft.AppendPipeline, _ raft.LogStore, arrived <-chan *raft.AppendEntriesRequest) {
		start := time.Now()
		if _, err := p.AppendEntries(request(1), &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
		if f := <-p.Consumer(); !f.Response().Success || time.Since(start) != time.Second || len(arrived) > 0 {
			t.Errorf("after %v: %+v, %d requests arrived", time.Since(start), f.Response(), len(arrived))
		}
		start = time.Now()
		if resp, err := send(g, server2, heartbeat(1)); err != nil || !resp.Success {
			t.Errorf("heartbeat: %+v, %v", resp, err)
		}
		if d := time.Since(start); d < time.Second || d > 1100*time.Millisecond || len(arrived) != 1 {
			t.Errorf("heartbeat answered after %v, %d arrived; want one, a second and a window later", d, len(arrived))
		}
	})
}

func TestAppendedEntriesEndTheRest(t *testing.T) {
	idle(t, time.Hour, func(g rpc.GroupTransport, p raft.AppendPipeline, log raft.LogStore, _ <-chan *raft.AppendEntriesRequest) {
		for i := range uint64(3) {
			within(t, 0, "nothing new, then an entry", func() {
				done := make(chan error, 1)
				go func() {
					_, err := p.AppendEntries(request(1+i), &raft.AppendEntriesResponse{})
					done <- err
				}()
				synctest.Wait()
				select {
				case err := <-done:
					t.Fatalf("did not rest: %v", err)
				default:
				}
				if err := log.StoreLog(entry(2+i, 10)); err != nil {
					t.Fatal(err)
				}
				g.Appended()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				<-p.Consumer()
				if _, err := p.AppendEntries(request(1+i, entry(2+i, 10)), &raft.AppendEntriesResponse{}); err != nil {
					t.Fatal(err)
				}
				<-p.Consumer()
			})
		}
	})
}

// Whatever the library waits for while a request rests must end it.
func TestTheEndOfALeadershipEndsTheRest(t *testing.T) {
	for name, end := range map[string]func(g rpc.GroupTransport, p raft.AppendPipeline){
		"resigned": func(g rpc.GroupTransport, _ raft.AppendPipeline) { g.Resign(1) },
		"aborted":  func(g rpc.GroupTransport, _ raft.AppendPipeline) { g.Abort() },
		"closed":   func(_ rpc.GroupTransport, p raft.AppendPipeline) { p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			idle(t, time.Hour, func(g rpc.GroupTransport, p raft.AppendPipeline, _ raft.LogStore, _ <-chan *raft.AppendEntriesRequest) {
				within(t, 0, "end", func() {
					done := make(chan struct{}, 2)
					go func() {
						_, _ = p.AppendEntries(request(1), &raft.AppendEntriesResponse{})
						done <- struct{}{}
					}()
					ends := 1
					if name != "closed" {
						ends++
						go func() {
							if _, err := send(g, server2, heartbeat(1)); !errors.Is(err, rpc.ErrStaleTerm) && !errors.Is(err, rpc.ErrAborted) {
								t.Errorf("heartbeat: %v", err)
							}
							done <- struct{}{}
						}()
					}
					synctest.Wait()
					end(g, p)
					for range ends {
						<-done
					}
				})
			})
		})
	}
}
