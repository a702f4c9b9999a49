package meta

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTopicConfigsAreCheckedWithASentence(t *testing.T) {
	for _, c := range []struct {
		key, value string
		want       string // "" is fine; else part of the sentence
	}{
		{"retention.ms", "-1", ""},
		{"retention.ms", "86400000", ""},
		{"retention.ms", "-2", "outside of -1"},
		{"retention.ms", "soon", "not a whole number"},
		{"retention.bytes", "1000", ""},
		{"segment.bytes", "1", "outside of 1024"},
		{"min.insync.replicas", "2", ""},
		{"min.insync.replicas", "0", "outside of 1"},
		{"flush.messages", "1", ""},
		{"flush.messages", "9223372036854775807", ""},
		{"flush.messages", "100", "either every append is synced"},
		{"max.message.bytes", "67108864", ""},
		{"max.message.bytes", "67108865", "outside of 1 to 67108864"},
		{"cleanup.policy", "delete", ""},
		{"cleanup.policy", "compact", "compaction is not part of this version"},
		{"cleanup.policy", "compact,delete", "compaction is not part of this version"},
		{"message.timestamp.type", "CreateTime", ""},
		{"message.timestamp.type", "LogAppendTime", "those of the producer"},
		{"compression.type", "producer", ""},
		{"compression.type", "zstd", "never recompresses"},
		{"unclean.leader.election.enable", "false", ""},
		{"unclean.leader.election.enable", "true", "never elected"},
		{"retention.hours", "1", "unknown topic config"},
	} {
		err := CheckTopicConfig(c.key, c.value)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s=%s: %v", c.key, c.value, err)
			}
			continue
		}
		var ce *ConfigError
		if !errors.As(err, &ce) || !errors.Is(err, ErrInvalidConfig) || ce.Key != c.key || !strings.Contains(ce.Msg, c.want) {
			t.Errorf("%s=%s: got %v, want a ConfigError with %q", c.key, c.value, err, c.want)
		}
	}
}

func TestTopicConfigsComeFromTopicThenNodeThenBuiltIn(t *testing.T) {
	c, err := ParseTopicConfig(map[string]string{"retention.ms": "1000"}, map[string]string{"retention.ms": "2000", "flush.messages": "1"})
	if err != nil {
		t.Fatal(err)
	}
	want := TopicConfig{
		RetentionTime: time.Second, RetentionBytes: -1, SegmentBytes: 1 << 30, MinInsyncReplicas: 1, SyncEach: true, MaxMessageBytes: 1_048_588,
	}
	if c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
	if forever, err := ParseTopicConfig(map[string]string{"retention.ms": "9007199254740992"}, nil); err != nil || forever.RetentionTime >= 0 {
		t.Errorf("retention beyond what a duration holds: %v, %v", forever.RetentionTime, err)
	}
	for _, e := range DescribeTopicConfig(map[string]string{"retention.ms": "1000"}, map[string]string{"retention.ms": "2000", "flush.messages": "1"}) {
		switch {
		case e.Doc == "" || e.Kind == 0:
			t.Errorf("%s is not described", e.Key)
		case e.Key == "retention.ms" && (e.Value != "1000" || e.Default != "2000" || e.BuiltIn != "604800000" || e.Source != SourceTopic):
			t.Errorf("%+v", e)
		case e.Key == "flush.messages" && (e.Value != "1" || e.Source != SourceNode):
			t.Errorf("%+v", e)
		case e.Key == "segment.bytes" && e.Source != SourceBuiltIn:
			t.Errorf("%+v", e)
		}
	}
	if _, err := ParseTopicConfig(map[string]string{"cleanup.policy": "compact"}, nil); !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("a stored value that this program does not take: %v", err)
	}
	if !slices.IsSorted(TopicConfigKeys()) {
		t.Error("keys are not in order")
	}
}

func TestTopicNames(t *testing.T) {
	for _, good := range []string{"a", "A-z_0.9", strings.Repeat("x", 249)} {
		if err := CheckTopicName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "a b", "a/b", "ä", strings.Repeat("x", 250), "a\x00"} {
		if err := CheckTopicName(bad); !errors.Is(err, ErrInvalidTopic) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := checkTopicSpec(&TopicSpec{Name: "__mine"}); !errors.Is(err, ErrInvalidTopic) {
		t.Errorf("a client may take a reserved name: %v", err)
	}
	if err := checkTopicSpec(&TopicSpec{Name: "__mine", Internal: true}); err != nil {
		t.Errorf("the cluster may not: %v", err)
	}
}
