package rpc

import (
	"maps"
	"slices"
	"testing"
	"time"

	"gopherlog/cluster/rpc/rpcpb"
)

func TestAnOlderReportOfDeathTakesNothingBack(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		name  string
		known report
		later time.Duration
		next  report
		want  []int32
	}{
		{name: "newer, dead", known: report{nil, 7, 1}, next: report{[]int32{3}, 7, 2}, want: []int32{3}},
		{name: "newer, alive again", known: report{[]int32{3}, 7, 1}, next: report{nil, 7, 2}},
		{name: "overtaken on the way", known: report{[]int32{3}, 7, 5}, next: report{nil, 7, 4}, want: []int32{3}},
		{name: "told twice", known: report{[]int32{3}, 7, 5}, next: report{nil, 7, 5}, want: []int32{3}},
		{name: "overtaken, and says that somebody died", known: report{nil, 7, 5}, next: report{[]int32{3}, 7, 4}},
		{name: "the reporter has restarted", known: report{[]int32{3}, 7, 900}, next: report{nil, 8, 1}},
		{name: "held by a connection of the process before", known: report{[]int32{3}, 8, 1}, next: report{nil, 7, 900}, want: []int32{3}},
		{name: "the reporter has restarted and its clock went back", known: report{[]int32{3}, 8, 900}, later: reportAge, next: report{[]int32{4}, 7, 1}, want: []int32{4}},
		{name: "the reporter gives no order any more", known: report{[]int32{3}, 8, 900}, next: report{[]int32{4}, 0, 0}, want: []int32{4}},
		{name: "the reporter never gave one", known: report{[]int32{3}, 0, 0}, next: report{[]int32{4}, 0, 0}, want: []int32{4}},
		{name: "the reporter gives one from now on", known: report{[]int32{3}, 0, 0}, next: report{[]int32{4}, 7, 1}, want: []int32{4}},
	} {
		var r reports
		r.take(start, c.known)
		now := start.Add(c.later)
		changed := r.take(now, c.next)
		var got []int32
		for id := range r.dead {
			got = append(got, int32(id))
			if !r.says(now, id) {
				t.Errorf("%s: the report of %d's death does not count", c.name, id)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: dead are %v, want %v", c.name, got, c.want)
		}
		if moved := !slices.Equal(c.known.dead, c.want); moved != (len(changed) > 0) {
			t.Errorf("%s: told of changes about %v", c.name, changed)
		}
	}
}

func TestAReportOfDeathIsForgottenWhenItsReporterFallsSilent(t *testing.T) {
	start := time.Unix(1000, 0)
	var r reports
	r.take(start, report{[]int32{3}, 7, 1})
	if !r.says(start.Add(reportAge-1), 3) || r.says(start.Add(reportAge), 3) {
		t.Errorf("the report must count for %v", reportAge)
	}
}

// What a peer told on one connection is taken back neither by its pong nor by its ping that were slower on another.
func TestAPingUnderWayTakesNoReportBack(t *testing.T) {
	n, err := New(Config{Node: 1, Peers: map[NodeID]string{2: "b", 3: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ping := func(order uint64, dead ...int32) {
		out := newSender(nil, func() string { return "" })
		n.serveMessage(out, 2, &rpcpb.Message{Body: &rpcpb.Message_Ping{Ping: &rpcpb.Ping{Dead: dead, Incarnation: 9, Order: order}}}, true)
		pong := out.urgent[0].GetPong()
		if pong.GetIncarnation() == 0 || pong.GetOrder() == 0 {
			t.Errorf("the answer has no place among our reports: %v", pong)
		}
	}
	want := map[NodeID]bool{2: true}
	ping(5, 3)
	ping(4)
	if got := n.ReportsDead(3); !maps.Equal(got, want) {
		t.Errorf("after a ping that was overtaken, reported by %v, want %v", got, want)
	}
	l := &link{peer: n.peer(2), pings: map[uint64]time.Time{1: time.Now()}}
	l.dispatch(&rpcpb.Message{Id: 1, Body: &rpcpb.Message_Pong{Pong: &rpcpb.Pong{Incarnation: 9, Order: 3}}})
	if got := n.ReportsDead(3); !maps.Equal(got, want) {
		t.Errorf("after a pong that was overtaken, reported by %v, want %v", got, want)
	}
	ping(6)
	if got := n.ReportsDead(3); len(got) != 0 {
		t.Errorf("after the newest ping, reported by %v", got)
	}
}
