package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"gopherlog/txn/group"
	"gopherlog/txn/twopc"
)

// TestGateHangsUpUntilItIsOpened: a client of a node that is not ready goes on to another one at once.
func TestGateHangsUpUntilItIsOpened(t *testing.T) {
	l, err := listen("-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := newGate(l)
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("read %d bytes, %v, from a closed gate", n, err)
		}
		c.Close()
	}
	open := g.Open()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := open.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatalf("behind the open gate: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatalf("second close: %v", err)
	}
}

func TestSettingsFollowFromFlags(t *testing.T) {
	s, err := (nodeFlags{
		ID: 2, Addr: ":9092", Data: "d", Peers: "1@10.0.0.1:1,2@10.0.0.2:2,3@10.0.0.3:3", Advertise: "host",
		Set: map[string]string{"flush.messages": "1", "num.partitions": "6", "auto.create.topics.enable": "false",
			"group.initial.rebalance.delay.ms": "0", "offsets.retention.minutes": "60", "transaction.max.timeout.ms": "60000",
			"transactional.id.expiration.ms": "3600000"},
	}).check()
	if err != nil {
		t.Fatal(err)
	}
	if s.rpc != "10.0.0.2:2" || s.announce != s.rpc || s.source.String() != "10.0.0.2" || len(s.peers) != 2 || s.peers[3] != "10.0.0.3:3" {
		t.Errorf("rpc %s, announced as %s, source %s, peers %v", s.rpc, s.announce, s.source, s.peers)
	}
	if s.advertiseHost != "host" || s.advertisePort != 0 || s.topics["flush.messages"] != "1" || s.node.partitions != 6 || !s.node.noAutoCreate ||
		s.node.groups.InitialDelay != 0 || s.node.groups.Retention != time.Hour || s.node.groups.MaxMembers != group.Defaults().MaxMembers ||
		s.node.transactions.MaxTimeout != time.Minute || s.node.transactions.Expiry != time.Hour {
		t.Errorf("%+v", s)
	}
	s, err = (nodeFlags{ID: 1, Addr: "h:1", Data: "d", RPC: "0.0.0.0:5", Peers: "1@proxy:9,2@x:1"}).check()
	if err != nil || s.rpc != "0.0.0.0:5" || s.announce != "proxy:9" || s.source != nil {
		t.Errorf("behind a proxy: rpc %s, announced as %s, source %v, %v", s.rpc, s.announce, s.source, err)
	}
}

func TestSessionTimeoutsOfGroupsMustLeaveRoom(t *testing.T) {
	f := nodeFlags{ID: 1, Addr: "h:1", Data: "d", Set: map[string]string{"group.min.session.timeout.ms": "7000", "group.max.session.timeout.ms": "6000"}}
	if _, err := f.check(); err == nil {
		t.Fatal("accepted")
	}
}

func TestSettingsOfVotedTransactionsAreTakenOrRefused(t *testing.T) {
	set := func(key, value string) (*settings, error) {
		return (nodeFlags{ID: 1, Addr: "h:1", Data: "d", Set: map[string]string{key: value}}).check()
	}
	for _, c := range []struct{ key, value string }{
		{"transaction.voted.prefix", "vote-"}, {"transaction.voted.prefix", ""}, {"transaction.voted.replicas", "1"}, {"transaction.voted.replicas", "3"},
		{"transaction.voted.timeout.ms", "250"},
	} {
		s, err := set(c.key, c.value)
		if err != nil {
			t.Errorf("%s=%s: %v", c.key, c.value, err)
			continue
		}
		want := defaultVoted()
		switch c.key {
		case "transaction.voted.prefix":
			want.prefix = twopc.Prefix(c.value)
		case "transaction.voted.replicas":
			want.replicas = map[string]int{"1": 1, "3": 3}[c.value]
		default:
			want.machine.VoteTimeout = 250 * time.Millisecond
		}
		if s.node.voted != want {
			t.Errorf("%s=%s: %+v, want %+v", c.key, c.value, s.node.voted, want)
		}
	}
	for _, c := range []struct{ key, value, says string }{
		{"transaction.voted.replicas", "2", "want 1"}, {"transaction.voted.replicas", "0", "want 1"}, {"transaction.voted.timeout.ms", "0", ""},
		{"transaction.voted.timeout.ms", "3600001", ""}, {"transaction.voted.timeout.ms", "soon", ""}, {"transaction.voted.prefix", strings.Repeat("p", maxPrefix+1), "at most 100"},
	} {
		if _, err := set(c.key, c.value); err == nil || !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s=%s: %v", c.key, c.value, err)
		}
	}
}
