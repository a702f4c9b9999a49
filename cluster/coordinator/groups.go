package coordinator

import (
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/txn/field"
	"gopherlog/txn/group"
)

// Every request below is answered exactly once, by calling done from any goroutine, possibly before the method returns; done must not block.
// Codes are Kafka's: NotCoordinator where this node does not lead the group's shard or ceases to, LoadInProgress while it cannot tell yet.

// maxName is the longest string of a client that becomes part of a record; a member id is made of one and something behind it.
const maxName = field.MaxText - 64

// maxProtocols bounds what a member offers: a join compares it with what every other member does, and the shard does nothing else meanwhile.
const maxProtocols = 100

func fits(names ...string) bool {
	return !slices.ContainsFunc(names, func(s string) bool { return len(s) > maxName })
}

// enter hands a request to the goroutine that decides about the group, or returns why it does not.
func (g *Groups) enter(id string, mayBeEmpty bool, fn func(t *groupTerm)) group.Code {
	if id == "" && !mayBeEmpty || !fits(id) {
		return InvalidGroupID
	}
	t, code := g.term(id)
	if code != group.OK {
		return code
	}
	return group.Code(t.ask(func() { fn(t) }))
}

// Join is JoinGroup; NewID of the event is made here.
func (g *Groups) Join(id string, e group.Join, done func(group.Joined)) {
	refuse := func(code group.Code) { done(group.Joined{Code: code, Generation: -1, MemberID: e.MemberID}) }
	if len(e.Protocols) > maxProtocols || !fits(e.MemberID, e.Instance, e.ClientID, e.ClientHost, e.ProtocolType) || slices.ContainsFunc(e.Protocols, func(p group.Protocol) bool { return !fits(p.Name) }) {
		refuse(InvalidRequest)
		return
	}
	if e.NewID = e.ClientID; e.Instance != "" {
		e.NewID = e.Instance
	}
	e.NewID += "-" + g.cfg.NewID()
	code := g.enter(id, false, func(t *groupTerm) {
		t.request(t.live(id), func(f group.Effect) { done(f.(group.Joined)) }, func(r group.Request) group.Event { e.Request = r; return e })
	})
	if code != group.OK {
		refuse(code)
	}
}

// Sync is SyncGroup.
func (g *Groups) Sync(id string, e group.Sync, done func(group.Synced)) {
	code := g.enter(id, false, func(t *groupTerm) {
		t.request(t.live(id), func(f group.Effect) { done(f.(group.Synced)) }, func(r group.Request) group.Event { e.Request = r; return e })
	})
	if code != group.OK {
		done(group.Synced{Code: code})
	}
}

// Heartbeat is Heartbeat.
func (g *Groups) Heartbeat(id string, e group.Heartbeat, done func(group.Code)) {
	code := g.enter(id, false, func(t *groupTerm) {
		t.request(t.live(id), func(f group.Effect) { done(f.(group.Answer).Code) }, func(r group.Request) group.Event { e.Request = r; return e })
	})
	if code != group.OK {
		done(code)
	}
}

// Leave is LeaveGroup: a code for each member, or one for all.
func (g *Groups) Leave(id string, e group.Leave, done func(group.Code, []group.Code)) {
	code := g.enter(id, false, func(t *groupTerm) {
		t.request(t.live(id), func(f group.Effect) { done(group.OK, f.(group.Left).Codes) }, func(r group.Request) group.Event { e.Request = r; return e })
	})
	if code != group.OK {
		done(code, nil)
	}
}

// Offset is what a client commits.
type Offset struct {
	Topic     string
	Partition int32
	Offset    int64
	Epoch     int32
	Metadata  string // at most MaxMetadata bytes
	TopicID   meta.TopicID
}

// pair is the offset's record.
func (o *Offset) pair(id string, committed int64) pair {
	value := group.Offset{Offset: o.Offset, LeaderEpoch: o.Epoch, Metadata: o.Metadata, Committed: committed, Expires: -1, TopicID: o.TopicID}
	return pair{group.Key{Group: id, Topic: o.Topic, Partition: o.Partition}, value.Encode()}
}

// Commit is OffsetCommit. With OK the offsets are committed: Fetch shows them, here and wherever the shard will be led.
func (g *Groups) Commit(id string, e group.Commit, offsets []Offset, done func(group.Code)) {
	now := g.cfg.Now().UnixMilli()
	pairs := make([]pair, len(offsets))
	for i := range offsets {
		pairs[i] = offsets[i].pair(id, now)
	}
	counted := func(code group.Code) {
		g.stats.committed(code, len(pairs))
		done(code)
	}
	code := g.enter(id, true, func(t *groupTerm) { t.commit(id, e, pairs, counted) })
	if code != group.OK {
		counted(code)
	}
}

// Fetch is OffsetFetch: what is committed for the partitions in want, in their order, or everything if it is nil. A group that nobody knows
// has committed nothing. With OK nothing that any coordinator had acknowledged before the call is missing.
func (g *Groups) Fetch(id string, want []Wanted, done func([]Committed, group.Code)) {
	if code := g.enter(id, true, func(t *groupTerm) { t.fetch(id, want, done) }); code != group.OK {
		done(nil, code)
	}
}

// Delete is DeleteGroups of one.
func (g *Groups) Delete(id string, done func(group.Code)) {
	if code := g.enter(id, true, func(t *groupTerm) { t.remove(id, done) }); code != group.OK {
		done(code)
	}
}

// DeleteOffsets is OffsetDelete: a code for all, and if that is OK one for each.
func (g *Groups) DeleteOffsets(id string, offsets []Offset, done func(group.Code, []group.Code)) {
	keys := make([]group.Key, len(offsets))
	for i, o := range offsets {
		keys[i] = group.Key{Group: id, Topic: o.Topic, Partition: o.Partition}
	}
	if code := g.enter(id, false, func(t *groupTerm) { t.removeOffsets(id, keys, done) }); code != group.OK {
		done(code, nil)
	}
}

// Described is a group as an administrator sees it.
type Described struct {
	ID           string
	State        string // Kafka's name
	ProtocolType string
	Protocol     string
	Members      []group.RecordMember
}

// Dead is Kafka's name for the state of a group that is not there.
const Dead = "Dead"

// Describe is DescribeGroups of one. A group that is not there is dead.
func (g *Groups) Describe(id string, done func(Described, group.Code)) {
	code := g.enter(id, true, func(t *groupTerm) {
		l := t.live(id)
		_, known := t.table.record(id)
		d := describe(l)
		if !known && l.state.Blank() && l.flying == 0 {
			d.State = Dead
		}
		t.settle(l)
		done(d, group.OK)
	})
	if code != group.OK {
		done(Described{ID: id}, code)
	}
}

func describe(l *live) Described {
	s := &l.state
	d := Described{ID: l.id, State: s.Status.String(), ProtocolType: s.ProtocolType}
	settled := s.Status == group.Stable // before that nobody knows which protocol it will be
	if settled {
		d.Protocol = s.Protocol
	}
	for _, m := range s.Members {
		out := group.RecordMember{ID: m.ID, Instance: m.Instance, ClientID: m.ClientID, ClientHost: m.ClientHost, Rebalance: m.Rebalance, Session: m.Session}
		if settled {
			out.Assignment = m.Assignment
			for _, p := range m.Protocols {
				if p.Name == s.Protocol {
					out.Subscription = p.Metadata
				}
			}
		}
		d.Members = append(d.Members, out)
	}
	return d
}

// List is ListGroups: all groups of the shards that are led here, without members. LoadInProgress comes with those that are known.
func (g *Groups) List(done func([]Described, group.Code)) {
	all, loading := g.terms()
	l := &listing{left: len(all) + 1, done: done}
	if loading {
		l.code = LoadInProgress
	}
	for _, t := range all {
		switch t.ask(func() { l.add(t.list(), group.OK) }) {
		case codeNone:
		case codeLoading:
			l.add(nil, LoadInProgress)
		default:
			l.add(nil, group.OK) // no longer led here
		}
	}
	l.add(nil, l.code)
}

// listing gathers the groups of several shards.
type listing struct {
	mu   sync.Mutex
	left int
	all  []Described
	code group.Code
	done func([]Described, group.Code)
}

func (l *listing) add(some []Described, code group.Code) {
	l.mu.Lock()
	l.all = append(l.all, some...)
	l.left--
	over := l.left == 0
	if code != group.OK {
		l.code = code
	}
	l.mu.Unlock()
	if over {
		l.done(l.all, l.code)
	}
}

func (t *groupTerm) list() (out []Described) {
	for _, id := range t.table.ids() {
		if t.lives[id] == nil { // offsets only
			out = append(out, Described{ID: id, State: group.Empty.String()})
		}
	}
	for _, l := range t.lives {
		d := describe(l)
		d.Members = nil
		out = append(out, d)
	}
	return out
}

// subscribed are the topics that members of a group of consumers subscribe to. What cannot be read subscribes to nothing that could be told.
func subscribed(s group.State) map[string]bool {
	topics := map[string]bool{}
	for _, m := range s.Members {
		for _, p := range m.Protocols {
			var subscription kmsg.ConsumerMemberMetadata
			if subscription.ReadFrom(p.Metadata) != nil {
				continue
			}
			for _, topic := range subscription.Topics {
				topics[topic] = true
			}
		}
	}
	return topics
}
