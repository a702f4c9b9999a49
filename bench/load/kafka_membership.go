package load

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// errForgotten says that a group's coordinator no longer knew a member when it asked to join again, or did not when it asked to commit.
var errForgotten = errors.New("load: the group forgot the member, which lost what it held")

// membership shares out partitions as the cooperative sticky balancer does, and sees to it that a member which loses what it holds lets go of it.
//
// Java's consumer takes everything for lost when it is told, in the answer to a JoinGroup, that its id is unknown. franz-go joins under a new id
// and reads on where it was, although another member may have gone on from there: its next commit takes the group back, and what it makes is
// made twice. Here the new session fails before it begins, the client loses everything as in any other failure, and asks where to begin.
//
// When it loses everything, franz-go hands out for a moment what it had fetched, and where a transaction is just ending it forgets the loss:
// the next transaction commits without positions. So holdings are numbered: what was polled in one is never committed in another.
type membership struct {
	kgo.GroupBalancer
	client    *kgo.Client
	forgotten bool // by the group, and it still held something then; of the goroutine that manages the group

	mu       sync.Mutex
	holding  int // number of the one that lasts; 0: nothing is held, or all of it is lost
	holdings int
	failed   error         // why the last one ended, until a poll tells it
	changed  chan struct{} // closed when one begins or ends
}

func newMembership() *membership {
	return &membership{GroupBalancer: kgo.CooperativeStickyBalancer(), changed: make(chan struct{})}
}

// OnNewClient is called before the client has goroutines.
func (m *membership) OnNewClient(client *kgo.Client) { m.client = client }

// JoinGroupMetadata is called before each JoinGroup.
func (m *membership) JoinGroupMetadata(topics []string, held map[string][]int32, generation int32) []byte {
	switch id, _ := m.client.GroupMetadata(); {
	case len(held) == 0:
		m.forgotten = false
	case id == "":
		m.forgotten = true
		m.end(nil)
	}
	if m.forgotten {
		held, generation = nil, -1
	}
	return m.GroupBalancer.JoinGroupMetadata(topics, held, generation)
}

// ParseSyncAssignment is called before a session begins.
func (m *membership) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	if m.forgotten {
		return nil, errForgotten
	}
	m.begin()
	return m.GroupBalancer.ParseSyncAssignment(assignment)
}

// OnGroupManageError is called when a session failed, before the client lets go of what it fetched.
func (m *membership) OnGroupManageError(err error) { m.end(fmt.Errorf("load: group session: %w", err)) }

func (m *membership) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.holding == 0 {
		m.holdings++
		m.holding = m.holdings
		m.tellLocked()
	}
}

func (m *membership) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holding, m.failed = 0, err
	m.tellLocked()
}

func (m *membership) tellLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// await waits until the member holds something, and says in which holding; 0 where it does not before ctx ends, or why the last one ended.
func (m *membership) await(ctx context.Context) (holding int, err error) {
	for {
		m.mu.Lock()
		holding, err, m.failed = m.holding, m.failed, nil
		changed := m.changed
		m.mu.Unlock()
		switch {
		case err != nil:
			return 0, err
		case holding > 0:
			return holding, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, nil
		}
	}
}

// lasts says whether the member still holds what it held.
func (m *membership) lasts(holding int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.holding == holding
}
