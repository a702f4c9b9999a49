package check

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"gopherlog/bench/history"
)

// longHistory is a history of n messages in transactions of the given size, each sent, acknowledged, read while the load ran and read
// twice at the end.
func longHistory(t testing.TB, n, size int) string {
	t.Helper()
	const partitions = 6
	dir := filepath.Join(t.TempDir(), "history")
	parts := make([]history.Partition, partitions)
	for i := range parts {
		parts[i] = history.Partition{Topic: "load", Partition: int32(i)}
	}
	w, err := history.Create(dir, 1, parts)
	if err != nil {
		t.Fatal(err)
	}
	streams := map[string]*history.Stream{}
	for _, role := range []string{history.RoleSends, history.RoleAcks, history.RoleTxns, history.RoleReads, history.RoleDrain, history.RoleUncommitted, history.RoleEnds} {
		if streams[role], err = w.Stream(role, role); err != nil {
			t.Fatal(err)
		}
	}
	put := func(role string, r history.Record) {
		streams[role].Append(r)
		for n%997 == 0 && w.Stats().Dropped > 0 {
			t.Fatal("the disk fell behind")
		}
	}
	var offset [partitions]int64
	var sequence [partitions]uint64
	at := time.Duration(0)
	for i := range n {
		number, p := uint32(i/size+1), uint32(i%partitions)
		at += 10 * time.Microsecond
		if i%size == 0 {
			put(history.RoleTxns, history.Record{Kind: history.Transaction, Step: history.Begun, Txn: number, At: at})
		}
		r := history.Record{Kind: history.Sent, Partition: p, Sequence: sequence[p], Txn: number, At: at}
		put(history.RoleSends, r)
		r.Kind, r.Result, r.Offset = history.Outcome, history.OK, offset[p]
		put(history.RoleAcks, r)
		r.Kind, r.Result = history.Delivered, 0
		put(history.RoleUncommitted, r)
		put(history.RoleDrain, r)
		r.At = at + time.Second
		put(history.RoleReads, r)
		sequence[p]++
		offset[p]++
		if i%size == size-1 || i == n-1 {
			put(history.RoleTxns, history.Record{Kind: history.Transaction, Step: history.AskCommit, Txn: number, At: at})
			put(history.RoleTxns, history.Record{Kind: history.Transaction, Step: history.Committed, Txn: number, At: at})
			for q := range offset {
				offset[q]++
			}
		}
		if i%20000 == 0 {
			time.Sleep(2 * time.Millisecond) // let the disk follow
		}
	}
	for p := range uint32(partitions) {
		put(history.RoleEnds, history.Record{Kind: history.EndAnswer, Partition: p, Offset: offset[p], Asked: at, At: at})
		put(history.RoleEnds, history.Record{Kind: history.StableAnswer, Partition: p, Offset: offset[p], Asked: at, At: at})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if d := w.Stats().Dropped; d > 0 {
		t.Fatalf("%d records dropped", d)
	}
	return dir
}

func BenchmarkJudgeTransactions(b *testing.B) {
	const n = 500_000
	for name, size := range map[string]int{"1": 1, "100": 100} {
		b.Run(name, func(b *testing.B) {
			dir := longHistory(b, n, size)
			b.ResetTimer()
			for range b.N {
				v, err := Judge(dir, strictTxns())
				if err != nil || v.Status != Pass {
					b.Fatal(err, v.Reasons)
				}
			}
			b.ReportMetric(float64(5*n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// A message costs bits and a transaction some hundred bytes, however long the run.
func TestMemoryIsBitsAMessageAndBytesATransaction(t *testing.T) {
	if testing.Short() {
		t.Log("a shorter history")
	}
	const n, size = 200_000, 100
	dir := longHistory(t, n, size)
	l, err := newLedger(dir, strictTxns())
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	found := map[string]*finding{}
	for _, pass := range []func(*ledger, map[string]*finding) error{judgeEnds, judgeBegun, func(l *ledger, _ map[string]*finding) error { return l.readSends() },
		func(l *ledger, _ map[string]*finding) error { return l.readAcks() }, judgeFinal, judgeReads} {
		if err := pass(l, found); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := float64(after.HeapAlloc) - float64(before.HeapAlloc)
	if limit := float64(n) + 400*n/size; used > limit { // a byte a message is eight times its bits
		t.Errorf("%.0f bytes for %d messages in %d transactions, more than %.0f", used, n, n/size, limit)
	}
	runtime.KeepAlive(l)
}
