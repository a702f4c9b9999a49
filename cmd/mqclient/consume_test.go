package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cmd/internal/cli"
)

// quietFor is a reading to which no record came for longer than it has time, and an answer that holds an error and no record.
func quietFor(t *testing.T, s *session, cmd consumeCmd, err error) (*reading, kgo.Fetches) {
	t.Helper()
	admin, aerr := s.admin()
	if aerr != nil {
		t.Fatal(aerr)
	}
	t.Cleanup(admin.Close)
	cmd.Topic = "orders"
	r := &reading{cmd: &cmd, s: s, admin: admin, spans: map[int32]*span{0: {next: 3, end: 5}}, heard: time.Now().Add(-2 * s.timeout)}
	return r, kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "orders", Partitions: []kgo.FetchPartition{{Err: err}}}}}}
}

// A topic may be quiet for an hour, and a leader move then.
func TestFollowOutlivesALeaderAfterALongSilence(t *testing.T) {
	for err, ends := range map[error]bool{nil: false, kerr.NotLeaderForPartition: false, io.EOF: false, kerr.TopicAuthorizationFailed: true} {
		_, s := fake(t, kfake.SeedTopics(1, "orders"))
		r, answer := quietFor(t, s, consumeCmd{Follow: true}, err)
		if got := r.take(answer); (got != nil) != ends {
			t.Errorf("%v: %v", err, got)
		}
		if !ends && (time.Since(r.heard) >= s.timeout || r.failure != nil) {
			t.Errorf("%v: the time does not begin anew", err)
		}
	}
}

func TestAReadingThatGetsNothingSaysWhatItWaitsFor(t *testing.T) {
	c, s := fake(t, kfake.SeedTopics(1, "orders"))
	for want, cmd := range map[string]consumeCmd{
		"partition 0: nothing comes from offset 3 on, and it ends at 5: a transaction that is open": {},
		"nothing comes from offset 3 on, and it ends at 5":                                          {Isolation: "read_uncommitted"},
	} {
		r, answer := quietFor(t, s, cmd, nil)
		if err := r.take(answer); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "transaction") != (cmd.Isolation == "") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	r, answer := quietFor(t, s, consumeCmd{}, kerr.NotLeaderForPartition)
	if err := r.take(answer); err == nil || !strings.Contains(err.Error(), "NOT_LEADER") {
		t.Errorf("after an error: %v", err)
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders", Err: kerr.TopicAuthorizationFailed, Count: -1})
	r, answer = quietFor(t, s, consumeCmd{Follow: true}, nil)
	if err := r.take(answer); err == nil || !strings.Contains(err.Error(), "TOPIC_AUTHORIZATION_FAILED") {
		t.Errorf("a partition that is not served is followed: %v", err)
	}
}

func TestAReadingEndsWithTheClusterThatItReads(t *testing.T) {
	for _, follow := range []bool{false, true} {
		c, s := fake(t, kfake.SeedTopics(1, "orders"))
		r, answer := quietFor(t, s, consumeCmd{Follow: follow}, nil)
		c.Close()
		if err := r.take(answer); cli.Code(err) != cli.ExitEnvironment || !strings.Contains(err.Error(), "no node answers at") {
			t.Errorf("follow %v: %v", follow, err)
		}
	}
}
