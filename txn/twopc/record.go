package twopc

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Record is what a machine replicates. The coordinator's are Raised, Begun, Committed and Finished; a participant's are Opened, Promised,
// Marked and Skipped.
type Record interface {
	fmt.Stringer
	record()
}

type (
	// Raised gives the transactional id a producer id and epoch, in a term. Prev is what the same client held before; Nobody if the client
	// is new.
	Raised struct {
		Term    uint64
		Owner   Identity
		Prev    Identity
		Timeout time.Duration
	}
	// Begun says that a version 0 client began a transaction after one that it committed under the same epoch: only this record tells a
	// repeated EndTxn from the next one.
	Begun struct{ Txn Txn }
	// Committed is the decision. Next is the client's identity from now on: at version 2 the next epoch.
	Committed struct {
		Txn     Txn
		Next    Identity
		Members []Member
	}
	// Finished says that every participant has ended a committed transaction. Nothing waits for it.
	Finished struct{ Txn Txn }

	// Opened precedes the first batch of a transaction in a partition, in the same append.
	Opened struct {
		Txn     Txn
		Timeout time.Duration
	}
	// Promised is a yes. At is when it was given, on the clock of who led the partition then: in milliseconds since 1970; 0: not known.
	Promised struct {
		Txn Txn
		At  int64
	}
	// Marked is the commit or abort marker, an ordinary control batch.
	Marked struct {
		Txn    Txn
		Commit bool
		Epoch  int16
	}
	// Skipped says that the transaction is over and this partition holds nothing of it.
	Skipped struct{ Txn Txn }
)

func (Raised) record()    {}
func (Begun) record()     {}
func (Committed) record() {}
func (Finished) record()  {}
func (Opened) record()    {}
func (Promised) record()  {}
func (Marked) record()    {}
func (Skipped) record()   {}

func (r Raised) String() string {
	return fmt.Sprintf("raised %s after %s in t%d", r.Owner, r.Prev, r.Term)
}
func (r Begun) String() string { return "begun " + r.Txn.String() }
func (r Committed) String() string {
	return fmt.Sprintf("committed %s then %s of %s", r.Txn, r.Next, names(r.Members))
}
func (r Finished) String() string { return "finished " + r.Txn.String() }
func (r Opened) String() string   { return "opened " + r.Txn.String() }
func (r Promised) String() string { return "promised " + r.Txn.String() }
func (r Marked) String() string   { return "marker " + verb(r.Commit) + " " + r.Txn.String() }
func (r Skipped) String() string  { return "skipped " + r.Txn.String() }

func names(m []Member) string {
	s := make([]string, len(m))
	for i := range m {
		s[i] = string(m[i])
	}
	return strings.Join(s, " ")
}

// without returns a copy of sorted that lacks m; sorted itself if m is not in it.
func without(sorted []Member, m Member) []Member {
	i, found := slices.BinarySearch(sorted, m)
	if !found {
		return sorted
	}
	return append(append(make([]Member, 0, len(sorted)-1), sorted[:i]...), sorted[i+1:]...)
}

// with returns a copy of sorted that holds m; sorted itself if it does already.
func with(sorted []Member, m Member) []Member {
	i, found := slices.BinarySearch(sorted, m)
	if found {
		return sorted
	}
	return slices.Insert(slices.Clone(sorted), i, m)
}
