package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// goneWithin is how long Remove waits until a removed topic is no longer listed.
const goneWithin = 15 * time.Second

// Leftovers are the things on a cluster whose names a predicate recognises.
type Leftovers struct {
	Topics []string
	Groups []string
	// Open are transactional ids with a transaction that has no outcome: readers of its partitions wait for it.
	Open []string
	// Idle are transactional ids without one. No client can remove them; a cluster forgets them by itself (transactional.id.expiration.ms).
	Idle []string
	// Unasked says what could not be listed, and why.
	Unasked []string
}

// Removable says whether there is anything to remove.
func (l Leftovers) Removable() bool { return len(l.Topics)+len(l.Groups)+len(l.Open) > 0 }

// List names what Remove would remove, a line each.
func (l Leftovers) List() []string {
	var out []string
	for _, x := range []struct {
		kind  string
		names []string
	}{{"topic", l.Topics}, {"group", l.Groups}, {"open transaction of", l.Open}} {
		for _, n := range x.names {
			out = append(out, x.kind+" "+n)
		}
	}
	return out
}

// Find lists what the cluster shows its user of names that ours recognises.
func (i *Inspector) Find(ctx context.Context, ours func(name string) bool) (Leftovers, error) {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	var l Leftovers
	topics, err := i.topics(ctx)
	if err != nil {
		return l, fmt.Errorf("list topics: %w", err)
	}
	for _, name := range topics {
		if ours(name) {
			l.Topics = append(l.Topics, name)
		}
	}
	groups, err := i.admin.ListGroups(ctx)
	if err != nil {
		l.Unasked = append(l.Unasked, "groups: "+err.Error())
	}
	for _, name := range groups.Groups() {
		if ours(name) {
			l.Groups = append(l.Groups, name)
		}
	}
	txns, err := i.admin.ListTransactions(ctx, nil, nil)
	if err != nil {
		l.Unasked = append(l.Unasked, "transactions: "+err.Error())
	}
	for _, t := range txns.Sorted() {
		if !ours(t.TxnID) {
			continue
		}
		if openState(t) {
			l.Open = append(l.Open, t.TxnID)
		} else {
			l.Idle = append(l.Idle, t.TxnID)
		}
	}
	slices.Sort(l.Groups)
	return l, nil
}

// topics lists the names of all topics, the cluster's own apart. It asks by itself: the client library's answer may be an earlier one.
func (i *Inspector) topics(ctx context.Context) ([]string, error) {
	req := kmsg.NewPtrMetadataRequest()
	resp, err := req.RequestWith(ctx, i.client)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range resp.Topics {
		if t.Topic != nil && !t.IsInternal {
			out = append(out, *t.Topic)
		}
	}
	slices.Sort(out)
	return out, nil
}

// openState says whether a transaction may still hold readers back.
func openState(t kadm.ListedTransaction) bool {
	return t.State == "Ongoing" || strings.HasPrefix(t.State, "Prepare")
}

// Remove ends open transactions, then removes groups and topics, and waits until the topics are gone. It goes on after an error, and
// tells all of them.
func (i *Inspector) Remove(ctx context.Context, l Leftovers) error {
	var errs []error
	for _, id := range l.Open {
		if err := i.TakeProducerID(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("end the transaction of %s: %w", id, err))
		}
	}
	for _, g := range l.Groups {
		if err := i.DeleteGroup(ctx, g); err != nil {
			errs = append(errs, fmt.Errorf("remove group %s: %w", g, err))
		}
	}
	for _, t := range l.Topics {
		if err := i.DeleteTopic(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("remove topic %s: %w", t, err))
		}
	}
	if len(errs) == 0 && len(l.Topics) > 0 {
		errs = append(errs, i.awaitGone(ctx, l.Topics))
	}
	return errors.Join(errs...)
}

// awaitGone returns when no broker that is asked lists any of the topics.
func (i *Inspector) awaitGone(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	for {
		listed, err := i.topics(ctx)
		still := 0
		for _, n := range names {
			if slices.Contains(listed, n) {
				still++
			}
		}
		if err == nil && still == 0 {
			return nil
		}
		if !pause(ctx, retryMost) {
			return errors.Join(fmt.Errorf("%d of %d removed topics are still listed", still, len(names)), err)
		}
	}
}
