package partition

import (
	"errors"
	"fmt"
	"slices"

	"gopherlog/cluster/replica"
	"gopherlog/engine/log"
)

// What callers branch on. The broker maps them to Kafka's codes.
var (
	// ErrUnknownPartition: this node carries no replica of it.
	ErrUnknownPartition = errors.New("partition: not on this node")
	// ErrNotLeader: this replica does not lead, or no longer; the outcome of an append is then unknown.
	ErrNotLeader = errors.New("partition: not the leader")
	// ErrFencedEpoch: the caller knows an older leader epoch.
	ErrFencedEpoch = errors.New("partition: leader epoch is older than the current one")
	// ErrUnknownEpoch: the caller knows a newer leader epoch.
	ErrUnknownEpoch = errors.New("partition: leader epoch is newer than the current one")
	// ErrOffsetOutOfRange: below the log start or above the log end.
	ErrOffsetOutOfRange = errors.New("partition: offset out of range")
	// ErrNotEnoughReplicas: fewer replicas in sync than min.insync.replicas; nothing was appended.
	ErrNotEnoughReplicas = errors.New("partition: fewer replicas in sync than min.insync.replicas")
	// ErrNotEnoughReplicasAfterAppend: appended, but not on min.insync.replicas before the deadline.
	ErrNotEnoughReplicasAfterAppend = errors.New("partition: not on min.insync.replicas before the deadline")
	// ErrTimeout: not committed before the deadline; it may still be.
	ErrTimeout = errors.New("partition: deadline passed")
	// ErrOutOfOrderSequence: a gap in the producer's sequence numbers.
	ErrOutOfOrderSequence = errors.New("partition: out of order sequence")
	// ErrInvalidProducerEpoch: an epoch below the newest seen of that producer.
	ErrInvalidProducerEpoch = errors.New("partition: invalid producer epoch")
	// ErrProducerFenced: another client took over the transactional id.
	ErrProducerFenced = errors.New("partition: producer is fenced")
	// ErrInvalidTxnState: no transaction of the producer is ongoing.
	ErrInvalidTxnState = errors.New("partition: no transaction is ongoing")
	// ErrNotTransactional: a batch outside of transactions, while its producer has one open here.
	ErrNotTransactional = errors.New("partition: a transaction is open, and the batch is not part of it")
	// ErrInvalidProducerIDMapping: the transactional id does not have that producer id.
	ErrInvalidProducerIDMapping = errors.New("partition: producer id does not belong to the transactional id")
	// ErrConcurrentTransactions: the producer's transaction before had not ended at the deadline; nothing was appended.
	ErrConcurrentTransactions = errors.New("partition: the transaction before is still ending")
	// ErrCoordinatorFenced: a marker of an older coordinator than one seen before.
	ErrCoordinatorFenced = errors.New("partition: transaction coordinator is fenced")
	// ErrTransactionAborted: the transaction cannot commit any more; its client goes on by aborting it.
	ErrTransactionAborted = errors.New("partition: the transaction cannot commit any more")
	// ErrNotCoordinator: the transaction's coordinator cannot be asked now.
	ErrNotCoordinator = errors.New("partition: no coordinator")
	// ErrTooLarge: the batch exceeds max.message.bytes.
	ErrTooLarge = errors.New("partition: batch exceeds max.message.bytes")
	// ErrCorrupt: bytes on disk are not what was written.
	ErrCorrupt = errors.New("partition: corrupt data")
	// ErrStorage: the replica is out of service because its storage failed.
	ErrStorage = errors.New("partition: storage failed")
	// ErrClosed: the manager or the partition is closed.
	ErrClosed = errors.New("partition: closed")
)

func isAny(err error, targets ...error) bool {
	return err != nil && slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}

// fromReplica gives the outcome of a proposal in this package's words.
func fromReplica(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, replica.ErrFailed):
		return fmt.Errorf("%w: %w", ErrStorage, err)
	default:
		// Not leader, lost, stalled, closed: the producer asks for the leader and sends again; its sequence
		// numbers resolve what is ambiguous.
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
}

// fromLog gives an error of a read in this package's words.
func fromLog(err error) error {
	var damage *log.CorruptionError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, log.ErrOutOfRange), errors.Is(err, log.ErrNotFound):
		return fmt.Errorf("%w: %w", ErrOffsetOutOfRange, err)
	case errors.Is(err, log.ErrTruncated), errors.Is(err, log.ErrClosed):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	case errors.As(err, &damage):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	default:
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
}
