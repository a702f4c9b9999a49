package meta

import (
	"fmt"
	"strings"
)

// maxTopicName is Kafka's limit: with a partition number behind it the name is still a directory name.
const maxTopicName = 249

// ReservedPrefix begins the names of the cluster's own topics.
const ReservedPrefix = "__"

// CheckTopicName returns an ErrInvalidTopic that says what is wrong with name.
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", ErrInvalidTopic)
	case name == "." || name == "..":
		return fmt.Errorf("%w: %q is not possible", ErrInvalidTopic, name)
	case len(name) > maxTopicName:
		return fmt.Errorf("%w: %d characters, at most %d are possible", ErrInvalidTopic, len(name), maxTopicName)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return !legalInTopicName(r) }); i >= 0 {
		return fmt.Errorf("%w: %q has an illegal character at %d; letters, digits, '.', '_' and '-' are possible", ErrInvalidTopic, name, i)
	}
	return nil
}

func legalInTopicName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

// checkTopicSpec checks everything about a spec that does not depend on the cluster's state.
func checkTopicSpec(s *TopicSpec) error {
	if err := CheckTopicName(s.Name); err != nil {
		return err
	}
	if !s.Internal && strings.HasPrefix(s.Name, ReservedPrefix) {
		return fmt.Errorf("%w: names that begin with %s belong to the cluster", ErrInvalidTopic, ReservedPrefix)
	}
	return CheckTopicConfigs(s.Configs)
}
