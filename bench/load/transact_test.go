package load

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

func transactionalPlan(t testing.TB) Plan {
	p := smallPlan(t, scenario.Transactional)
	p.Producers.Transaction = scenario.Transaction{Records: 20, Partitions: 2, MaxDuration: 50 * time.Millisecond, AbortShare: 0.3, Timeout: time.Minute}
	return p
}

// ledger is what a history says of its transactions.
type ledger struct {
	sent, drained, raw map[txnKey]int
	steps              map[txnKey][]history.Step
	epochs             int
	stable             int
}

type txnKey struct {
	Producer, Session uint16
	Txn               uint32
}

func readLedger(t testing.TB, dir string) ledger {
	t.Helper()
	l := ledger{map[txnKey]int{}, map[txnKey]int{}, map[txnKey]int{}, map[txnKey][]history.Step{}, 0, 0}
	names, err := filepath.Glob(filepath.Join(dir, "*.hist"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := history.OpenReader(name)
		if err != nil {
			t.Fatal(err)
		}
		var r history.Record
		for f.Next(&r) {
			key := txnKey{r.Producer, r.Session, r.Txn}
			switch {
			case r.Kind == history.StableAnswer:
				l.stable++
			case r.Step == history.Inited:
				l.epochs++
			case r.Kind == history.Transaction:
				l.steps[key] = append(l.steps[key], r.Step)
			case r.Kind == history.Sent:
				l.sent[key]++
			case f.Header().Role == history.RoleDrain:
				l.drained[key]++
			case f.Header().Role == history.RoleUncommitted:
				l.raw[key]++
			}
		}
		if f.Err() != nil {
			t.Fatal(f.Err())
		}
		f.Close()
	}
	return l
}

func TestATransactionIsReadWholeOrNotAtAll(t *testing.T) {
	for _, model := range []string{"open", "closed"} {
		t.Run(model, func(t *testing.T) {
			_, d := fakeCluster(t)
			p := transactionalPlan(t)
			p.Load.Model, p.Load.MaxOutstanding = model, 1000
			out, err := Run(t.Context(), d, p)
			if err != nil {
				t.Fatal(err)
			}
			var sum PhaseCounts
			for _, c := range out.Phases {
				sum.add(c)
			}
			if !out.Drain.Complete || !out.Drain.Raw || len(out.Invalid) > 0 || len(out.Errors) > 0 {
				t.Fatalf("drain %+v, invalid %q, errors %v", out.Drain, out.Invalid, out.Errors)
			}
			if sum.Txns == 0 || sum.Txns != sum.TxnsCommitted+sum.TxnsAborted || sum.TxnsCommitted == 0 || sum.TxnsAborted == 0 || sum.Acked < sum.Committed {
				t.Fatalf("counts %+v", sum)
			}
			if out.Commit.All().Count() != sum.TxnsCommitted || out.EndTxn.All().Count() != sum.TxnsCommitted || out.Visible.All().Count() != sum.Committed {
				t.Fatalf("%d commits, %d ends, %d visible of %+v", out.Commit.All().Count(), out.EndTxn.All().Count(), out.Visible.All().Count(), sum)
			}
			var ticks Tick
			for _, k := range out.Seconds {
				ticks.add(k)
			}
			if ticks.Aborted == 0 || ticks.Acked != ticks.Committed+ticks.Aborted {
				t.Fatalf("of %d acknowledged records %d were committed and %d aborted", ticks.Acked, ticks.Committed, ticks.Aborted)
			}
			l := readLedger(t, p.HistoryDir)
			want := map[txnKey]int{}
			for key, steps := range l.steps {
				switch {
				case cmp.Equal(steps, []history.Step{history.Begun, history.AskCommit, history.Committed}):
					want[key] = l.sent[key]
				case !cmp.Equal(steps, []history.Step{history.Begun, history.AskAbort, history.Aborted}):
					t.Fatalf("%+v went %v", key, steps)
				}
				if n := l.sent[key]; n == 0 || n > p.Producers.Transaction.Records {
					t.Fatalf("%+v has %d records", key, n)
				}
			}
			if d := cmp.Diff(want, l.drained); d != "" {
				t.Fatal(d)
			}
			if d := cmp.Diff(l.sent, l.raw); d != "" {
				t.Fatalf("what is there is not what was sent: %s", d)
			}
			if int64(len(l.steps)) != sum.Txns || l.epochs != p.Producers.Count || l.stable == 0 {
				t.Fatalf("%d transactions of %d, %d producer ids, %d stable answers", len(l.steps), sum.Txns, l.epochs, l.stable)
			}
		})
	}
}

func TestACommitWithoutAnAnswerIsInDoubtAndTheNextSessionGoesOn(t *testing.T) {
	c, d := fakeCluster(t)
	p := transactionalPlan(t)
	p.Producers.Transaction.AbortShare = 0
	ends := 0
	c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if ends++; ends%7 != 3 {
			return nil, nil, false
		}
		answer := r.ResponseKind().(*kmsg.EndTxnResponse)
		answer.ErrorCode = kerr.UnknownServerError.Code
		return answer, nil, true
	})
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	var sum PhaseCounts
	for _, c := range out.Phases {
		sum.add(c)
	}
	if sum.TxnsInDoubt == 0 || sum.TxnsCommitted == 0 || sum.Txns != sum.TxnsCommitted+sum.TxnsAborted+sum.TxnsInDoubt || !out.Drain.Complete {
		t.Fatalf("counts %+v, errors %v, drain %+v", sum, out.Errors, out.Drain)
	}
	l := readLedger(t, p.HistoryDir)
	for key, steps := range l.steps {
		if last := steps[len(steps)-1]; last == history.Committed && l.drained[key] != l.sent[key] {
			t.Fatalf("%+v was committed, and %d of %d records are there", key, l.drained[key], l.sent[key])
		}
	}
}

func TestABacklogFillsTransactions(t *testing.T) {
	c, d := fakeCluster(t)
	p := transactionalPlan(t)
	p.Producers.Transaction.AbortShare = 0
	var held atomic.Bool
	c.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !held.Swap(true) {
			c.SleepControl(func() { time.Sleep(600 * time.Millisecond) }) // far longer than a transaction may last
		}
		return nil, nil, false
	})
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	var sum PhaseCounts
	for _, c := range out.Phases {
		sum.add(c)
	}
	if sum.Sent == 0 || sum.Txns > sum.Sent/int64(p.Producers.Transaction.Records)+30 {
		t.Fatalf("%d transactions of up to %d records for %d messages", sum.Txns, p.Producers.Transaction.Records, sum.Sent)
	}
}

func TestAFencedProducerBeginsANewSession(t *testing.T) {
	c, d := fakeCluster(t)
	p := transactionalPlan(t)
	fenced := false
	c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if fenced {
			return nil, nil, false
		}
		fenced = true
		answer := r.ResponseKind().(*kmsg.EndTxnResponse)
		answer.ErrorCode = kerr.ProducerFenced.Code
		return answer, nil, true
	})
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	sessions := map[uint16]bool{}
	for key := range readLedger(t, p.HistoryDir).steps {
		sessions[key.Session] = true
	}
	if len(sessions) != 2 || !out.Drain.Complete || len(out.Invalid) > 0 {
		t.Fatalf("sessions %v, drain %+v, invalid %q, errors %v", sessions, out.Drain, out.Invalid, out.Errors)
	}
}
