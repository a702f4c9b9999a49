package meta

import "time"

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

// ParseTopicConfig gives the effective values: topic over defaults (a node's, may be nil) over built-in. Keys were validated when
// they were set; one that no longer is valid is an error.
func ParseTopicConfig(topic, defaults map[string]string) (TopicConfig, error) {
	return TopicConfig{}, nil
}

// ConfigSource says where an effective value comes from.
type ConfigSource int

const (
	SourceBuiltin ConfigSource = iota
	SourceNode
	SourceTopic
)

// ConfigKind is a value's type as Kafka names it.
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

// DescribeTopicConfig lists every known key in order of name.
func DescribeTopicConfig(topic, defaults map[string]string) []ConfigEntry { return nil }
