package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

func TestATransactionHangsIfNoCoordinatorIsToEndItThere(t *testing.T) {
	in := func(topic string, number int32) kadm.TopicsSet {
		s := kadm.TopicsSet{}
		s.Add(topic, number)
		return s
	}
	known := map[int64]txnShown{}
	for _, d := range []kadm.DescribedTransaction{
		{ProducerID: 1, State: "Ongoing", Topics: in("t", 0)},
		{ProducerID: 2, State: "CompleteAbort", Topics: in("t", 0)},
		{ProducerID: 3, State: "PrepareCommit", Topics: in("t", 1)},
	} {
		known[d.ProducerID] = txnShown{DescribedTransaction: d}
	}
	for producer, want := range map[int64]bool{1: false, 2: true, 3: true, 4: true} {
		open := []hangingLine{{Topic: "t", Partition: 0, Producer: producer, Silent: 60}}
		if got := len(hangs(open, known, time.Second)) == 1; got != want {
			t.Errorf("producer %d hangs: %v, want %v", producer, got, want)
		}
		if got := hangs(open, known, time.Minute); len(got) > 0 {
			t.Errorf("producer %d is counted before its time", producer)
		}
	}
}

// Who asks for a commit, or names a place, and forgot the topic must not get the transactional id aborted.
func TestAnAbortRefusesWhatItWouldNotHeed(t *testing.T) {
	nowhere := &session{ctx: t.Context(), addr: []string{"localhost:0"}, timeout: time.Second}
	for _, c := range []txnAbort{{Outcome: "commit", Offset: -1}, {Outcome: "abort", Offset: -1}, {Offset: 7}} {
		c.Name = "till-1"
		if err := c.Run(nowhere); err == nil || !strings.Contains(err.Error(), "-topic") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestAPartitionThatWasToldTheOutcomeIsFound(t *testing.T) {
	h := hangingLine{Topic: "t", Partition: 0, Producer: 7, Epoch: 4, Offset: 12, ID: "2pc.till", InDoubt: 60}
	other := func(number int32, producer int64, epoch int16, offset int64) hangingLine {
		return hangingLine{Topic: "t", Partition: number, Producer: producer, Epoch: epoch, Offset: offset}
	}
	all := []hangingLine{
		h,
		other(1, 7, 5, -1), // its marker brought the next epoch
		other(2, 7, 4, -1), // or did not: the client is of version 0
		other(3, 7, 3, -1), // older ones are over there
		other(4, 7, 4, 20), // open, like here
		other(5, 8, 9, -1),
	}
	if got := toldOf(h, all); !slices.Equal(got, []string{"t:1", "t:2"}) {
		t.Errorf("%v were told", got)
	}
	if got := toldOf(h, all[:1]); len(got) > 0 {
		t.Errorf("%v were told", got)
	}
}
