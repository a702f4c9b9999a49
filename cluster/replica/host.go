package replica

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// host owns the life of one raft.Raft: it starts it, replaces it after an
// installed snapshot, ends it, and ends it in place of a panic when storage
// fails. The library keeps its last index over an installed snapshot, so an
// instance that installed one is sealed and must be replaced.
type host struct {
	config func() *raft.Config
	logs   raft.LogStore
	stable raft.StableStore
	snaps  raft.SnapshotStore
	fsm    raft.FSM
	// founders, if they name this replica and it is empty, become its first
	// configuration.
	founders []rpc.ServerID
	// attach opens the group's transport handle for one instance.
	attach func() rpc.GroupTransport
	// mayAsk returns why this replica must not ask for votes, nil if it may.
	mayAsk func() error
	// changed is called on the goroutine that changed raft's state: raft's
	// main goroutine, or whoever shuts down. It must not block.
	changed func(r *raft.Raft, s raft.RaftState)
	// stirred is called when the known leader changed. It must not block.
	stirred func()
	// ceased is called once when a storage failure has ended raft.
	ceased func(why error)

	cur     atomic.Pointer[instance]
	open    atomic.Pointer[chan struct{}] // closed when cur may be relied on
	booting atomic.Bool                   // NewRaft restores; nothing of it comes from a leader
	sealed  atomic.Bool
	failed  atomic.Pointer[error]
	ending  sync.Once
	ended   chan struct{} // closed when storage failure has stopped raft
}

type instance struct {
	raft  *raft.Raft
	trans *guarded
}

var errSealed = errors.New("replica: sealed after an installed snapshot")

// start makes a fresh instance. Its storage calls wait until it is published.
func (h *host) start() error {
	gate := make(chan struct{})
	h.open.Store(&gate)
	h.sealed.Store(false)
	trans := &guarded{GroupTransport: h.attach(), host: h, gone: make(chan struct{})}
	h.booting.Store(true)
	r, err := h.newRaft(trans)
	if err != nil {
		trans.Abort()
		return errors.Join(err, trans.Close())
	}
	r.RegisterObserver(raft.NewObserver(nil, false, h.observe))
	h.cur.Store(&instance{raft: r, trans: trans})
	close(gate)
	return nil
}

// newRaft runs NewRaft on a goroutine of its own, which a storage error ends
// (see fail) where the library would panic.
func (h *host) newRaft(trans raft.Transport) (r *raft.Raft, err error) {
	done := make(chan struct{})
	err = errors.New("raft did not start")
	go func() {
		defer close(done)
		conf := h.config()
		if err = h.bootstrap(conf, trans); err == nil {
			r, err = raft.NewRaft(conf, h.fsm, h.logs, h.stable, h.snaps, trans)
		}
	}()
	<-done
	if failure := h.failure(); failure != nil {
		return nil, failure
	}
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	return r, nil
}

// bootstrap writes the founding configuration into an empty founder.
func (h *host) bootstrap(conf *raft.Config, trans raft.Transport) error {
	founder := false
	for _, id := range h.founders {
		founder = founder || id.Raft() == conf.LocalID
	}
	if !founder {
		return nil
	}
	err := raft.BootstrapCluster(conf, h.logs, h.stable, h.snaps, trans, configuration(h.founders))
	if errors.Is(err, raft.ErrCantBootstrap) {
		return nil
	}
	return err
}

// observe is an observer's filter, because the library calls filters on the
// goroutine that makes the change and never drops one, which it does with
// observers' channels.
func (h *host) observe(o *raft.Observation) bool {
	switch s := o.Data.(type) {
	case raft.RaftState:
		h.changed(o.Raft, s)
	case raft.LeaderObservation:
		h.stirred()
	}
	return false
}

// wait blocks a storage call of raft's until its instance is published.
func (h *host) wait() {
	if gate := h.open.Load(); gate != nil {
		<-*gate
	}
}

func (h *host) raft() *raft.Raft {
	if i := h.cur.Load(); i != nil {
		return i.raft
	}
	return nil
}

// stop ends the current instance and waits for its goroutines. Calls that the
// library made into the transport are failed, since it waits for them.
func (h *host) stop() error {
	i := h.cur.Load()
	if i == nil {
		return nil
	}
	// The library waits in the first future only; the others return at once.
	f := i.raft.Shutdown()
	i.trans.Abort()
	err := f.Error()
	return errors.Join(err, i.trans.Close())
}

// reopen replaces the current instance by a fresh one on the same stores.
func (h *host) reopen() error {
	if err := h.stop(); err != nil {
		return fmt.Errorf("stop raft to reopen it: %w", err)
	}
	return h.start()
}

// seal makes the running instance harmless: it neither stores nor votes.
func (h *host) seal() { h.sealed.Store(true) }

func (h *host) failure() error {
	if p := h.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail records the first storage failure and stops raft, without waiting.
// Peers find the group detached from then on.
func (h *host) fail(err error) {
	h.ending.Do(func() {
		err = fmt.Errorf("%w: %w", ErrFailed, err)
		h.failed.Store(&err)
		go func() {
			defer close(h.ended)
			h.stirred()
			_ = h.stop() // the failure is what counts
			h.ceased(err)
		}()
	})
}

// failAndExit is for storage calls whose errors make the library panic, which
// would end every group of the process: it stops this group and ends the
// calling goroutine. The library's deferred calls run, so nothing leaks.
func (h *host) failAndExit(err error) {
	h.fail(err)
	runtime.Goexit()
}
