package broker

import (
	"context"
	"errors"
	"fmt"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
)

// Kafka's error codes, those that this broker answers with.
const (
	codeNone                         int16 = 0
	codeUnknownServerError           int16 = -1
	codeOffsetOutOfRange             int16 = 1
	codeCorruptMessage               int16 = 2
	codeUnknownTopicOrPartition      int16 = 3
	codeLeaderNotAvailable           int16 = 5
	codeNotLeaderOrFollower          int16 = 6
	codeRequestTimedOut              int16 = 7
	codeMessageTooLarge              int16 = 10
	codeOffsetMetadataTooLarge       int16 = 12
	codeCoordinatorLoadInProgress    int16 = 14
	codeCoordinatorNotAvailable      int16 = 15
	codeNotCoordinator               int16 = 16
	codeInvalidTopic                 int16 = 17
	codeNotEnoughReplicas            int16 = 19
	codeNotEnoughReplicasAfterAppend int16 = 20
	codeInvalidRequiredAcks          int16 = 21
	codeIllegalGeneration            int16 = 22
	codeInconsistentGroupProtocol    int16 = 23
	codeInvalidGroupID               int16 = 24
	codeUnknownMemberID              int16 = 25
	codeInvalidSessionTimeout        int16 = 26
	codeRebalanceInProgress          int16 = 27
	codeInvalidCommitOffsetSize      int16 = 28
	codeTopicAuthorizationFailed     int16 = 29
	codeInvalidTimestamp             int16 = 32
	codeUnsupportedVersion           int16 = 35
	codeTopicAlreadyExists           int16 = 36
	codeInvalidPartitions            int16 = 37
	codeInvalidReplicationFactor     int16 = 38
	codeInvalidReplicaAssignment     int16 = 39
	codeInvalidConfig                int16 = 40
	codeNotController                int16 = 41
	codeInvalidRequest               int16 = 42
	codeUnsupportedForMessageFormat  int16 = 43
	codeOutOfOrderSequence           int16 = 45
	codeInvalidProducerEpoch         int16 = 47
	codeInvalidTxnState              int16 = 48
	codeInvalidProducerIDMapping     int16 = 49
	codeInvalidTransactionTimeout    int16 = 50
	codeConcurrentTransactions       int16 = 51
	codeCoordinatorFenced            int16 = 52
	codeTransactionalIDAuthorization int16 = 53
	codeOperationNotAttempted        int16 = 55
	codeKafkaStorageError            int16 = 56
	codeUnknownProducerID            int16 = 59
	codeNonEmptyGroup                int16 = 68
	codeGroupIDNotFound              int16 = 69
	codeFetchSessionIDNotFound       int16 = 70
	codeFencedLeaderEpoch            int16 = 74
	codeUnknownLeaderEpoch           int16 = 75
	codeUnsupportedCompressionType   int16 = 76
	codeOffsetNotAvailable           int16 = 78
	codeMemberIDRequired             int16 = 79
	codeGroupMaxSizeReached          int16 = 81
	codeFencedInstanceID             int16 = 82
	codeGroupSubscribedToTopic       int16 = 86
	codeInvalidRecord                int16 = 87
	codeUnstableOffsetCommit         int16 = 88
	codeProducerFenced               int16 = 90
	codeUnknownTopicID               int16 = 100
	codeInconsistentTopicID          int16 = 103
	codeTransactionalIDNotFound      int16 = 105
	codeMismatchedEndpointType       int16 = 114
	codeUnsupportedEndpointType      int16 = 115
	codeTransactionAbortable         int16 = 120
	codeInvalidRegularExpression     int16 = 128
	codeRebootstrapRequired          int16 = 129
)

// codeNames are Kafka's names, for metrics and documents.
var codeNames = map[int16]string{
	codeNone: "NONE", codeUnknownServerError: "UNKNOWN_SERVER_ERROR", codeOffsetOutOfRange: "OFFSET_OUT_OF_RANGE",
	codeCorruptMessage: "CORRUPT_MESSAGE", codeUnknownTopicOrPartition: "UNKNOWN_TOPIC_OR_PARTITION",
	codeLeaderNotAvailable: "LEADER_NOT_AVAILABLE", codeNotLeaderOrFollower: "NOT_LEADER_OR_FOLLOWER",
	codeRequestTimedOut: "REQUEST_TIMED_OUT", codeMessageTooLarge: "MESSAGE_TOO_LARGE",
	codeCoordinatorNotAvailable: "COORDINATOR_NOT_AVAILABLE", codeInvalidTopic: "INVALID_TOPIC_EXCEPTION",
	codeNotEnoughReplicas: "NOT_ENOUGH_REPLICAS", codeNotEnoughReplicasAfterAppend: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
	codeInvalidRequiredAcks: "INVALID_REQUIRED_ACKS", codeInvalidTimestamp: "INVALID_TIMESTAMP",
	codeUnsupportedVersion: "UNSUPPORTED_VERSION", codeTopicAlreadyExists: "TOPIC_ALREADY_EXISTS",
	codeInvalidPartitions: "INVALID_PARTITIONS", codeInvalidReplicationFactor: "INVALID_REPLICATION_FACTOR",
	codeInvalidReplicaAssignment: "INVALID_REPLICA_ASSIGNMENT", codeInvalidConfig: "INVALID_CONFIG",
	codeNotController: "NOT_CONTROLLER", codeInvalidRequest: "INVALID_REQUEST",
	codeUnsupportedForMessageFormat: "UNSUPPORTED_FOR_MESSAGE_FORMAT", codeOutOfOrderSequence: "OUT_OF_ORDER_SEQUENCE_NUMBER",
	codeInvalidProducerEpoch: "INVALID_PRODUCER_EPOCH", codeInvalidTxnState: "INVALID_TXN_STATE",
	codeKafkaStorageError: "KAFKA_STORAGE_ERROR", codeFetchSessionIDNotFound: "FETCH_SESSION_ID_NOT_FOUND",
	codeFencedLeaderEpoch: "FENCED_LEADER_EPOCH", codeUnknownLeaderEpoch: "UNKNOWN_LEADER_EPOCH",
	codeUnsupportedCompressionType: "UNSUPPORTED_COMPRESSION_TYPE", codeOffsetNotAvailable: "OFFSET_NOT_AVAILABLE",
	codeOffsetMetadataTooLarge: "OFFSET_METADATA_TOO_LARGE", codeCoordinatorLoadInProgress: "COORDINATOR_LOAD_IN_PROGRESS",
	codeNotCoordinator: "NOT_COORDINATOR", codeIllegalGeneration: "ILLEGAL_GENERATION",
	codeInconsistentGroupProtocol: "INCONSISTENT_GROUP_PROTOCOL", codeInvalidGroupID: "INVALID_GROUP_ID",
	codeUnknownMemberID: "UNKNOWN_MEMBER_ID", codeInvalidSessionTimeout: "INVALID_SESSION_TIMEOUT",
	codeRebalanceInProgress: "REBALANCE_IN_PROGRESS", codeInvalidCommitOffsetSize: "INVALID_COMMIT_OFFSET_SIZE",
	codeNonEmptyGroup: "NON_EMPTY_GROUP", codeGroupIDNotFound: "GROUP_ID_NOT_FOUND", codeMemberIDRequired: "MEMBER_ID_REQUIRED",
	codeGroupMaxSizeReached: "GROUP_MAX_SIZE_REACHED", codeFencedInstanceID: "FENCED_INSTANCE_ID",
	codeGroupSubscribedToTopic: "GROUP_SUBSCRIBED_TO_TOPIC", codeUnstableOffsetCommit: "UNSTABLE_OFFSET_COMMIT",
	codeInvalidRecord: "INVALID_RECORD", codeUnknownTopicID: "UNKNOWN_TOPIC_ID", codeInvalidRegularExpression: "INVALID_REGULAR_EXPRESSION",
	codeTransactionalIDNotFound: "TRANSACTIONAL_ID_NOT_FOUND", codeOperationNotAttempted: "OPERATION_NOT_ATTEMPTED",
	codeInvalidTransactionTimeout: "INVALID_TRANSACTION_TIMEOUT", codeTopicAuthorizationFailed: "TOPIC_AUTHORIZATION_FAILED",
	codeInvalidProducerIDMapping: "INVALID_PRODUCER_ID_MAPPING", codeConcurrentTransactions: "CONCURRENT_TRANSACTIONS",
	codeCoordinatorFenced: "TRANSACTION_COORDINATOR_FENCED", codeProducerFenced: "PRODUCER_FENCED",
	codeTransactionalIDAuthorization: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", codeTransactionAbortable: "TRANSACTION_ABORTABLE",
	codeUnknownProducerID: "UNKNOWN_PRODUCER_ID", codeInconsistentTopicID: "INCONSISTENT_TOPIC_ID", codeMismatchedEndpointType: "MISMATCHED_ENDPOINT_TYPE",
	codeUnsupportedEndpointType: "UNSUPPORTED_ENDPOINT_TYPE", codeRebootstrapRequired: "REBOOTSTRAP_REQUIRED",
}

// nameOf is a code's name; of one that has none, which is a mistake, the number.
func nameOf(code int16) string {
	if name, ok := codeNames[code]; ok {
		return name
	}
	return fmt.Sprintf("CODE_%d", code)
}

// errorCodes maps what the rooms below say to what clients understand; the first match counts.
var errorCodes = []struct {
	err  error
	code int16
}{
	{partition.ErrNotLeader, codeNotLeaderOrFollower},
	{partition.ErrUnknownPartition, codeUnknownTopicOrPartition},
	{partition.ErrFencedEpoch, codeFencedLeaderEpoch},
	{partition.ErrUnknownEpoch, codeUnknownLeaderEpoch},
	{partition.ErrOffsetOutOfRange, codeOffsetOutOfRange},
	{partition.ErrNotEnoughReplicas, codeNotEnoughReplicas},
	{partition.ErrNotEnoughReplicasAfterAppend, codeNotEnoughReplicasAfterAppend},
	{partition.ErrTimeout, codeRequestTimedOut},
	{partition.ErrOutOfOrderSequence, codeOutOfOrderSequence},
	{partition.ErrInvalidProducerEpoch, codeInvalidProducerEpoch},
	{partition.ErrProducerFenced, codeProducerFenced},
	{partition.ErrNotTransactional, codeInvalidTxnState},
	{partition.ErrInvalidTxnState, codeTransactionAbortable},
	{partition.ErrTransactionAborted, codeTransactionAbortable},
	{partition.ErrInvalidProducerIDMapping, codeInvalidProducerIDMapping},
	{partition.ErrConcurrentTransactions, codeConcurrentTransactions},
	{partition.ErrCoordinatorFenced, codeCoordinatorFenced},
	{partition.ErrNotCoordinator, codeNotEnoughReplicas},
	{partition.ErrTooLarge, codeMessageTooLarge},
	{partition.ErrCorrupt, codeKafkaStorageError},
	{partition.ErrStorage, codeKafkaStorageError},
	{partition.ErrClosed, codeNotLeaderOrFollower},

	{record.ErrMagic, codeUnsupportedForMessageFormat},
	{record.ErrCodec, codeUnsupportedCompressionType},
	{record.ErrTimestamp, codeInvalidTimestamp},
	{record.ErrInvalid, codeInvalidRecord},
	{record.ErrCorrupt, codeCorruptMessage},
	{record.ErrShort, codeCorruptMessage},

	{meta.ErrTopicExists, codeTopicAlreadyExists},
	{meta.ErrUnknownTopic, codeUnknownTopicOrPartition},
	{meta.ErrUnknownTopicID, codeUnknownTopicID},
	{meta.ErrInvalidTopic, codeInvalidTopic},
	{meta.ErrInvalidPartitions, codeInvalidPartitions},
	{meta.ErrInvalidReplicationFactor, codeInvalidReplicationFactor},
	{meta.ErrInvalidAssignment, codeInvalidReplicaAssignment},
	{meta.ErrInvalidConfig, codeInvalidConfig},
	{meta.ErrInternalTopic, codeInvalidTopic},
	{meta.ErrInvalidRequest, codeInvalidRequest},
	{meta.ErrUnknownBroker, codeInvalidRequest},
	{meta.ErrNotController, codeNotController},

	{context.DeadlineExceeded, codeRequestTimedOut},
	{context.Canceled, codeRequestTimedOut},
}

// codeOf returns Kafka's code for an error of the rooms below, 0 for nil.
func codeOf(err error) int16 {
	if err == nil {
		return codeNone
	}
	for i := range errorCodes {
		if errors.Is(err, errorCodes[i].err) {
			return errorCodes[i].code
		}
	}
	return codeUnknownServerError
}

// sentence is the text that goes with a code, nil without an error.
func sentence(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	return &s
}
