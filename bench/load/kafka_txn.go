package load

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Init asks for the producer id, which the client would do with its first message.
func (p *kafkaProducer) Init(ctx context.Context) (int32, error) {
	_, epoch, err := p.client.ProducerID(ctx)
	if err != nil {
		return -1, fmt.Errorf("load: init producer id: %w", err)
	}
	return int32(epoch), nil
}

func (p *kafkaProducer) Begin() error {
	p.failed.Store(0)
	if err := p.client.BeginTransaction(); err != nil {
		return fmt.Errorf("load: begin: %w", err)
	}
	return nil
}

func (p *kafkaProducer) End(ctx context.Context, commit bool, asked func(commit bool)) TxnEnd {
	// Also what is to be aborted goes out first: a reader can only be shown to leave out what is there.
	if err := p.client.Flush(ctx); err != nil {
		return TxnEnd{Err: fmt.Errorf("load: flush: %w", err), Broken: true}
	}
	var lost error
	if n := p.failed.Load(); commit && n > 0 {
		commit, lost = false, fmt.Errorf("load: aborted: %d of its messages failed", n)
	}
	asked(commit)
	err := p.client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
	switch {
	case err == nil && commit:
		return TxnEnd{Result: TxnCommitted}
	case err == nil:
		return TxnEnd{Result: TxnAborted, Err: lost}
	}
	return p.recover(ctx, commit, err, asked)
}

// refusedCommit says whether the answer to a commit leaves no doubt that it was not done.
func refusedCommit(err error) bool {
	return errors.Is(err, kerr.OperationNotAttempted) || errors.Is(err, kerr.TransactionAbortable)
}

// recover brings the client back into use after an end that failed. Unless the commit was refused before anything was decided, the
// transaction stays in doubt, whatever the broker says of the abort that follows.
func (p *kafkaProducer) recover(ctx context.Context, commit bool, err error, asked func(bool)) TxnEnd {
	end := TxnEnd{Err: fmt.Errorf("load: end of a transaction: %w", err)}
	refused := !commit || refusedCommit(err)
	votedNo := commit && errors.Is(err, kerr.UnknownProducerID) // how a voted transaction says that a partition voted no
	if commit {
		asked(false)
	}
	again := p.client.EndTransaction(ctx, kgo.TryAbort)
	end.Broken = again != nil
	if votedNo || refused && again == nil {
		end.Result = TxnAborted
	}
	return end
}

// VotedPrefix is what transactional ids begin with that the brokers end by a voted two-phase commit; empty where they have none.
func (k *kafka) VotedPrefix(ctx context.Context) (string, error) {
	brokers, err := k.admin.ListBrokers(ctx)
	if err != nil || len(brokers) == 0 {
		return "", fmt.Errorf("load: list brokers: %w", err)
	}
	configs, err := k.admin.DescribeBrokerConfigs(ctx, brokers[0].NodeID)
	if err != nil {
		return "", fmt.Errorf("load: configuration of broker %d: %w", brokers[0].NodeID, err)
	}
	for _, c := range configs {
		for _, kv := range c.Configs {
			if kv.Key == "transaction.voted.prefix" {
				return kv.MaybeValue(), nil
			}
		}
	}
	return "", nil
}

// TxnCoordinator names the node that coordinates a transactional id.
func (k *kafka) TxnCoordinator(ctx context.Context, id string) (int32, error) {
	return coordinatorOf(k.admin.FindTxnCoordinators(ctx, id), id)
}

// GroupCoordinator names the node that coordinates a group.
func (k *kafka) GroupCoordinator(ctx context.Context, group string) (int32, error) {
	return coordinatorOf(k.admin.FindGroupCoordinators(ctx, group), group)
}

func coordinatorOf(found kadm.FindCoordinatorResponses, name string) (int32, error) {
	c, ok := found[name]
	if !ok || c.Err != nil {
		return -1, fmt.Errorf("load: find the coordinator of %s: %w", name, c.Err)
	}
	return c.NodeID, nil
}
