package partition

import (
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/replica"
)

// Unsettled says that this replica is between leaders in the eyes of a client that knows epoch known (NoEpoch: none): it was elected and does
// not serve yet, it knows no leader, or the client knows a newer term than it does. What it would answer now is about to change.
func (p *Partition) Unsettled(known int32) bool {
	if l := p.lead.Load(); l != nil {
		return known > l.epoch // another one leads, as will be heard here
	}
	st := p.group.Status()
	if st.Failed != nil || st.Role == replica.Stopped {
		return false
	}
	node, epoch := ledBy(st)
	return node == meta.NoLeader || node == p.node || known > epoch
}

// AwaitLeader registers w until the leader or the term that this replica knows changes, it begins or ceases to serve, or Unpark. It is one-shot, as
// Park is. It returns false, without registering, if the replica is not Unsettled: ask again.
func (p *Partition) AwaitLeader(w *Waiter, known int32) bool {
	p.register(w, forLeader)
	// Registered first, then looked: a change in between is seen here or fills C.
	if p.Unsettled(known) {
		return true
	}
	p.Unpark(w)
	return false
}

// ledBy is who leads in which epoch as a replica that does not serve knows it: meta.NoLeader and -1 if it does not, or if it is about to ask for
// votes itself, since a candidate's term is nobody's epoch.
func ledBy(st replica.Status) (node meta.NodeID, epoch int32) {
	if st.Leader == "" || st.Role == replica.Candidate {
		return meta.NoLeader, -1
	}
	return st.Leader.Node(), int32(st.Term)
}

// Settling is what WhenSettled needs of a replica; *Partition is the real one.
type Settling interface {
	AwaitLeader(w *Waiter, known int32) bool
	Unpark(w *Waiter)
}

// WhenSettled calls then once with the place of each of these replicas: as soon as it is not between leaders any more (see Unsettled, for who
// knows no epoch), and at the limit, or when stop closes, for those that still are. It returns after the last call; in one pass the calls are
// in the order of the places.
func WhenSettled[R Settling](all []R, limit time.Duration, stop <-chan struct{}, then func(i int)) {
	left := make([]int, len(all))
	for i := range left {
		left[i] = i
	}
	w, over := NewWaiter(), time.NewTimer(limit)
	defer over.Stop()
	for {
		between := left[:0]
		for _, i := range left {
			if all[i].AwaitLeader(w, NoEpoch) {
				between = append(between, i)
			} else {
				then(i)
			}
		}
		if left = between; len(left) == 0 {
			return
		}
		select {
		case <-w.C:
			continue
		case <-over.C:
		case <-stop:
		}
		break
	}
	for _, i := range left {
		all[i].Unpark(w)
		then(i)
	}
}
