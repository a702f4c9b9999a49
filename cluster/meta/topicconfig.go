package meta

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxMessageBytesLimit is the largest batch that any topic may accept.
const MaxMessageBytesLimit = 64 << 20

// TopicConfig holds the effective configs of a topic.
type TopicConfig struct {
	// RetentionTime of sealed segments; negative: for ever.
	RetentionTime time.Duration
	// RetentionBytes per partition; negative: unlimited.
	RetentionBytes int64
	SegmentBytes   int64
	// MinInsyncReplicas that an acknowledgement of acks=all stands on; below a majority it acts as the majority.
	MinInsyncReplicas int32
	// SyncEach: flush.messages=1, every append is on disk before it is acknowledged.
	SyncEach        bool
	MaxMessageBytes int32
}

// ConfigSource says where an effective value comes from.
type ConfigSource int

const (
	SourceBuiltIn ConfigSource = iota
	SourceNode
	SourceTopic
)

// ConfigKind is a value's type as Kafka numbers it.
type ConfigKind int8

const (
	KindBoolean ConfigKind = 1
	KindString  ConfigKind = 2
	KindInt     ConfigKind = 3
	KindLong    ConfigKind = 5
	KindList    ConfigKind = 7
)

// ConfigEntry is one key as DescribeConfigs shows it.
type ConfigEntry struct {
	Key, Value, Doc string
	Kind            ConfigKind
	Source          ConfigSource
	// Default is the value without the topic's own setting; BuiltIn the value without the node's either.
	Default, BuiltIn string
}

// topicKey is one line of the registry: to add a key is to add a line, and a field of TopicConfig if something obeys it.
type topicKey struct {
	name, builtIn string
	kind          ConfigKind
	doc           string
	// parse refuses what the key does not take, with the reason, and stores what it does.
	parse func(value string, c *TopicConfig) error
}

// unsyncedMessages is Kafka's way to say that an append is not synced by count.
const unsyncedMessages = "9223372036854775807"

var topicKeys = []topicKey{
	{"cleanup.policy", "delete", KindList, "What happens to old segments: they are deleted.",
		only("delete", "compaction is not part of this version; leave it at delete")},
	{"compression.type", "producer", KindString, "Batches are stored as the producer sent them.",
		only("producer", "batches are stored exactly as producers send them, the broker never recompresses")},
	{"flush.messages", unsyncedMessages, KindLong, "1: every append is synced to disk before it is acknowledged. Otherwise the page cache and the other replicas hold it.",
		parseFlushMessages},
	{"max.message.bytes", "1048588", KindInt, "Largest record batch that is accepted, in bytes.",
		integer(1, MaxMessageBytesLimit, func(c *TopicConfig, v int64) { c.MaxMessageBytes = int32(v) })},
	{"message.timestamp.type", "CreateTime", KindString, "Timestamps are the producer's.",
		only("CreateTime", "timestamps are those of the producer; broker-side stamping is not part of this version")},
	{"min.insync.replicas", "1", KindInt, "Replicas that must hold a batch before acks=all is answered; never fewer than a majority.",
		integer(1, 1000, func(c *TopicConfig, v int64) { c.MinInsyncReplicas = int32(v) })},
	{"retention.bytes", "-1", KindLong, "A partition larger than this loses its oldest sealed segments; -1: no limit.",
		integer(-1, 1<<62, func(c *TopicConfig, v int64) { c.RetentionBytes = v })},
	{"retention.ms", "604800000", KindLong, "A sealed segment whose newest record is older than this is deleted; -1: never.",
		integer(-1, 1<<53, func(c *TopicConfig, v int64) { c.RetentionTime = retention(v) })},
	{"segment.bytes", "1073741824", KindInt, "Size at which a new segment begins.",
		integer(1024, 1<<31-1, func(c *TopicConfig, v int64) { c.SegmentBytes = v })},
	{"unclean.leader.election.enable", "false", KindBoolean, "A replica that lacks acknowledged records is never elected.",
		only("false", "a replica that lacks acknowledged records is never elected here; there is no switch for it")},
}

// retention turns milliseconds into a duration; what does not fit into one is for ever.
func retention(ms int64) time.Duration {
	if ms < 0 || ms > int64(1<<63-1)/int64(time.Millisecond) {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

func only(value, why string) func(string, *TopicConfig) error {
	return func(v string, _ *TopicConfig) error {
		if v == value {
			return nil
		}
		return fmt.Errorf("%q is refused: %s", v, why)
	}
}

func integer(lo, hi int64, set func(*TopicConfig, int64)) func(string, *TopicConfig) error {
	return func(v string, c *TopicConfig) error {
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		if n < lo || n > hi {
			return fmt.Errorf("%d is outside of %d to %d", n, lo, hi)
		}
		set(c, n)
		return nil
	}
}

func parseFlushMessages(v string, c *TopicConfig) error {
	switch strings.TrimSpace(v) {
	case "1":
		c.SyncEach = true
	case unsyncedMessages:
		c.SyncEach = false
	default:
		return fmt.Errorf("%q is refused: either every append is synced (1) or none by count (%s)", v, unsyncedMessages)
	}
	return nil
}

func findKey(name string) (*topicKey, error) {
	for i := range topicKeys {
		if topicKeys[i].name == name {
			return &topicKeys[i], nil
		}
	}
	return nil, &ConfigError{Key: name, Msg: "unknown topic config; known are " + strings.Join(TopicConfigKeys(), ", ")}
}

// TopicConfigKeys returns the names of all topic configs, in order.
func TopicConfigKeys() []string {
	names := make([]string, len(topicKeys))
	for i := range topicKeys {
		names[i] = topicKeys[i].name
	}
	return names
}

// CheckTopicConfig returns a *ConfigError when key is unknown or does not take value.
func CheckTopicConfig(key, value string) error {
	k, err := findKey(key)
	if err != nil {
		return err
	}
	if err := k.parse(value, &TopicConfig{}); err != nil {
		return &ConfigError{Key: key, Msg: err.Error()}
	}
	return nil
}

// CheckTopicConfigs checks every pair, in order of key, and returns the first *ConfigError.
func CheckTopicConfigs(configs map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(configs)) {
		if err := CheckTopicConfig(key, configs[key]); err != nil {
			return err
		}
	}
	return nil
}

// ParseTopicConfig gives the effective values: the topic's own over a node's defaults (may be nil) over the built-in ones. Pairs were
// checked when they were set; one that this program does not take (a newer one wrote it) is a *ConfigError.
func ParseTopicConfig(topic, defaults map[string]string) (TopicConfig, error) {
	var c TopicConfig
	for i := range topicKeys {
		k := &topicKeys[i]
		value, _ := k.effective(topic, defaults)
		if err := k.parse(value, &c); err != nil {
			return TopicConfig{}, &ConfigError{Key: k.name, Msg: err.Error()}
		}
	}
	return c, nil
}

func (k *topicKey) effective(topic, defaults map[string]string) (string, ConfigSource) {
	if v, ok := topic[k.name]; ok {
		return v, SourceTopic
	}
	if v, ok := defaults[k.name]; ok {
		return v, SourceNode
	}
	return k.builtIn, SourceBuiltIn
}

// DescribeTopicConfig lists every known key in order of name.
func DescribeTopicConfig(topic, defaults map[string]string) []ConfigEntry {
	out := make([]ConfigEntry, len(topicKeys))
	for i := range topicKeys {
		k := &topicKeys[i]
		e := ConfigEntry{Key: k.name, Doc: k.doc, Kind: k.kind, BuiltIn: k.builtIn}
		e.Value, e.Source = k.effective(topic, defaults)
		e.Default, _ = k.effective(nil, defaults)
		out[i] = e
	}
	return out
}
