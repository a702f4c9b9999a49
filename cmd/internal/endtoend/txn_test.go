package endtoend

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestTransactionsAreListedDescribedAndAborted(t *testing.T) {
	_, addr := one(t, t.TempDir())
	mq := func(args ...string) string { t.Helper(); return must(t, "mqclient", append(args, "-addr", addr)...) }
	mq("topic", "create", "orders", "-partitions", "2")
	if got := mq("txn", "list"); strings.Count(got, "\n") != 1 {
		t.Errorf("a list without transactions:\n%s", got)
	}
	if r := answered(t, "txn", "describe", "till-1", "-addr", addr); r.code != 1 || !strings.Contains(r.err, "no such transactional id") {
		t.Errorf("an id that is not there: exit code %d: %s", r.code, r.err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("till-1"), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Partition: 1, Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}

	if f := words(t, mq("txn", "list"), "till-1"); f[1] != "Ongoing" || f[2] != "-" || f[4] != "1" || f[5] == "-" || f[6] != "-" {
		t.Errorf("listed as %v", f)
	}
	for _, args := range [][]string{{"-state", "Empty"}, {"-match", "other.*"}, {"-longer", "1h"}} {
		if got := mq(append([]string{"txn", "list"}, args...)...); strings.Contains(got, "till-1") {
			t.Errorf("txn list %v:\n%s", args, got)
		}
	}
	if got := mq("txn", "describe", "till-1"); !strings.Contains(got, "Ongoing") || !strings.Contains(got, "orders[1]") {
		t.Errorf("described as\n%s", got)
	}
	var d struct {
		State  string
		Topics []string
	}
	if err := json.Unmarshal([]byte(mq("txn", "describe", "-id", "till-1", "-o", "json")), &d); err != nil || d.State != "Ongoing" || len(d.Topics) != 1 {
		t.Errorf("%+v %v", d, err)
	}
	if got := mq("txn", "find-hanging", "-older", "0s"); strings.Contains(got, "orders") {
		t.Errorf("a transaction that is under way hangs:\n%s", got)
	}
	eventually(t, func() error { // a busy machine may not answer in 2 s
		if r := try(t, "", "mqclient", "consume", "-topic", "orders", "-addr", addr, "-timeout", "2s"); r.code != 1 || !strings.Contains(r.err, "partition 1: nothing comes from offset 0 on") {
			return fmt.Errorf("a reading that an open transaction holds back: exit code %d: %s", r.code, r.err)
		}
		return nil
	})
	for args, want := range map[string]string{
		"abort":                                 "which transactional id",
		"abort -topic orders:1":                 "the offset",
		"abort till-1 -topic orders:1":          "not both",
		"abort -topic orders:1 -offset 0":       "its coordinator's to end",
		"abort -topic orders:0 -offset 0":       "no transaction that is open",
		"list -match (":                         "-match (",
		"abort -id nobody":                      "no such transactional id",
		"find-hanging -topic nowhere -older 0s": "nowhere",
		"find-hanging -topic orders:0,2":        "topic orders has no partition 2",
		"abort -topic orders:2 -offset 0":       "topic orders has no partition 2",
		"abort till-1 -outcome commit":          "-topic",
	} {
		if r := answered(t, append([]string{"txn", "-addr", addr}, strings.Fields(args)...)...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("txn %s: exit code %d, want a sentence with %q: %s", args, r.code, want, r.err)
		}
	}

	mq("txn", "abort", "till-1")
	if f := words(t, mq("txn", "list"), "till-1"); f[1] != "Empty" || f[5] != "-" {
		t.Errorf("listed after the abort as %v", f)
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("the producer whose transaction was aborted could commit it")
	}
	if r := answered(t, "txn", "abort", "till-1", "-addr", addr); r.code != 1 || !strings.Contains(r.err, "no transaction is open") {
		t.Errorf("aborted twice: exit code %d: %s", r.code, r.err)
	}
}
