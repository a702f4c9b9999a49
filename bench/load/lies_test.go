package load

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/bench/check"
	"gopherlog/bench/scenario"
)

// judged runs a plan against a fake that lies, and tells the verdict.
func judged(t *testing.T, d Driver, p Plan) check.Verdict {
	t.Helper()
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	o := check.Options{Guarantee: p.Guarantee, MinAcked: 100, Drained: out.Drain.Complete, RawDrained: out.Drain.Raw,
		TxnTimeout: p.Producers.Transaction.Timeout, Grace: 5 * time.Second}
	if len(p.Consumers.Groups) > 0 {
		o.Transforms = []check.Transform{{Group: "workers", From: "in", To: "out"}}
	}
	v, err := check.Judge(p.HistoryDir, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// lie answers every nth request of a kind by itself and does nothing.
func lie(c *kfake.Cluster, key kmsg.Key, nth int, answer func(kmsg.Request) kmsg.Response) {
	n := 0
	c.ControlKey(key.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if n++; n%nth != 0 {
			return nil, nil, false
		}
		return answer(r), nil, true
	})
}

func TestABrokerThatSaysCommittedAndAbortsIsCaught(t *testing.T) {
	c, d := fakeCluster(t)
	p := transactionalPlan(t)
	p.Producers.Transaction.AbortShare = 0
	n := 0
	c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if n++; n%5 == 0 {
			r.(*kmsg.EndTxnRequest).Commit = false
		}
		return nil, nil, false
	})
	if v := judged(t, d, p); v.Status != check.Violated {
		t.Fatalf("%s %q", v.Status, v.Reasons)
	} else {
		t.Log(v.Reasons)
	}
}

func TestABrokerThatForgetsPositionsIsCaught(t *testing.T) {
	c, d := fakeCluster(t, shortSessions)
	p := groupPlan(t, scenario.Transactional)
	p.Phases.Steady, p.Phases.Drain = 2*time.Second, 6*time.Second // the last commits may be forgotten, too: then the group is never done
	p.Consumers.Churn.Rejoin = 0.1
	lie(c, kmsg.TxnOffsetCommit, 3, func(r kmsg.Request) kmsg.Response {
		answer := r.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, t := range r.(*kmsg.TxnOffsetCommitRequest).Topics {
			at := kmsg.NewTxnOffsetCommitResponseTopic()
			at.Topic = t.Topic
			for _, p := range t.Partitions {
				ap := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				ap.Partition = p.Partition
				at.Partitions = append(at.Partitions, ap)
			}
			answer.Topics = append(answer.Topics, at)
		}
		return answer
	})
	if v := judged(t, d, p); v.Status != check.Violated {
		t.Fatalf("%s %q", v.Status, v.Reasons)
	} else {
		t.Log(v.Reasons)
	}
}
