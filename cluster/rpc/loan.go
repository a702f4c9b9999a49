package rpc

import (
	"fmt"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// Lender is a GroupLog whose entries may lie in memory that is used again.
type Lender interface {
	// Lend is Entries, but the bytes stay unchanged only until the last reference
	// to the loan is released. The loan comes with one, which is the caller's; it
	// is nil when all bytes are the garbage collector's.
	Lend(lo, hi uint64, maxBytes int) ([]*raft.Log, *Loan, error)
}

// Loan counts who still looks at lent bytes: the request that carries them, and
// every write that has not ended. A nil loan asks nothing of anybody.
type Loan struct {
	refs atomic.Int32
	end  func()
}

// NewLoan returns a loan with one reference; end is called when the last one
// goes, from any goroutine. It must not block.
func NewLoan(end func()) *Loan {
	l := &Loan{end: end}
	l.refs.Store(1)
	return l
}

func (l *Loan) retain() {
	if l == nil {
		return
	}
	if n := l.refs.Add(1); n <= 1 {
		panic(fmt.Sprintf("rpc: a loan that has ended was taken again (%d)", n))
	}
}

// Release gives one reference back.
func (l *Loan) Release() {
	if l == nil {
		return
	}
	switch n := l.refs.Add(-1); {
	case n == 0:
		l.end()
	case n < 0:
		panic(fmt.Sprintf("rpc: a loan was released once too often (%d)", n))
	}
}

// entriesOf reads entries of a log that lends, or of one that does not.
func entriesOf(log GroupLog, lo, hi uint64, maxBytes int) ([]*raft.Log, *Loan, error) {
	if l, ok := log.(Lender); ok {
		return l.Lend(lo, hi, maxBytes)
	}
	entries, err := log.Entries(lo, hi, maxBytes)
	return entries, nil, err
}
