package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cmd/internal/cli"
)

// told hands on what is written.
type told chan string

func (c told) Write(b []byte) (int, error) {
	c <- string(b)
	return len(b), nil
}

// Nobody can end standard input that is a terminal but with a key that few know.
func TestProducingEndsWithCtrlCAlthoughNoLineComes(t *testing.T) {
	_, s := fake(t, kfake.SeedTopics(1, "orders"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	in, lines := io.Pipe()
	defer lines.Close()
	out, ended := make(told), make(chan error, 1)
	s.ctx, s.in, s.out = ctx, in, out
	go func() { ended <- (&produceCmd{Topic: "orders", Acks: "all"}).Run(s) }()
	if _, err := lines.Write([]byte("one\n")); err != nil {
		t.Fatal(err)
	}
	if got := <-out; got != "produced to orders partition=0 offset=0\n" {
		t.Errorf("told %q", got)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for a line")
	}
}

func TestLinesBeforeABrokenOneAreWritten(t *testing.T) {
	_, s := fake(t, kfake.SeedTopics(1, "orders"))
	var out bytes.Buffer
	s.in, s.out = strings.NewReader("a\tb\nc\n"), &out
	err := (&produceCmd{Topic: "orders", Acks: "all", Keyed: true}).Run(s)
	if cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), "line 2") || out.String() != "produced to orders partition=0 offset=0\n" {
		t.Errorf("%v, told %q", err, out.String())
	}
}

func TestAPartitionThatTheTopicDoesNotHaveIsNamed(t *testing.T) {
	_, s := fake(t, kfake.SeedTopics(3, "orders"))
	for _, number := range []int32{-1, 3} {
		s.in, s.out = strings.NewReader("a\nb\n"), io.Discard
		err := (&produceCmd{Topic: "orders", Acks: "all", Partition: &number}).Run(s)
		if cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), "topic orders has partitions 0 to 2: there is no ") {
			t.Errorf("partition %d: %v", number, err)
		}
	}
}

func TestNoOffsetIsToldOfWhatNobodyAcknowledges(t *testing.T) {
	_, s := fake(t, kfake.SeedTopics(1, "orders"))
	for form, want := range map[bool]string{false: "sent to orders partition=0, and nobody", true: `"offset":-1}`} {
		var out bytes.Buffer
		s.in, s.out, s.json = strings.NewReader("a\n"), &out, form
		if err := (&produceCmd{Topic: "orders", Acks: "0"}).Run(s); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v, told %q, want %q", err, out.String(), want)
		}
	}
}

// A record that the client refuses before it keeps it is in no flush.
func TestTheFateOfEachRecordIsWaitedFor(t *testing.T) {
	_, s := fake(t)
	var err error
	w := &produceWriter{s: s, cmd: &produceCmd{}}
	if w.client, err = s.connect(); err != nil {
		t.Fatal(err)
	}
	defer w.client.Close()
	w.send(nil, nil) // to no topic
	if err := w.wait(); err == nil || !strings.HasPrefix(err.Error(), "1 record(s) were not acknowledged") {
		t.Errorf("%v", err)
	}
}

func TestATimeToTryMayBeShorterThanASecondOrLongerThanAMonth(t *testing.T) {
	c, s := fake(t)
	s.timeout = time.Millisecond
	client, err := kgo.NewClient((&produceCmd{Acks: "all", Compression: "none"}).options(s, nil)...)
	if err != nil {
		t.Fatal(err)
	}
	client.Close()

	s.timeout, s.out = 1000*time.Hour, io.Discard
	c.ControlKey(kmsg.CreateTopics.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if ms := r.(*kmsg.CreateTopicsRequest).TimeoutMillis; ms <= 0 {
			t.Errorf("the cluster has %d ms", ms)
		}
		return nil, nil, false
	})
	if err := (&topicCreate{topicName: topicName{Name: "orders"}, Partitions: 1, ReplicationFactor: 1}).Run(s); err != nil {
		t.Error(err)
	}
}

// full is a place where nothing can be written.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestARecordThatCannotBeToldOfIsAcknowledgedAllTheSame(t *testing.T) {
	_, s := fake(t, kfake.SeedTopics(1, "orders"))
	s.in, s.out = strings.NewReader("a\nb\n"), full{}
	err := (&produceCmd{Topic: "orders", Acks: "all"}).Run(s)
	if err == nil || !strings.HasPrefix(err.Error(), "every record is acknowledged") || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
}
