package coordinator

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/txn/twopc"
)

// votedStats count what coordinators of voted transactions on this node do.
type votedStats struct {
	votes     *prometheus.CounterVec
	decisions prometheus.Counter
	aborts    *prometheus.CounterVec
	sent      prometheus.Counter
	lost      prometheus.Counter
}

// Reasons of an abort.
const (
	abortClient   = "client"
	abortReplaced = "replaced"
	abortNo       = "vote"
	abortDeleted  = "deleted"
	abortVotes    = "vote_timeout"
	abortLate     = "transaction_timeout"
)

func newVotedStats() *votedStats {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "gopherlog_voted_" + name, Help: help})
	}
	vector := func(name, help, label string, values ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gopherlog_voted_" + name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value)
		}
		return v
	}
	return &votedStats{
		votes:     vector("votes_total", "Votes that coordinators on this node received, repeats included, by what they said.", "vote", "yes", "no"),
		decisions: counter("decisions_total", "Voted transactions that coordinators on this node decided to commit, the decision being replicated."),
		aborts: vector("aborts_total", "Voted transactions that coordinators on this node gave up, by reason: the client asked for it, another client took "+
			"the transactional id, a participant voted no or was deleted, votes were missing for too long, the client was idle for too long.", "reason",
			abortClient, abortReplaced, abortNo, abortDeleted, abortVotes, abortLate),
		sent: counter("messages_total", "Messages of voted transactions that were sent to other nodes."),
		lost: counter("messages_lost_total", "Messages of voted transactions that another node did not take; they are said again."),
	}
}

func (s *votedStats) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(s.votes), r.Register(s.decisions), r.Register(s.aborts), r.Register(s.sent), r.Register(s.lost))
}

func (s *votedStats) vote(yes bool) {
	if yes {
		s.votes.WithLabelValues("yes").Inc()
	} else {
		s.votes.WithLabelValues("no").Inc()
	}
}

// step counts what an event made of a transaction.
func (s *votedStats) step(before, after twopc.Coordinator, e twopc.Event) {
	if before.Phase == twopc.Deciding && (after.Phase == twopc.Committing || after.Phase == twopc.Ready) {
		s.decisions.Inc()
	}
	if gaveUp(before, after) {
		s.aborts.WithLabelValues(reasonOf(e)).Inc()
	}
}

// gaveUp says that a transaction was aborted in a step.
func gaveUp(before, after twopc.Coordinator) bool {
	open := before.Phase == twopc.Open || before.Phase == twopc.Voting
	return open && after.Phase != before.Phase && after.Phase != twopc.Voting && after.Phase != twopc.Deciding && after.Phase != twopc.Silent
}

func reasonOf(e twopc.Event) string {
	switch e := e.(type) {
	case twopc.Init:
		return abortReplaced
	case twopc.Vote:
		return abortNo
	case twopc.Gone:
		return abortDeleted
	case twopc.Timer:
		if e.Kind == twopc.TimerVotes {
			return abortVotes
		}
		return abortLate
	}
	return abortClient
}

// DescribeVotedMetrics registers what Voted registers, without it: for documentation.
func DescribeVotedMetrics(r prometheus.Registerer) error { return newVotedStats().register(r) }
