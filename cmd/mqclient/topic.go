package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"gopherlog/cmd/internal/cli"
)

type topicCmds struct {
	Create   topicCreate   `cmd:"" help:"Create a topic."`
	List     topicList     `cmd:"" help:"List all topics."`
	Describe topicDescribe `cmd:"" help:"Show a topic's partitions, leaders, replicas and settings."`
	Delete   topicDelete   `cmd:"" help:"Delete a topic with everything in it."`
}

// topicName is the topic of a command, given with -topic or as an argument.
type topicName struct {
	Name  string `arg:"" optional:"" name:"name" help:"The topic."`
	Topic string `help:"The topic, instead of the argument." placeholder:"NAME"`
}

func (t topicName) get() (string, error) {
	switch {
	case t.Name != "" && t.Topic != "" && t.Name != t.Topic:
		return "", cli.Usage(fmt.Errorf("two topics are given, %s and %s: give one", t.Name, t.Topic))
	case t.Name != "":
		return t.Name, nil
	case t.Topic != "":
		return t.Topic, nil
	}
	return "", cli.Usage(errors.New("which topic? give its name, as in -topic orders"))
}

// givenTopic refuses an empty name, as an unset variable of a shell leaves it.
func givenTopic(name string) error {
	if name == "" {
		return cli.Usage(errors.New("-topic is empty: which topic? give its name, as in -topic orders"))
	}
	return nil
}

// noPartition says that a topic with so many partitions lacks one.
func noPartition(topic string, has int, number int32) error {
	return cli.Usage(fmt.Errorf("topic %s has partitions 0 to %d: there is no %d", topic, has-1, number))
}

type topicCreate struct {
	topicName
	Partitions        int32             `help:"Number of partitions; -1: the cluster's default." default:"-1"`
	ReplicationFactor int16             `help:"Number of replicas of each partition; -1: the cluster's default." default:"-1"`
	Set               map[string]string `help:"Setting by Kafka's name, as in min.insync.replicas=2; may be repeated." placeholder:"KEY=VALUE"`
}

// Run creates the topic.
func (c *topicCreate) Run(s *session) error {
	name, err := c.get()
	if err != nil {
		return err
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	configs := map[string]*string{}
	for k, v := range c.Set {
		configs[k] = &v
	}
	ctx, cancel := s.limit()
	defer cancel()
	r, err := admin.CreateTopic(ctx, c.Partitions, c.ReplicationFactor, configs, name)
	if err != nil {
		return refused("create topic "+name, err, r.ErrMessage)
	}
	return s.print(map[string]any{"topic": name, "created": true, "partitions": r.NumPartitions, "replication_factor": r.ReplicationFactor},
		"created topic %s%s", name, created(r))
}

// created adds what the cluster chose, where it says so.
func created(r kadm.CreateTopicResponse) string {
	if r.NumPartitions < 1 {
		return ""
	}
	return fmt.Sprintf(" with %d partition(s), replication factor %d", r.NumPartitions, r.ReplicationFactor)
}

type topicList struct {
	Internal bool `help:"The cluster's own topics too."`
}

// topicLine is one topic of a list.
type topicLine struct {
	Topic             string `json:"topic"`
	ID                string `json:"id"`
	Partitions        int    `json:"partitions"`
	ReplicationFactor int    `json:"replication_factor"`
	Internal          bool   `json:"internal,omitempty"`
}

// Run prints one line per topic.
func (c *topicList) Run(s *session) error {
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := s.limit()
	defer cancel()
	topics, err := admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return refused("list topics", err, "")
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if !s.json {
		fmt.Fprintln(w, "TOPIC\tPARTITIONS\tREPLICAS")
	}
	for _, t := range topics.Sorted() {
		if t.IsInternal && !c.Internal {
			continue
		}
		line := topicLine{t.Topic, idText(t.ID), len(t.Partitions), t.Partitions.NumReplicas(), t.IsInternal}
		if s.json {
			if err := s.printJSON(line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\n", line.Topic, line.Partitions, line.ReplicationFactor)
	}
	return w.Flush()
}

type topicDescribe struct{ topicName }

// topicDetail is a topic in full.
type topicDetail struct {
	topicLine
	Detail  []partitionDetail `json:"partition_details"`
	Configs map[string]string `json:"configs"`
}

type partitionDetail struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"` // -1: none
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	InSync      []int32 `json:"in_sync"`
	Start       int64   `json:"start_offset"` // -1: nobody leads it who could tell
	End         int64   `json:"end_offset"`
}

// Run prints the topic.
func (c *topicDescribe) Run(s *session) error {
	name, err := c.get()
	if err != nil {
		return err
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	d, err := describe(s, admin, name)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(d)
	}
	return d.print(s)
}

func (d *topicDetail) print(s *session) error {
	fmt.Fprintf(s.out, "%s: id %s, %d partition(s), replication factor %d\n", d.Topic, d.ID, d.Partitions, d.ReplicationFactor)
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PARTITION\tLEADER\tEPOCH\tREPLICAS\tIN SYNC\tSTART\tEND")
	for _, p := range d.Detail {
		leader := fmt.Sprint(p.Leader)
		if p.Leader < 0 {
			leader = "none"
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%s\t%s\t%s\n", p.Partition, leader, p.LeaderEpoch, joined(p.Replicas), joined(sorted(p.InSync)), number(p.Start), number(p.End))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(d.Configs)) {
		fmt.Fprintf(s.out, "%s=%s\n", k, d.Configs[k])
	}
	return nil
}

func describe(s *session, admin *kadm.Client, name string) (*topicDetail, error) {
	ctx, cancel := s.limit()
	defer cancel()
	topics, err := admin.ListTopicsWithInternal(ctx, name)
	if err == nil {
		err = topics[name].Err
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, refused("describe topic "+name, err, "UNKNOWN_TOPIC_OR_PARTITION: there is no such topic")
	}
	if err != nil {
		return nil, refused("describe topic "+name, err, "")
	}
	t := topics[name]
	d := &topicDetail{topicLine: topicLine{name, idText(t.ID), len(t.Partitions), t.Partitions.NumReplicas(), t.IsInternal}, Configs: map[string]string{}}
	low, _ := admin.ListStartOffsets(ctx, name)
	end, _ := admin.ListEndOffsets(ctx, name)
	for _, p := range t.Partitions.Sorted() {
		d.Detail = append(d.Detail, partitionDetail{p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, offsetOf(low, name, p.Partition), offsetOf(end, name, p.Partition)})
	}
	configs, err := admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return nil, refused("describe the settings of topic "+name, err, "")
	}
	for _, c := range configs {
		if c.Err != nil {
			return nil, refused("describe the settings of topic "+name, c.Err, c.ErrMessage)
		}
		for _, kv := range c.Configs {
			d.Configs[kv.Key] = kv.MaybeValue()
		}
	}
	return d, nil
}

func offsetOf(l kadm.ListedOffsets, topic string, p int32) int64 {
	if o, ok := l.Lookup(topic, p); ok && o.Err == nil {
		return o.Offset
	}
	return -1
}

func joined(ids []int32) string {
	if len(ids) == 0 {
		return "none"
	}
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = fmt.Sprint(id)
	}
	return strings.Join(parts, ",")
}

// sorted returns the ids in order, in a new list.
func sorted(ids []int32) []int32 {
	out := slices.Clone(ids)
	slices.Sort(out)
	return out
}

type topicDelete struct{ topicName }

// Run deletes the topic.
func (c *topicDelete) Run(s *session) error {
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
	r, err := admin.DeleteTopic(ctx, name)
	if err != nil {
		return refused("delete topic "+name, err, r.ErrMessage)
	}
	return s.print(map[string]any{"topic": name, "deleted": true}, "deleted topic %s", name)
}

// idText is a topic's id as Kafka's own tools and a partition's files write it.
func idText(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }
