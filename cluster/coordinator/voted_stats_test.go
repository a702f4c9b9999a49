package coordinator

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

func TestVotesDecisionsAndAbortsAreCountedEachUnderItsReason(t *testing.T) {
	const yes, no, decided = "gopherlog_voted_votes_total yes", "gopherlog_voted_votes_total no", "gopherlog_voted_decisions_total"
	aborted := func(reason string) string { return "gopherlog_voted_aborts_total " + reason }
	commit := func(r *votedRig, who kafkatx.Answer, want kafkatx.Code) {
		r.must(r.end(who, true, kafkatx.Version0), want)
	}
	for name, c := range map[string]struct {
		machine func(*twopc.Config)
		run     func(*votedRig)
		want    map[string]float64
	}{
		"a commit": {nil, func(r *votedRig) {
			commit(r, r.begin(0, 1), kafkatx.OK)
		}, map[string]float64{yes: 2, decided: 1}},
		"an abort by the client": {nil, func(r *votedRig) {
			r.must(r.end(r.begin(0, 1), false, kafkatx.Version0), kafkatx.OK)
		}, map[string]float64{aborted("client"): 1}},
		"another client with the same id": {nil, func(r *votedRig) {
			r.begin(0)
			r.must(r.init(kafkatx.None, kafkatx.None), kafkatx.OK)
		}, map[string]float64{aborted("replaced"): 1}},
		"a no": {nil, func(r *votedRig) {
			who := r.begin(0, 1)
			r.voters[0].change(func() { r.voters[0].silent = true })
			r.voters[1].change(func() { r.voters[1].no = true })
			commit(r, who, UnknownProducerID)
		}, map[string]float64{no: 1, aborted("vote"): 1}},
		"a partition that was deleted": {nil, func(r *votedRig) {
			who := r.begin(0)
			r.meta.set("t", 0)
			commit(r, who, UnknownProducerID)
		}, map[string]float64{aborted("deleted"): 1}},
		"a vote that does not come": {func(m *twopc.Config) { m.VoteTimeout = 20 * time.Millisecond }, func(r *votedRig) {
			who := r.begin(0)
			r.voters[0].change(func() { r.voters[0].silent = true })
			commit(r, who, UnknownProducerID)
		}, map[string]float64{aborted("vote_timeout"): 1}},
		"a client that does nothing": {nil, func(r *votedRig) {
			out := make(answers, 1)
			r.v.InitProducerID(votedOne, kafkatx.InitProducerID{ProducerID: kafkatx.None, Epoch: kafkatx.None, Timeout: 20 * time.Millisecond}, func(a kafkatx.Answer) { out <- a })
			wait(r.t, r.add(r.must(out, kafkatx.OK), 0)) // it may be too late by now
			r.voters[0].await("ABORT t256.1/1:0")
		}, map[string]float64{aborted("transaction_timeout"): 1}},
		"a decision that cannot be appended": {nil, func(r *votedRig) {
			who := r.begin(0)
			r.part.change(func(p *fakeShard) { p.hold = true })
			out := r.end(who, true, kafkatx.Version0)
			eventuallyTrue(r.t, func() (there bool) { r.part.change(func(p *fakeShard) { there = len(p.held) > 0 }); return there })
			r.lose()
			r.must(out, kafkatx.NotCoordinator)
		}, map[string]float64{yes: 1}}, // neither: the next coordinator finds out
	} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			r := newVotedRig(t, func(cfg *VotedConfig) {
				cfg.Registerer = reg
				if c.machine != nil {
					c.machine(cfg.Machine)
				}
			})
			c.run(r)
			got := metrics(t, reg)
			maps.DeleteFunc(got, func(name string, n float64) bool { return n == 0 })
			if !maps.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
