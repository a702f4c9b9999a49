package coordinator

import (
	"regexp"
	"slices"
	"sync"
	"time"

	"gopherlog/txn/kafkatx"
)

// TxnDescribed is a transactional id as an administrator sees it.
type TxnDescribed struct {
	ID string
	kafkatx.Meta
	Phase   string // what the coordinator of a voted transaction is at, a name of twopc.Phase; empty for Kafka's protocol
	InDoubt int64  // when participants were asked for the promise by which some may be in doubt, in milliseconds since 1970; 0: none is
}

// Describe is DescribeTransactions of one.
func (x *Transactions) Describe(id string, done func(TxnDescribed, kafkatx.Code)) {
	if id == "" || !fits(id) {
		done(TxnDescribed{ID: id}, TxnIDNotFound)
		return
	}
	if x.votes(id) {
		x.cfg.Voted.Describe(id, done)
		return
	}
	t, why := x.term(id)
	if t == nil {
		done(TxnDescribed{ID: id}, kafkatx.Code(why))
		return
	}
	why = t.ask(func() {
		l := t.lives[id]
		if l == nil || l.state.Meta == nil {
			done(TxnDescribed{ID: id}, TxnIDNotFound)
			return
		}
		done(TxnDescribed{ID: id, Meta: *l.state.Shown()}, kafkatx.OK)
	})
	if why != codeNone {
		done(TxnDescribed{ID: id}, kafkatx.Code(why))
	}
}

// TxnFilter chooses transactional ids; what is empty chooses all.
type TxnFilter struct {
	States      []kafkatx.Status
	ProducerIDs []int64        // ascending
	Longer      time.Duration  // transactions that are open for longer; 0: all ids
	Pattern     *regexp.Regexp // of the whole id
}

func (f TxnFilter) fits(id string, m *kafkatx.Meta, now time.Time) bool {
	switch {
	case len(f.States) > 0 && !slices.Contains(f.States, m.Status):
		return false
	case len(f.ProducerIDs) > 0 && !producerIn(f.ProducerIDs, m.ProducerID):
		return false
	case f.Longer > 0 && (m.Start == kafkatx.None || !ongoing(m) || now.Sub(time.UnixMilli(m.Start)) <= f.Longer):
		return false
	}
	return f.Pattern == nil || f.Pattern.MatchString(id)
}

func producerIn(ascending []int64, id int64) bool {
	_, found := slices.BinarySearch(ascending, id)
	return found
}

// ongoing: the transaction is open, or decided and still ending.
func ongoing(m *kafkatx.Meta) bool { return m.Status == kafkatx.Ongoing || m.Status.Decided() }

// List is ListTransactions: the transactional ids of the shards that are led here. TxnLoadInProgress comes with those that are known.
func (x *Transactions) List(f TxnFilter, done func([]TxnDescribed, kafkatx.Code)) {
	all, loading := x.shards.terms()
	if x.cfg.Voted != nil {
		more, too := x.cfg.Voted.shards.terms()
		all, loading = append(all, more...), loading || too
	}
	l := &txnListing{left: len(all) + 1, done: done}
	for _, t := range all {
		mine := t.machines.(interface {
			list(TxnFilter) []TxnDescribed
		})
		switch t.ask(func() { l.add(mine.list(f), false) }) {
		case codeNone:
		case codeLoading:
			l.add(nil, true)
		default:
			l.add(nil, false) // no longer led here
		}
	}
	l.add(nil, loading)
}

func (t *txnTerm) list(f TxnFilter) (out []TxnDescribed) {
	now := t.now()
	for id, l := range t.lives {
		if m := l.state.Shown(); m != nil && f.fits(id, m, now) {
			out = append(out, TxnDescribed{ID: id, Meta: *m})
		}
	}
	return out
}

// txnListing gathers the transactional ids of several shards.
type txnListing struct {
	code kafkatx.Code
	done func([]TxnDescribed, kafkatx.Code)

	mu   sync.Mutex
	left int
	all  []TxnDescribed
}

func (l *txnListing) add(some []TxnDescribed, loading bool) {
	l.mu.Lock()
	if loading {
		l.code = TxnLoadInProgress
	}
	l.all = append(l.all, some...)
	l.left--
	over := l.left == 0
	l.mu.Unlock()
	if over {
		l.done(l.all, l.code)
	}
}
