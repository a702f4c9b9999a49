package rpc

import "github.com/hashicorp/raft"

// probeBytes bounds a request to a peer whose log is not yet known to continue
// ours: it may be refused, and then was sent for nothing.
const probeBytes = 256 << 10

// shape cuts args to budget bytes of entries (but one always stays) and fills
// it up to the budget from the log, so that a burst of small entries needs one
// request where the library would make many, and large ones do not travel in
// one huge request. It stops at an entry of a higher term. behind is true when
// the log holds more for this peer than the request could take.
//
// What was read may be lent: the caller releases the loan once it is done with args.
//
// The caller checks afterwards that no newer leader's request had been handed
// to the group: only then is what was read our own log as leader.
func shape(args *raft.AppendEntriesRequest, log GroupLog, budget int) (behind bool, loan *Loan) {
	size := 0
	for i, l := range args.Entries {
		if n := entryBytes(l); i == 0 || size+n <= budget {
			size += n
			continue
		}
		args.Entries = args.Entries[:i]
		return true, nil
	}
	if log == nil {
		return false, nil
	}
	next := args.PrevLogEntry + uint64(len(args.Entries)) + 1
	last := log.LastIndex()
	if next > last || size >= budget {
		return next <= last, nil
	}
	more, loan, err := entriesOf(log, next, last+1, budget-size)
	if err != nil {
		return false, nil // the log was cut or trimmed; what the library read goes alone
	}
	for _, l := range more {
		n := entryBytes(l)
		if l.Index != next || l.Term > args.Term {
			return false, loan
		}
		if len(args.Entries) > 0 && size+n > budget {
			return true, loan
		}
		args.Entries = append(args.Entries, l)
		size += n
		next++
	}
	return next <= last, loan
}
