package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"gopherlog/cmd/internal/cli"
)

type groupReset struct {
	groupName
	Topic  string `help:"The topic, or some partitions of it as in orders:0,2; without it every topic of which the group has offsets." placeholder:"TOPIC[:N,...]"`
	To     string `required:"" help:"Where to: earliest, latest, an offset, a time as in 2006-01-02T15:04:05Z, or relative to where the group is, as in -to=+100 and -to=-100." placeholder:"WHERE"`
	DryRun bool   `help:"Show what would be done, and do not do it."`
}

// somePartitions are partitions of a topic; none listed: all.
type somePartitions struct {
	topic   string
	numbers []int32
}

func (p somePartitions) has(number int32) bool {
	return len(p.numbers) == 0 || slices.Contains(p.numbers, number)
}

// allIn says which of the partitions the topic, which has these, does not have.
func (p somePartitions) allIn(there []int32) error {
	for _, number := range p.numbers {
		if !slices.Contains(there, number) {
			return cli.Usage(fmt.Errorf("topic %s has no partition %d", p.topic, number))
		}
	}
	return nil
}

func parsePartitions(text string) (somePartitions, error) {
	topic, list, some := strings.Cut(text, ":")
	out := somePartitions{topic: topic}
	if topic == "" {
		return out, cli.Usage(fmt.Errorf("-topic is %q: give TOPIC, or TOPIC:N,... for some of its partitions", text))
	}
	if !some {
		return out, nil
	}
	for _, one := range strings.Split(list, ",") {
		n, err := strconv.ParseInt(one, 10, 32)
		if err != nil || n < 0 {
			return out, cli.Usage(fmt.Errorf("-topic is %q: %q is no partition", text, one))
		}
		out.numbers = append(out.numbers, int32(n))
	}
	return out, nil
}

// target is where offsets shall go.
type target struct {
	start
	relative bool // start.offset is added to what is committed
}

func parseTarget(text string) (target, error) {
	if text != "" && (text[0] == '+' || text[0] == '-') {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return target{}, cli.Usage(fmt.Errorf("-to is %q: give a number of records, as in +100 or -100", text))
		}
		return target{start{offset: n}, true}, nil
	}
	at, err := parseStart(text)
	if err != nil {
		err = cli.Usage(fmt.Errorf("-to is %q: give earliest, latest, an offset, a time as in 2006-01-02T15:04:05Z, +N or -N", text))
	}
	return target{start: at}, err
}

// offsetMove is what a reset does to one partition.
type offsetMove struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"` // -1: nothing was committed
	To        int64  `json:"to"`
	Skipped   int64  `json:"skipped"` // records that the group will not see (negative: that it sees again)
}

// Run moves the offsets.
func (c *groupReset) Run(s *session) error {
	name, err := c.get()
	if err != nil {
		return err
	}
	to, err := parseTarget(c.To)
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
	moves, err := c.plan(ctx, s, admin, name, to)
	if err != nil {
		return err
	}
	if !c.DryRun {
		if err := s.commit(ctx, admin, name, moves); err != nil {
			return err
		}
	}
	return c.print(s, name, moves)
}

// plan says for each partition where its offset is and where it shall be, within what there is.
func (c *groupReset) plan(ctx context.Context, s *session, admin *kadm.Client, name string, to target) ([]offsetMove, error) {
	held, err := s.offsetsOf(ctx, admin, name)
	if err != nil {
		return nil, err
	}
	topics, some := held.Offsets().TopicsSet().Topics(), somePartitions{}
	if c.Topic != "" {
		if some, err = parsePartitions(c.Topic); err != nil {
			return nil, err
		}
		topics = []string{some.topic}
	}
	slices.Sort(topics)
	var moves []offsetMove
	for _, topic := range topics {
		more, err := planTopic(ctx, s, admin, topic, some, held, to)
		if err != nil {
			return nil, err
		}
		moves = append(moves, more...)
	}
	switch {
	case len(moves) > 0:
		return moves, nil
	case c.Topic != "": // and relative: any other target is one of each partition
		return nil, fmt.Errorf("reset group %s: it has committed nothing in %s from where -to=%s could count; give an offset, earliest or latest", name, c.Topic, c.To)
	}
	return nil, fmt.Errorf("reset group %s: it has committed nothing; name a topic with -topic", name)
}

func planTopic(ctx context.Context, s *session, admin *kadm.Client, topic string, some somePartitions, held kadm.OffsetResponses, to target) ([]offsetMove, error) {
	low, err := s.listOffsets(ctx, admin, topic, admin.ListStartOffsets)
	if err != nil {
		return nil, err
	}
	end, err := s.listOffsets(ctx, admin, topic, admin.ListEndOffsets)
	if err != nil {
		return nil, err
	}
	at, err := to.in(ctx, s, admin, topic, low, end)
	if err != nil {
		return nil, err
	}
	if err := some.allIn(slices.Collect(maps.Keys(end))); err != nil {
		return nil, err
	}
	var moves []offsetMove
	for number := range end {
		m := offsetMove{Topic: topic, Partition: number, From: -1}
		if o, ok := held.Lookup(topic, number); ok {
			m.From = o.At
		}
		if !some.has(number) || to.relative && m.From < 0 || some.topic == "" && m.From < 0 {
			continue
		}
		m.To = at[number]
		if to.relative {
			m.To = m.From + to.offset
		}
		m.To = min(max(m.To, low[number]), end[number])
		m.Skipped = m.To - max(m.From, low[number])
		moves = append(moves, m)
	}
	slices.SortFunc(moves, func(a, b offsetMove) int { return int(a.Partition - b.Partition) })
	return moves, nil
}

// in is where the target lies in each partition of a topic.
func (t target) in(ctx context.Context, s *session, admin *kadm.Client, topic string, low, end map[int32]int64) (map[int32]int64, error) {
	switch {
	case t.word == "earliest":
		return low, nil
	case t.word == "latest":
		return end, nil
	case !t.time.IsZero():
		return s.listOffsets(ctx, admin, topic, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, t.time.UnixMilli(), topics...)
		})
	}
	at := map[int32]int64{}
	for number := range end {
		at[number] = t.offset
	}
	return at, nil
}

func (s *session) commit(ctx context.Context, admin *kadm.Client, name string, moves []offsetMove) error {
	offsets := kadm.Offsets{}
	for _, m := range moves {
		offsets.Add(kadm.Offset{Topic: m.Topic, Partition: m.Partition, At: m.To, LeaderEpoch: -1, Metadata: ""})
	}
	err := coordinated(ctx, func() error {
		err := admin.CommitAllOffsets(ctx, name, offsets)
		if errors.Is(err, kerr.UnknownTopicOrPartition) && ctx.Err() != nil {
			return ctx.Err() // the library takes topics that nobody told the ids of for ones that are not there; the plan has seen them
		}
		return err
	})
	if err == nil {
		return nil
	}
	if described, derr := admin.DescribeGroups(ctx, name); derr == nil && len(described[name].Members) > 0 {
		return fmt.Errorf("reset group %s: it has %d member(s), which would overwrite what is set: stop them first", name, len(described[name].Members))
	}
	return refused("reset group "+name, s.unled(admin, groupShards, err), "")
}

func (c *groupReset) print(s *session, name string, moves []offsetMove) error {
	if s.json {
		return s.printJSON(map[string]any{"group": name, "reset": !c.DryRun, "partitions": moves})
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tPARTITION\tFROM\tTO\tSKIPPED")
	for _, m := range moves {
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\n", m.Topic, m.Partition, number(m.From), m.To, m.Skipped)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if c.DryRun {
		_, err := fmt.Fprintf(s.out, "nothing was changed: leave -dry-run out to reset group %s\n", name)
		return err
	}
	_, err := fmt.Fprintf(s.out, "reset group %s\n", name)
	return err
}
