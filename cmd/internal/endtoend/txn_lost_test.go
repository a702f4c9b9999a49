package endtoend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// doubts is how many participants of the nodes say that they are in doubt.
func (c *cluster) doubts(t *testing.T) (n int) {
	t.Helper()
	for _, a := range c.admins {
		resp, err := http.Get("http://" + a + "/metrics")
		if err != nil {
			continue // it is down
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "gopherlog_partition_in_doubt_transactions{") && strings.HasSuffix(line, " 1") {
				n++
			}
		}
	}
	return n
}

// The only copy of a coordinator's log goes with its disk. Nobody may take the missing decision for an abort, for it may have been COMMIT, and
// told to somebody; so partitions stay in doubt, say so, and an operator ends it.
func TestWhatALostCoordinatorLeftInDoubtIsShownAndEndedByAnOperator(t *testing.T) {
	const token = "a token of some length"
	c := &cluster{nodes: make([]*process, 3)}
	var controls []string
	for range 3 {
		c.addrs, c.rpcs, c.admins = append(c.addrs, freeAddr(t)), append(c.rpcs, freeAddr(t)), append(c.admins, freeAddr(t))
		c.dirs, controls = append(c.dirs, t.TempDir()), append(controls, freeAddr(t))
	}
	flags := func(id int) []string {
		return []string{"-control", controls[id-1], "-control-token", token, "-set", "transaction.voted.replicas=1", "-set", "transaction.voted.timeout.ms=3600000"}
	}
	for id := 1; id <= 3; id++ {
		c.start(t, id, flags(id)...)
	}
	for _, a := range c.admins {
		ready(t, a)
	}
	all := strings.Join(c.addrs, ",")
	mq := func(args ...string) string { t.Helper(); return must(t, "mqclient", append(args, "-addr", all)...) }
	says := func(code int, want string, n int, args ...string) {
		t.Helper()
		eventually(t, func() error {
			r := try(t, "", "mqclient", append(args, "-addr", all, "-timeout", "30s")...)
			if min(r.code, 1) != code || strings.Count(r.err+r.out, want) != n {
				return fmt.Errorf("mqclient %v ends with %d: %s%s; want %d and %q", args, r.code, r.out, r.err, code, want)
			}
			return nil
		})
	}
	abort := func(p int) []string {
		return []string{"txn", "abort", "-topic", fmt.Sprintf("orders:%d", p), "-offset", "0"}
	}
	doubts := func(want int) {
		t.Helper()
		eventually(t, func() error {
			if n := c.doubts(t); n != want {
				return fmt.Errorf("%d are in doubt, want %d", n, want)
			}
			return nil
		})
	}
	mq("topic", "create", "orders", "-partitions", "2", "-replication-factor", "3")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.TransactionalID("2pc.till"), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionTimeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for p := range int32(2) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for _, control := range controls {
		arm(t, control, token, `{"name":"voted/after-vote","action":"error"}`) // so no vote is ever counted
	}
	ended := make(chan error, 1)
	go func() { ended <- cl.EndTransaction(ctx, kgo.TryCommit) }()
	doubts(2)
	var d struct{ Coordinator int }
	if err := json.Unmarshal([]byte(mq("txn", "describe", "2pc.till", "-o", "json")), &d); err != nil || d.Coordinator < 1 || d.Coordinator > 3 {
		t.Fatalf("%+v %v", d, err)
	}
	says(1, "is its coordinator's to end", 1, abort(0)...)

	c.nodes[d.Coordinator-1].stop(t, syscall.SIGKILL)
	says(1, "the coordinator of 2pc.till may come back", 1, abort(0)...)
	if err := os.RemoveAll(c.dirs[d.Coordinator-1]); err != nil {
		t.Fatal(err)
	}
	c.start(t, d.Coordinator, flags(d.Coordinator)...)
	ready(t, c.admins[d.Coordinator-1])
	says(0, "in doubt: promised, and nobody leads the coordinator of 2pc.till", 2, "txn", "find-hanging", "-older", "5s")
	says(1, "2pc.till: in doubt for ", 1, "txn", "describe", "2pc.till")
	doubts(2)
	ends := func(args ...string) {
		t.Helper()
		eventually(t, func() error {
			r := try(t, "", "mqclient", append(args, "-addr", all, "-timeout", "30s")...)
			again := strings.Contains(r.err, "no transaction that is open") // the answer to the attempt before came too late
			if !again && (r.code != 0 || !strings.Contains(r.out, "aborted what 2pc.till promised")) {
				return fmt.Errorf("mqclient %v ends with %d: %s%s", args, r.code, r.out, r.err)
			}
			return nil
		})
	}
	ends(abort(0)...)                              // ten seconds behind the promise at the earliest
	says(1, "is over in orders:0", 1, abort(1)...) // mqclient does not know that it was an operator who ended it there
	ends(append(abort(1), "-outcome", "abort")...)
	doubts(0)
	if got := mq("consume", "-topic", "orders", "-all", "-isolation", "read_committed"); !strings.Contains(got, "0 message(s)") {
		t.Errorf("read_committed shows %s", got)
	}
	cancel()
	<-ended
}
