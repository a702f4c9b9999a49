package endtoend

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A participant that is stopped behind its promise leaves its coordinator voting.
func TestAVotedTransactionIsListedWithForHowLongItIsInDoubt(t *testing.T) {
	const token = "a token of some length"
	control := freeAddr(t)
	_, addr := one(t, t.TempDir(), "-control", control, "-control-token", token, "-set", "transaction.voted.timeout.ms=600000")
	mq := func(args ...string) string { t.Helper(); return must(t, "mqclient", append(args, "-addr", addr)...) }
	mq("topic", "create", "orders", "-partitions", "2")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("2pc.till"), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
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
	if f := words(t, mq("txn", "list"), "2pc.till"); f[1] != "Ongoing" || f[2] != "Open" || f[5] == "-" || f[6] != "-" {
		t.Errorf("before the vote listed as %v", f)
	}

	arm(t, control, token, `{"name":"voted/after-promise","action":"block"}`)
	ended := make(chan error, 1)
	go func() { ended <- cl.EndTransaction(ctx, kgo.TryCommit) }()
	var f []string
	for begin := time.Now(); len(f) == 0 || f[2] != "Voting"; time.Sleep(10 * time.Millisecond) {
		if f = words(t, mq("txn", "list"), "2pc.till"); time.Since(begin) > patience {
			t.Fatalf("never listed as voting, but as %v", f)
		}
	}
	if f[1] != "Ongoing" || f[6] == "-" {
		t.Errorf("listed as %v", f)
	}
	if got := mq("txn", "describe", "2pc.till"); !strings.Contains(got, "Ongoing (Voting)") || !strings.Contains(got, "in doubt for") {
		t.Errorf("described as\n%s", got)
	}
	var d struct {
		Phase   string
		InDoubt float64 `json:"in_doubt_seconds"`
	}
	if err := json.Unmarshal([]byte(mq("txn", "describe", "2pc.till", "-o", "json")), &d); err != nil || d.Phase != "Voting" || d.InDoubt < 0 {
		t.Errorf("%+v %v", d, err)
	}
	arm(t, control, token, `{"name":"voted/after-promise","action":"off"}`)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); f[1] != "CompleteCommit"; time.Sleep(10 * time.Millisecond) {
		if f = words(t, mq("txn", "list"), "2pc.till"); time.Since(begin) > patience {
			t.Fatalf("never listed as over, but as %v", f)
		}
	}
	if f[5] != "-" || f[6] != "-" {
		t.Errorf("listed after the commit as %v", f)
	}
}

// arm sets a failpoint through a server's control port.
func arm(t *testing.T, control, token, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+control+"/failpoint", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent {
		t.Fatalf("the control port answers %s", resp.Status)
	}
}
