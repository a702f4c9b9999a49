package endtoend

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// words are the fields of the line of a table that begins with some fields.
func words(t *testing.T, table string, begin ...string) []string {
	t.Helper()
	for _, line := range strings.Split(table, "\n") {
		f := strings.Fields(line)
		if len(f) >= len(begin) && strings.Join(f[:len(begin)], " ") == strings.Join(begin, " ") {
			return f
		}
	}
	t.Fatalf("no line begins with %v in\n%s", begin, table)
	return nil
}

func TestGroupsAreListedDescribedResetAndDeleted(t *testing.T) {
	_, addr := one(t, t.TempDir(), "-set", "group.initial.rebalance.delay.ms=0")
	mq := func(args ...string) string { t.Helper(); return must(t, "mqclient", append(args, "-addr", addr)...) }
	mq("topic", "create", "orders", "-partitions", "2")
	for i := range 10 {
		mq("produce", "-topic", "orders", "-partition", fmt.Sprint(i%2), "-value", fmt.Sprint(i))
	}
	if got := mq("group", "list"); strings.Count(got, "\n") != 1 {
		t.Errorf("a list without groups:\n%s", got)
	}
	if r := answered(t, "group", "describe", "billing", "-addr", addr); r.code != 1 || !strings.Contains(r.err, "no such group") {
		t.Errorf("a group that is not there: exit code %d: %s", r.code, r.err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.ClientID("till"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for n := 0; n < 10; {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		n += f.NumRecords()
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	mq("produce", "-topic", "orders", "-partition", "1", "-value", "one more")

	if f := words(t, mq("group", "list"), "billing"); f[1] != "Stable" || f[2] != "1" || f[4] != "1" {
		t.Errorf("listed as %v", f)
	}
	described := mq("group", "describe", "billing")
	if f := words(t, described, "orders", "1"); f[2] != "5" || f[3] != "6" || f[4] != "1" || !strings.HasPrefix(f[5], "till-") {
		t.Errorf("described as %v in\n%s", f, described)
	}
	if !strings.Contains(described, "orders[0,1]") || !strings.Contains(described, "1 record(s) behind") {
		t.Errorf("described as\n%s", described)
	}
	var d struct {
		State      string
		Lag        int64
		Members    []struct{ Client string }
		Partitions []struct{ Committed, End, Lag int64 }
	}
	if err := json.Unmarshal([]byte(mq("group", "describe", "-group", "billing", "-o", "json")), &d); err != nil || d.State != "Stable" || d.Lag != 1 ||
		len(d.Members) != 1 || d.Members[0].Client != "till" || len(d.Partitions) != 2 || d.Partitions[0].Committed != 5 {
		t.Errorf("as JSON: %+v, %v", d, err)
	}
	for args, want := range map[string]string{
		"reset billing -to earliest":     "1 member(s)",
		"delete billing":                 "NON_EMPTY_GROUP",
		"delete billing -topic orders":   "GROUP_SUBSCRIBED_TO_TOPIC",
		"delete billing -topic nowhere":  "has committed none of nowhere",
		"reset billing -to soon":         "give earliest",
		"reset -to earliest":             "which group",
		"reset nobody -to earliest":      "has committed nothing",
		"reset b -to 1 -topic orders:9":  "has no partition 9",
		"reset b -to 1 -topic elsewhere": "there is no topic elsewhere",
		"reset b -to=+1 -topic orders:0": "nothing in orders:0 from where -to=+1 could count",
	} {
		r := answered(t, append([]string{"group", "-addr", addr}, strings.Fields(args)...)...)
		if r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("group %s: exit code %d, want a sentence with %q: %s", args, r.code, want, r.err)
		}
	}

	cl.Close()
	eventually(t, func() error {
		if f := words(t, mq("group", "list", "-state", "Empty,Stable"), "billing"); f[1] != "Empty" {
			return fmt.Errorf("listed as %v", f)
		}
		return nil
	})
	if got := mq("group", "reset", "billing", "-to", "2", "-topic", "orders:0", "-dry-run"); !strings.Contains(got, "nothing was changed") {
		t.Errorf("a dry run:\n%s", got)
	}
	if f := words(t, mq("group", "describe", "billing"), "orders", "0"); f[2] != "5" {
		t.Errorf("after a dry run: %v", f)
	}
	if f := words(t, mq("group", "reset", "billing", "-to", "2", "-topic", "orders:0"), "orders", "0"); f[2] != "5" || f[3] != "2" || f[4] != "-3" {
		t.Errorf("reset: %v", f)
	}
	mq("group", "reset", "billing", "-to=+100")
	if f := words(t, mq("group", "describe", "billing"), "orders", "1"); f[2] != "6" {
		t.Errorf("reset beyond the end: %v", f)
	}
	if got := mq("group", "delete", "billing", "-topic", "orders:1"); !strings.Contains(got, "deleted 1 offset(s)") {
		t.Errorf("delete offsets: %s", got)
	}
	if got := mq("group", "describe", "billing"); strings.Count(got, "\norders ") != 1 {
		t.Errorf("after the offset was deleted:\n%s", got)
	}
	mq("group", "delete", "billing")
	if r := answered(t, "group", "delete", "billing", "-addr", addr); r.code != 1 || !strings.Contains(r.err, "GROUP_ID_NOT_FOUND") {
		t.Errorf("again: exit code %d: %s", r.code, r.err)
	}
	mq("group", "reset", "fresh", "-to", "latest", "-topic", "orders") // a group begins with its offsets
	if f := words(t, mq("group", "list"), "fresh"); f[1] != "Empty" || f[4] != "0" {
		t.Errorf("a group of offsets: %v", f)
	}
}
