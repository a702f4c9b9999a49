package main

import (
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
