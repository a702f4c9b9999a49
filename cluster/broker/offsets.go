package broker

import (
	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
)

// topicOf is the topic that a request means by its name, or by its id where ids name topics; without one, the code that its partitions get.
func topicOf(image *meta.Image, name string, id meta.TopicID, byID bool) (*meta.Topic, int16) {
	if byID {
		if t := image.TopicByID(id); t != nil {
			return t, codeNone
		}
		return nil, codeUnknownTopicID
	}
	if t := image.Topic(name); t != nil {
		return t, codeNone
	}
	return nil, codeUnknownTopicOrPartition
}

// ofTopic makes an offset one of the topic, or says why it cannot be committed.
func ofTopic(o *coordinator.Offset, t *meta.Topic) int16 {
	switch {
	case o.Partition < 0 || int(o.Partition) >= len(t.Partitions):
		return codeUnknownTopicOrPartition
	case len(o.Metadata) > coordinator.MaxMetadata:
		return codeOffsetMetadataTooLarge
	}
	o.Topic, o.TopicID = t.Name, t.ID
	return codeNone
}

// text is a nullable string, where null means the empty one.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// nullable is the reverse.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
