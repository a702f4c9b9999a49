// Package group decides what a coordinator of Kafka's classic consumer groups does about one group, as a function from a state and an
// event to a new state and effects.
//
// It knows members, static ones too, generations, the rebalance with its timers, who may commit offsets, when offsets expire, and the
// records that a group leaves. It refuses to know clocks, goroutines, the network, Raft, Kafka's frames, and what members say to each
// other: subscriptions and assignments are bytes, so cooperative rebalancing needs nothing here. Randomness comes with the event that
// may need it.
package group

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is where a group stands; the names are Kafka's.
type Status uint8

const (
	Empty               Status = iota // no members; there may be offsets
	PreparingRebalance                // members are joining the next generation
	CompletingRebalance               // the generation has begun; its assignment is missing
	Stable                            // every member that asks gets its assignment
)

// String is Kafka's name, as DescribeGroups and ListGroups use it. A group that is unknown is called Dead there.
func (s Status) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// Request stands for a request that waits for an answer; the driver chooses it. Zero is nobody.
type Request uint64

// Protocol is one way of assigning that a member offers, with its subscription for it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// Member is a member of the group. It is never changed after it was made.
type Member struct {
	ID         string
	Instance   string // group.instance.id; empty: a dynamic member
	ClientID   string
	ClientHost string
	Session    time.Duration
	Rebalance  time.Duration
	Protocols  []Protocol // in the member's order of preference
	Assignment []byte

	Joining Request // its JoinGroup waits for the next generation
	Syncing Request // its SyncGroup waits for the assignment
	Synced  bool    // it asked for the assignment of this generation
	New     bool    // it was never in a generation
}

func (m *Member) String() string {
	s := m.ID
	if m.Instance != "" {
		s += "=" + m.Instance
	}
	for _, p := range m.Protocols {
		s += fmt.Sprintf(" %s:%x", p.Name, p.Metadata)
	}
	if m.Joining != 0 {
		s += fmt.Sprintf(" joining %d", m.Joining)
	}
	if m.Syncing != 0 {
		s += fmt.Sprintf(" syncing %d", m.Syncing)
	}
	if m.Synced {
		s += fmt.Sprintf(" has %x", m.Assignment)
	}
	if m.New {
		s += " new"
	}
	return s
}

// metadata is the member's subscription for a protocol.
func (m *Member) metadata(protocol string) []byte {
	for _, p := range m.Protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *Member) offers(protocol string) bool {
	return slices.ContainsFunc(m.Protocols, func(p Protocol) bool { return p.Name == protocol })
}

// State is a machine: one group at its coordinator, in one term. It is immutable.
type State struct {
	Status       Status
	Generation   int32
	Assigned     int32 // no generation behind this one has an assignment, not even one on its way into the log
	ProtocolType string
	Protocol     string
	Leader       string    // a member id
	Members      []*Member // in the order in which they came
	Promised     []string  // member ids that were given out and did not come back yet, sorted
	Since        int64     // when Status changed last, in milliseconds
	Known        bool      // the log holds a record of the group, or will

	// Of a group that was empty: the first rebalance waits a little, again and again while members come, Patience long at most.
	Delaying bool
	Patience time.Duration
	Grown    bool

	Pending []Step
	Silent  bool // the term is over
}

// Step is a record that was appended and is not known to be durable (nil: a tombstone), with the answers that wait for it.
type Step struct {
	Record  *Record
	Assigns bool // its assignment is given out when it is durable, if the generation is the same still
	Answers []Effect
}

// String is canonical and leaves out times.
func (s State) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", s.Status, s.Generation)
	if s.Assigned != s.Generation {
		fmt.Fprintf(&b, " (assigned %d)", s.Assigned)
	}
	if s.ProtocolType != "" {
		fmt.Fprintf(&b, " %s/%s", s.ProtocolType, s.Protocol)
	}
	for _, m := range s.Members {
		leads := ""
		if m.ID == s.Leader {
			leads = "leader "
		}
		fmt.Fprintf(&b, " | %s%s", leads, m)
	}
	if len(s.Promised) > 0 {
		fmt.Fprintf(&b, " | promised %v", s.Promised)
	}
	if s.Delaying {
		fmt.Fprintf(&b, " | delaying, patience %v, grown %v", s.Patience, s.Grown)
	}
	for _, p := range s.Pending {
		fmt.Fprintf(&b, " | pending %s assigns %v %v", p.Record, p.Assigns, p.Answers)
	}
	if !s.Known {
		b.WriteString(" | unrecorded")
	}
	if s.Silent {
		b.WriteString(" | silent")
	}
	return b.String()
}

// Blank says that there is nothing to keep of the group: a driver may drop the machine, and Boot a new one when it is asked for.
func (s State) Blank() bool {
	return s.Status == Empty && !s.Known && len(s.Promised)+len(s.Pending) == 0
}

// Member returns a member by its id; nil if there is none.
func (s State) Member(id string) *Member {
	if i := s.index(id); i >= 0 {
		return s.Members[i]
	}
	return nil
}

func (s State) index(id string) int {
	return slices.IndexFunc(s.Members, func(m *Member) bool { return m.ID == id })
}

// static returns the member that an instance id belongs to; nil if there is none.
func (s State) static(instance string) *Member {
	i := slices.IndexFunc(s.Members, func(m *Member) bool { return m.Instance == instance })
	if instance == "" || i < 0 {
		return nil
	}
	return s.Members[i]
}

func (s State) promised(id string) bool {
	_, ok := slices.BinarySearch(s.Promised, id)
	return ok
}

// supports says whether a member with these protocols can be in the group, in the place of old or beside the others.
func (s State) supports(protocolType string, protocols []Protocol, old *Member) bool {
	if protocolType == "" || len(protocols) == 0 {
		return false
	}
	if len(s.Members) == 0 {
		return true
	}
	return protocolType == s.ProtocolType && slices.ContainsFunc(protocols, func(p Protocol) bool { return s.common(p.Name, old) })
}

// common says whether every member but old offers the protocol.
func (s State) common(protocol string, old *Member) bool {
	return !slices.ContainsFunc(s.Members, func(m *Member) bool { return m != old && !m.offers(protocol) })
}

// choose is the protocol that the next generation uses: each member votes for the first of its protocols that all offer; the one with
// most votes wins, among equals the one whose name comes first.
func (s State) choose() string {
	votes := map[string]int{}
	for _, m := range s.Members {
		for _, p := range m.Protocols {
			if s.common(p.Name, nil) {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for name, n := range votes {
		if c := cmp.Compare(n, votes[best]); c > 0 || c == 0 && name < best {
			best = name
		}
	}
	return best
}

// longest is the longest rebalance timeout of the members.
func (s State) longest() (d time.Duration) {
	for _, m := range s.Members {
		d = max(d, m.Rebalance)
	}
	return d
}

// Config is what machines are told once.
type Config struct {
	MinSession   time.Duration // group.min.session.timeout.ms
	MaxSession   time.Duration // group.max.session.timeout.ms
	MaxMembers   int           // group.max.size
	InitialDelay time.Duration // group.initial.rebalance.delay.ms
	NewMember    time.Duration // how long a member that was in no generation yet may wait for its first
	Retention    time.Duration // offsets.retention.minutes
}

// Defaults are the settings of a server.
func Defaults() Config {
	return Config{MinSession: 6 * time.Second, MaxSession: 30 * time.Minute, MaxMembers: 10_000, InitialDelay: 3 * time.Second,
		NewMember: 5 * time.Minute, Retention: 7 * 24 * time.Hour}
}
