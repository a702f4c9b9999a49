package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"gopherlog/cmd/internal/cli"
)

type groupCmds struct {
	List     groupList     `cmd:"" help:"List consumer groups: state, members, offsets behind."`
	Describe groupDescribe `cmd:"" help:"Show a group's members, committed offsets, and how far behind they are."`
	Reset    groupReset    `cmd:"" help:"Move the committed offsets of a group that has no members."`
	Delete   groupDelete   `cmd:"" help:"Delete a group that has no members, or with -topic only its offsets of one topic."`
}

// groupName is the group of a command, given with -group or as an argument.
type groupName struct {
	Name  string `arg:"" optional:"" name:"name" help:"The group."`
	Group string `help:"The group, instead of the argument." placeholder:"NAME"`
}

func (g groupName) get() (string, error) {
	switch {
	case g.Name != "" && g.Group != "" && g.Name != g.Group:
		return "", cli.Usage(fmt.Errorf("two groups are given, %s and %s: give one", g.Name, g.Group))
	case g.Name != "":
		return g.Name, nil
	case g.Group != "":
		return g.Group, nil
	}
	return "", cli.Usage(errors.New("which group? give its name, as in -group billing"))
}

// dead is Kafka's name for the state of a group that is not there.
const dead = "Dead"

type groupList struct {
	State []string `help:"Only groups in these states, as in Empty,Stable." placeholder:"STATE"`
}

// groupStates are Kafka's, of all kinds of groups.
var groupStates = []string{"Assigning", "CompletingRebalance", dead, "Empty", "NotReady", "PreparingRebalance", "Reconciling", "Stable"}

// knownStates are the states that are asked for, as they are written. Brokers answer with an empty list to one that there is not.
func knownStates(asked, known []string) (out []string, err error) {
	for _, state := range asked {
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, state) })
		if i < 0 {
			return nil, cli.Usage(fmt.Errorf("-state is %q: the states are %s", state, strings.Join(known, ", ")))
		}
		out = append(out, known[i])
	}
	return out, nil
}

// groupLine is one group of a list.
type groupLine struct {
	Group       string `json:"group"`
	State       string `json:"state"`
	Protocol    string `json:"protocol,omitempty"`
	Members     int    `json:"members"`
	Topics      int    `json:"topics"` // that it committed offsets of, or was assigned
	Lag         int64  `json:"lag"`    // -1: unknown for some partition
	Coordinator int32  `json:"coordinator"`
}

// Run prints one line per group.
func (c *groupList) Run(s *session) error {
	states, err := knownStates(c.State, groupStates)
	if err != nil {
		return err
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := s.limit()
	defer cancel()
	var listed kadm.ListedGroups
	short := fromAll(ctx, admin, groupShards, keep(ctx, &listed, func() (kadm.ListedGroups, error) { return admin.ListGroups(ctx, states...) }))
	if short != nil {
		if short = refused("list groups", short, ""); !isUnheard(short) {
			return short
		}
	}
	lags := kadm.DescribedGroupLags{}
	if names := listed.Groups(); len(names) > 0 {
		later, cancel := s.limit()
		defer cancel()
		if lags, err = admin.Lag(later, names...); err != nil {
			return refused("ask how far the groups are", err, "")
		}
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if !s.json {
		fmt.Fprintln(w, "GROUP\tSTATE\tMEMBERS\tTOPICS\tLAG\tCOORDINATOR")
	}
	for _, g := range listed.Sorted() {
		l := lags[g.Group]
		line := groupLine{Group: g.Group, State: g.State, Protocol: l.Protocol, Members: len(l.Members), Topics: len(l.Lag), Lag: behind(l), Coordinator: g.Coordinator}
		if s.json {
			if err := s.printJSON(line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%d\n", line.Group, line.State, line.Members, line.Topics, number(line.Lag), line.Coordinator)
	}
	return errors.Join(w.Flush(), short)
}

// behind is how many records a group has before it, -1 if that cannot be told of some partition.
func behind(l kadm.DescribedGroupLag) (sum int64) {
	if l.Error() != nil {
		return -1
	}
	for _, p := range positions(l) {
		if p.Lag < 0 {
			return -1
		}
		sum += p.Lag
	}
	return sum
}

// positions are the partitions that a group has committed something of or is assigned.
func positions(l kadm.DescribedGroupLag) []kadm.GroupMemberLag {
	return slices.DeleteFunc(l.Lag.Sorted(), func(p kadm.GroupMemberLag) bool { return p.Commit.At < 0 && p.Member == nil })
}

// coordinated asks a coordinator until there is one: it moves with its shard, and the first question of all makes the topic.
func coordinated(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if !away(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// number is a number that -1 means nothing in.
func number(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

type groupDescribe struct{ groupName }

// groupDetail is a group in full.
type groupDetail struct {
	Group       string         `json:"group"`
	State       string         `json:"state"`
	Type        string         `json:"type,omitempty"`
	Protocol    string         `json:"protocol,omitempty"`
	Coordinator int32          `json:"coordinator"`
	Lag         int64          `json:"lag"` // -1: unknown for some partition
	Members     []memberDetail `json:"members"`
	Partitions  []groupOffset  `json:"partitions"`
}

type memberDetail struct {
	Member   string   `json:"member"`
	Instance string   `json:"instance,omitempty"`
	Client   string   `json:"client"`
	Host     string   `json:"host"`
	Assigned []string `json:"assigned"` // topic and partitions
}

// groupOffset is where a group stands in a partition; -1 is what cannot be told.
type groupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"`
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"`
	Metadata  string `json:"metadata,omitempty"`
	Member    string `json:"member,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Run prints the group.
func (c *groupDescribe) Run(s *session) error {
	name, err := c.get()
	if err != nil {
		return err
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := s.limit()
	defer cancel()
	var l kadm.DescribedGroupLag
	err = coordinated(ctx, func() error {
		lags, err := admin.Lag(ctx, name)
		if l = lags[name]; err == nil {
			err = l.Error()
		}
		return err
	})
	var d groupDetail
	if err == nil {
		d = detailOf(l)
	}
	switch { // which of both answers comes depends on the version that the brokers speak
	case errors.Is(err, kerr.GroupIDNotFound), err == nil && d.State == dead && len(d.Partitions) == 0:
		return fmt.Errorf("describe group %s: there is no such group", name)
	case err != nil:
		return refused("describe group "+name, s.unled(admin, groupShards, err), "")
	}
	if s.json {
		return s.printJSON(d)
	}
	return d.print(s)
}

func detailOf(l kadm.DescribedGroupLag) groupDetail {
	d := groupDetail{Group: l.Group, State: l.State, Type: l.ProtocolType, Protocol: l.Protocol, Coordinator: l.Coordinator.NodeID, Lag: behind(l),
		Members: []memberDetail{}, Partitions: []groupOffset{}}
	for _, m := range l.Members {
		out := memberDetail{Member: m.MemberID, Client: m.ClientID, Host: m.ClientHost, Assigned: []string{}}
		if m.InstanceID != nil {
			out.Instance = *m.InstanceID
		}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				out.Assigned = append(out.Assigned, fmt.Sprintf("%s[%s]", t.Topic, ranges(t.Partitions)))
			}
		}
		slices.Sort(out.Assigned)
		d.Members = append(d.Members, out)
	}
	for _, p := range positions(l) {
		out := groupOffset{Topic: p.Topic, Partition: p.Partition, Committed: p.Commit.At, End: p.End.Offset, Lag: p.Lag, Metadata: p.Commit.Metadata}
		if p.Member != nil {
			out.Member = p.Member.MemberID
		}
		if p.Err != nil {
			out.Lag, out.Error = -1, reason(p.Err)
		}
		if p.End.Err != nil {
			out.End = -1
		}
		d.Partitions = append(d.Partitions, out)
	}
	return d
}

func (d *groupDetail) print(s *session) error {
	fmt.Fprintf(s.out, "%s: %s", d.Group, d.State)
	if d.Protocol != "" {
		fmt.Fprintf(s.out, ", %s", d.Protocol)
	}
	fmt.Fprintf(s.out, ", %d member(s), coordinator %d, %s record(s) behind\n", len(d.Members), d.Coordinator, number(d.Lag))
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if len(d.Partitions) > 0 {
		fmt.Fprintln(w, "TOPIC\tPARTITION\tCOMMITTED\tEND\tLAG\tMEMBER")
	}
	for _, p := range d.Partitions {
		who := p.Member
		if p.Error != "" {
			who = p.Error
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", p.Topic, p.Partition, number(p.Committed), number(p.End), number(p.Lag), who)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(d.Members) > 0 {
		fmt.Fprintln(w, "MEMBER\tINSTANCE\tCLIENT\tHOST\tASSIGNED")
	}
	for _, m := range d.Members {
		instance := m.Instance
		if instance == "" {
			instance = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", m.Member, instance, m.Client, m.Host, strings.Join(m.Assigned, " "))
	}
	return w.Flush()
}

type groupDelete struct {
	groupName
	Topic string `help:"Only the group's offsets of this topic, or of some partitions of it as in orders:0,2." placeholder:"TOPIC[:N,...]"`
}

// Run deletes the group, or offsets of it.
func (c *groupDelete) Run(s *session) error {
	name, err := c.get()
	if err != nil {
		return err
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	if c.Topic != "" {
		return c.offsets(s, admin, name)
	}
	ctx, cancel := s.limit()
	defer cancel()
	err = coordinated(ctx, func() error { _, err := admin.DeleteGroup(ctx, name); return err })
	switch {
	case errors.Is(err, kerr.NonEmptyGroup):
		return refused("delete group "+name, err, "NON_EMPTY_GROUP: it has members: stop them first, see group describe "+name)
	case errors.Is(err, kerr.GroupIDNotFound):
		return refused("delete group "+name, err, "GROUP_ID_NOT_FOUND: there is no such group")
	case err != nil:
		return refused("delete group "+name, s.unled(admin, groupShards, err), "")
	}
	return s.print(map[string]any{"group": name, "deleted": true}, "deleted group %s", name)
}

func (c *groupDelete) offsets(s *session, admin *kadm.Client, name string) error {
	some, err := parsePartitions(c.Topic)
	if err != nil {
		return err
	}
	ctx, cancel := s.limit()
	defer cancel()
	held, err := s.offsetsOf(ctx, admin, name)
	if err != nil {
		return err
	}
	set := kadm.TopicsSet{}
	for number := range held[some.topic] {
		if some.has(number) {
			set.Add(some.topic, number)
		}
	}
	if len(set) == 0 {
		return fmt.Errorf("delete offsets: group %s has committed none of %s", name, c.Topic)
	}
	if err := s.deleteOffsets(ctx, admin, name, set); err != nil {
		return err
	}
	n := len(set[some.topic])
	return s.print(map[string]any{"group": name, "topic": some.topic, "offsets_deleted": n}, "deleted %d offset(s) of %s in group %s", n, some.topic, name)
}

func (s *session) deleteOffsets(ctx context.Context, admin *kadm.Client, name string, set kadm.TopicsSet) error {
	err := coordinated(ctx, func() error {
		gone, err := admin.DeleteOffsets(ctx, name, set)
		if err == nil {
			err = gone.Error()
		}
		return err
	})
	if err != nil {
		err = refused("delete offsets of group "+name, s.unled(admin, groupShards, err), "")
	}
	return err
}

// offsetsOf is what a group has committed.
func (s *session) offsetsOf(ctx context.Context, admin *kadm.Client, name string) (held kadm.OffsetResponses, err error) {
	err = coordinated(ctx, func() (err error) { held, err = admin.FetchOffsets(ctx, name); return err })
	if err != nil {
		err = refused("ask for the offsets of group "+name, s.unled(admin, groupShards, err), "")
	}
	return held, err
}
