package group

import (
	"fmt"
	"time"
)

// Code is one of Kafka's error codes.
type Code int16

const (
	OK                        Code = 0
	NotCoordinator            Code = 16
	IllegalGeneration         Code = 22
	InconsistentGroupProtocol Code = 23
	UnknownMemberID           Code = 25
	InvalidSessionTimeout     Code = 26
	RebalanceInProgress       Code = 27
	NonEmptyGroup             Code = 68
	GroupIDNotFound           Code = 69
	MemberIDRequired          Code = 79
	GroupMaxSizeReached       Code = 81
	FencedInstanceID          Code = 82
)

var codeNames = map[Code]string{
	OK: "ok", NotCoordinator: "NOT_COORDINATOR", IllegalGeneration: "ILLEGAL_GENERATION", InconsistentGroupProtocol: "INCONSISTENT_GROUP_PROTOCOL",
	UnknownMemberID: "UNKNOWN_MEMBER_ID", InvalidSessionTimeout: "INVALID_SESSION_TIMEOUT", RebalanceInProgress: "REBALANCE_IN_PROGRESS",
	NonEmptyGroup: "NON_EMPTY_GROUP", GroupIDNotFound: "GROUP_ID_NOT_FOUND", MemberIDRequired: "MEMBER_ID_REQUIRED",
	GroupMaxSizeReached: "GROUP_MAX_SIZE_REACHED", FencedInstanceID: "FENCED_INSTANCE_ID",
}

func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return fmt.Sprintf("code %d", int16(c))
}

// Event is what happens to a machine.
type Event interface{ event() }

type (
	// Join is JoinGroup. MemberID is empty at first; NewID is the id that the member gets then, unique and unguessable (the client's or
	// instance's id and something random). Version 0 has no rebalance timeout: it is the session timeout.
	Join struct {
		Request       Request
		MemberID      string
		Instance      string
		ClientID      string
		ClientHost    string
		Session       time.Duration
		Rebalance     time.Duration
		ProtocolType  string
		Protocols     []Protocol
		NewID         string
		RequireID     bool // from version 4: a dynamic member joins once more with its id (KIP-394)
		MayBeExempted bool // from version 9: a leader can be told not to assign (KIP-814)
	}
	// Sync is SyncGroup; Assignments are the leader's, by member id. Protocol and type are empty before version 5.
	Sync struct {
		Request      Request
		MemberID     string
		Instance     string
		Generation   int32
		ProtocolType string
		Protocol     string
		Assignments  map[string][]byte
	}
	// Heartbeat is Heartbeat.
	Heartbeat struct {
		Request    Request
		MemberID   string
		Instance   string
		Generation int32
	}
	// Leave is LeaveGroup, of one member before version 3.
	Leave struct {
		Request Request
		Members []Leaver
	}
	// Commit asks whether offsets may be committed: by OffsetCommit, or by TxnOffsetCommit, which names a member from version 3 on.
	// Generation is -1 and MemberID empty when no member is named.
	Commit struct {
		Request       Request
		MemberID      string
		Instance      string
		Generation    int32
		Transactional bool
	}
	// Remove deletes the group: DeleteGroups, or its last offset expired (Request 0). The offsets are the driver's to delete, and so is the
	// answer about a group that is Blank and has none (GroupIDNotFound).
	Remove struct{ Request Request }
	// Durable says that the oldest record which was appended and not reported yet is committed in this term.
	Durable struct{}
	// Timer says that a timer that was set is due. One that was cleared or replaced does not fire any more.
	Timer struct {
		Kind   TimerKind
		Member string
	}
	// Lost says that the term is over.
	Lost struct{}
)

// Leaver names a member that leaves: by its id, or a static one by its instance alone.
type Leaver struct{ MemberID, Instance string }

func (Join) event()      {}
func (Sync) event()      {}
func (Heartbeat) event() {}
func (Leave) event()     {}
func (Commit) event()    {}
func (Remove) event()    {}
func (Durable) event()   {}
func (Timer) event()     {}
func (Lost) event()      {}

// TimerKind names a timer of a machine. Setting one again replaces it.
type TimerKind uint8

const (
	TimerSession   TimerKind = iota + 1 // of a member: it was not heard of
	TimerRebalance                      // of the group: who has not joined now is left behind
	TimerSync                           // of the group: who has not asked for its assignment now is left behind
)

func (k TimerKind) String() string { return [...]string{"", "session", "rebalance", "sync"}[k] }

// Effect is what a machine wants done, in order.
type Effect interface{ effect() }

type (
	// Append replicates a record (nil: a tombstone) after all that were appended before it; when it is committed, and not before, the
	// driver hands back Durable. The other effects of the same step do not wait for it.
	Append struct{ Record *Record }
	// Joined answers a Join. Members are filled in for a leader that shall assign.
	Joined struct {
		Request      Request
		Code         Code
		Generation   int32 // -1 with an error
		ProtocolType string
		Protocol     string
		Leader       string
		MemberID     string
		Exempted     bool // the leader shall not assign
		Members      []Joiner
	}
	// Synced answers a Sync.
	Synced struct {
		Request      Request
		Code         Code
		ProtocolType string
		Protocol     string
		Assignment   []byte
	}
	// Left answers a Leave, a code for each member in the order of the request.
	Left struct {
		Request Request
		Codes   []Code
	}
	// Answer answers a Heartbeat, a Commit or a Remove. After OK to a Commit the driver appends the offsets, in the same term.
	Answer struct {
		Request Request
		Code    Code
	}
	// SetTimer asks for a Timer event after a while; ClearTimer takes it back. Member is empty for the group's own timers.
	SetTimer struct {
		Kind   TimerKind
		Member string
		After  time.Duration
	}
	ClearTimer struct {
		Kind   TimerKind
		Member string
	}
	// Forget says that nothing is left of the group: the machine can go.
	Forget struct{}
)

// Joiner is what a leader is told about a member.
type Joiner struct {
	MemberID, Instance string
	Metadata           []byte
}

func (Append) effect()     {}
func (Joined) effect()     {}
func (Synced) effect()     {}
func (Left) effect()       {}
func (Answer) effect()     {}
func (SetTimer) effect()   {}
func (ClearTimer) effect() {}
func (Forget) effect()     {}

func (a Append) String() string { return "append " + a.Record.String() }

func (a Joined) String() string {
	if a.Code != OK {
		s := fmt.Sprintf("join %d %s", a.Request, a.Code)
		if a.Code == MemberIDRequired {
			s += " " + a.MemberID
		}
		return s
	}
	s := fmt.Sprintf("join %d ok: %s in %d %s/%s led by %s", a.Request, a.MemberID, a.Generation, a.ProtocolType, a.Protocol, a.Leader)
	for _, m := range a.Members {
		s += fmt.Sprintf(" %s:%x", m.MemberID, m.Metadata)
	}
	if a.Exempted {
		s += " exempted"
	}
	return s
}

func (a Synced) String() string {
	if a.Code != OK {
		return fmt.Sprintf("sync %d %s", a.Request, a.Code)
	}
	return fmt.Sprintf("sync %d ok: %x", a.Request, a.Assignment)
}

func (a Left) String() string   { return fmt.Sprintf("leave %d %v", a.Request, a.Codes) }
func (a Answer) String() string { return fmt.Sprintf("answer %d %s", a.Request, a.Code) }
func (t SetTimer) String() string {
	if t.Member != "" {
		return fmt.Sprintf("set %s of %s %v", t.Kind, t.Member, t.After)
	}
	return fmt.Sprintf("set %s %v", t.Kind, t.After)
}
func (t ClearTimer) String() string {
	if t.Member != "" {
		return fmt.Sprintf("clear %s of %s", t.Kind, t.Member)
	}
	return fmt.Sprintf("clear %s", t.Kind)
}
func (Forget) String() string { return "forget" }
