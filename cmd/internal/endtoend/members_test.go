package endtoend

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawMember is a member of a group that has its own connection and does what the protocol asks for.
type rawMember struct {
	*wire
	group      string
	id         string
	generation int32
	share      string // what the leader assigned
}

// settle joins until the member has an assignment.
func (m *rawMember) settle() error {
	for {
		j, err := m.join()
		if err != nil {
			return err
		}
		switch err := kerr.ErrorForCode(j.ErrorCode); err {
		case nil:
		case kerr.MemberIDRequired:
			m.id = j.MemberID
			continue
		default:
			return fmt.Errorf("join: %w", err)
		}
		m.generation = j.Generation
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, m.group, m.id, m.generation
		for i, other := range j.Members {
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = other.MemberID, fmt.Appendf(nil, "share %d of generation %d", i, j.Generation)
			sync.GroupAssignment = append(sync.GroupAssignment, a)
		}
		resp, err := m.ask(sync)
		if err != nil {
			return err
		}
		s := resp.(*kmsg.SyncGroupResponse)
		switch err := kerr.ErrorForCode(s.ErrorCode); err {
		case nil:
			m.share = string(s.MemberAssignment)
			return nil
		case kerr.RebalanceInProgress:
		default:
			return fmt.Errorf("sync: %w", err)
		}
	}
}

func (m *rawMember) join() (*kmsg.JoinGroupResponse, error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 5, m.group, m.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 30_000, 30_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte("topics")
	req.Protocols = append(req.Protocols, p)
	resp, err := m.ask(req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.JoinGroupResponse), nil
}

// beat says whether the generation goes on.
func (m *rawMember) beat() (bool, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 3, m.group, m.id, m.generation
	resp, err := m.ask(req)
	if err != nil {
		return false, err
	}
	switch err := kerr.ErrorForCode(resp.(*kmsg.HeartbeatResponse).ErrorCode); err {
	case nil:
		return true, nil
	case kerr.RebalanceInProgress:
		return false, nil
	default:
		return false, fmt.Errorf("heartbeat: %w", err)
	}
}

// Many members that come at once settle into generations that hold all of them. GOPHERLOG_TEST_BUDGETS=1 lets a thousand come.
func TestManyMembersSettleInTheirGroups(t *testing.T) {
	groups, each := 10, 10
	if judged() {
		groups = 100
	}
	_, addrs := three(t, "-set", "group.initial.rebalance.delay.ms=0")
	must(t, "mqclient", "topic", "create", "-addr", addrs[0], "t", "-replication-factor", "3")
	must(t, "mqclient", "group", "reset", "warm", "-to", "0", "-topic", "t", "-addr", addrs[0])
	members := make([]*rawMember, groups*each)
	for g := range groups {
		var addr string
		eventually(t, func() (err error) { addr, err = coordinator(t, addrs[0], 0, fmt.Sprint("g", g)); return err })
		for i := range each {
			members[g*each+i] = &rawMember{wire: dialWire(t, addr), group: fmt.Sprint("g", g)}
		}
	}
	together := newMeeting(groups, each)
	began := time.Now()
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			for !together.over(i / each) {
				if err := m.settle(); err != nil {
					t.Errorf("%s, member %q: %v", m.group, m.id, err)
					together.give(i / each)
					return
				}
				together.in(i, m.generation)
				for goesOn := true; goesOn && !together.over(i/each); time.Sleep(20 * time.Millisecond) {
					var err error
					if goesOn, err = m.beat(); err != nil {
						t.Errorf("%s: %v", m.group, err)
						together.give(i / each)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	budget{what: fmt.Sprintf("%d members of %d groups, until all are stable", len(members), groups), figure: took.Seconds(), limit: 3, unit: "s"}.show(t)
	shares := map[string]bool{}
	for _, m := range members {
		key := m.group + " " + m.share
		if shares[key] || m.share == "" {
			t.Errorf("%s: two members have %q", m.group, m.share)
		}
		shares[key] = true
	}
}

// meeting knows when all members of a group are in one generation.
type meeting struct {
	mu          sync.Mutex
	each        int
	generations []int32 // of the members
	done        []bool  // of the groups
}

func newMeeting(groups, each int) *meeting {
	return &meeting{each: each, generations: make([]int32, groups*each), done: make([]bool, groups)}
}

func (m *meeting) in(member int, generation int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generations[member] = generation
	first := member / m.each * m.each
	for _, g := range m.generations[first : first+m.each] {
		if g != generation {
			return
		}
	}
	m.done[member/m.each] = true
}

func (m *meeting) give(group int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[group] = true
}

func (m *meeting) over(group int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done[group]
}
