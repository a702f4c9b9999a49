package meta

import (
	"errors"
	"fmt"

	"gopherlog/cluster/meta/metapb"
)

// What callers branch on. Outcomes wrap one of these with a sentence that a client may be shown.
var (
	ErrTopicExists              = errors.New("topic exists already")
	ErrUnknownTopic             = errors.New("unknown topic")
	ErrUnknownTopicID           = errors.New("unknown topic id")
	ErrInvalidTopic             = errors.New("invalid topic name")
	ErrInvalidPartitions        = errors.New("invalid number of partitions")
	ErrInvalidReplicationFactor = errors.New("invalid replication factor")
	ErrInvalidAssignment        = errors.New("invalid replica assignment")
	ErrInvalidConfig            = errors.New("invalid config")
	ErrInternalTopic            = errors.New("topic is internal")
	ErrUnknownBroker            = errors.New("unknown broker")
	ErrInvalidRequest           = errors.New("invalid request")
	// ErrNotController: no control leader could be reached before the deadline.
	ErrNotController = errors.New("no control leader")
	// ErrNodeIDInUse: another running node has this id.
	ErrNodeIDInUse = errors.New("node id is in use")
	// ErrForeignCluster: the other side belongs to another cluster.
	ErrForeignCluster = errors.New("another cluster")
	// ErrClosed: the controller is closed.
	ErrClosed = errors.New("controller is closed")
)

// ConfigError says which key was refused and why; it is an ErrInvalidConfig.
type ConfigError struct{ Key, Msg string }

func (e *ConfigError) Error() string { return fmt.Sprintf("%s: %s", e.Key, e.Msg) }

// Unwrap makes errors.Is(err, ErrInvalidConfig) true.
func (e *ConfigError) Unwrap() error { return ErrInvalidConfig }

var codeErrors = map[metapb.Code]error{
	metapb.Code_TOPIC_EXISTS:               ErrTopicExists,
	metapb.Code_UNKNOWN_TOPIC:              ErrUnknownTopic,
	metapb.Code_UNKNOWN_TOPIC_ID:           ErrUnknownTopicID,
	metapb.Code_INVALID_TOPIC:              ErrInvalidTopic,
	metapb.Code_INVALID_PARTITIONS:         ErrInvalidPartitions,
	metapb.Code_INVALID_REPLICATION_FACTOR: ErrInvalidReplicationFactor,
	metapb.Code_INVALID_ASSIGNMENT:         ErrInvalidAssignment,
	metapb.Code_INVALID_CONFIG:             ErrInvalidConfig,
	metapb.Code_INTERNAL_TOPIC:             ErrInternalTopic,
	metapb.Code_UNKNOWN_BROKER:             ErrUnknownBroker,
	metapb.Code_INVALID_REQUEST:            ErrInvalidRequest,
	metapb.Code_NOT_CONTROLLER:             ErrNotController,
	metapb.Code_NODE_ID_IN_USE:             ErrNodeIDInUse,
	metapb.Code_FOREIGN_CLUSTER:            ErrForeignCluster,
}

// outcomeError turns a recorded outcome back into an error, nil for OK.
func outcomeError(o *metapb.Outcome) error {
	if o.Code == metapb.Code_OK {
		return nil
	}
	if o.Code == metapb.Code_INVALID_CONFIG {
		return &ConfigError{Key: o.ConfigKey, Msg: o.Message}
	}
	return codeError(o.Code, o.Message)
}

func codeError(code metapb.Code, message string) error {
	base := codeErrors[code]
	if base == nil {
		base = fmt.Errorf("control group answered %v", code)
	}
	if message == "" {
		return base
	}
	return fmt.Errorf("%w: %s", base, message)
}
