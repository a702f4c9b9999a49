package endtoend

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestConsumeBeginsWhereItIsTold(t *testing.T) {
	_, addr := one(t, t.TempDir())
	must(t, "mqclient", "topic", "create", "-addr", addr, "-topic", "t", "-partitions", "2")
	for _, v := range []string{"a", "b"} {
		must(t, "mqclient", "produce", "-addr", addr, "-topic", "t", "-partition", "1", "-value", v)
	}
	time.Sleep(5 * time.Millisecond) // a timestamp that lies between
	between := time.Now().UTC().Format(time.RFC3339Nano)
	time.Sleep(5 * time.Millisecond)
	must(t, "mqclient", "produce", "-addr", addr, "-topic", "t", "-partition", "1", "-value", "c")
	must(t, "mqclient", "produce", "-addr", addr, "-topic", "t", "-partition", "0", "-value", "d")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-partition", "1"}, "abc"},
		{[]string{"-partition", "1", "-offset", "earliest", "-n", "2"}, "ab"},
		{[]string{"-partition", "1", "-offset", "1"}, "bc"},
		{[]string{"-partition", "1", "-offset", "latest"}, ""},
		{[]string{"-partition", "1", "-offset", between}, "c"},
		{[]string{"-all"}, "abcd"},
		{[]string{"-all", "-n", "1"}, "a"},
		{[]string{"-all", "-offset", between}, "cd"},
	} {
		got := must(t, "mqclient", append([]string{"consume", "-addr", addr, "-topic", "t"}, c.args...)...)
		var values strings.Builder
		for _, line := range strings.Split(got, "\n") {
			if _, v, ok := strings.Cut(line, " value="); ok {
				values.WriteString(v)
			}
		}
		if values.String() != c.want {
			t.Errorf("%v: values %q, want %q in\n%s", c.args, values.String(), c.want, got)
		}
	}
}

func TestFollowGoesOnWithWhatComes(t *testing.T) {
	_, addr := one(t, t.TempDir())
	must(t, "mqclient", "topic", "create", "-addr", addr, "-topic", "t")
	got := make(chan result, 1)
	go func() {
		got <- try(t, "", "mqclient", "consume", "-addr", addr, "-topic", "t", "-follow", "-n", "2")
	}()
	for _, v := range []string{"first", "second"} {
		must(t, "mqclient", "produce", "-addr", addr, "-topic", "t", "-value", v)
	}
	select {
	case r := <-got:
		if r.code != 0 || !strings.Contains(r.out, "value=first") || !strings.Contains(r.out, "value=second") {
			t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
		}
	case <-time.After(patience):
		t.Fatal("follow has not seen the records")
	}
}

func TestEveryCodecAndSourceComesBack(t *testing.T) {
	data := t.TempDir()
	p, addr := one(t, data)
	long := strings.Repeat("compressible ", 1000)
	path := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(path, []byte(long+"\x00\xff"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		must(t, "mqclient", "produce", "-addr", addr, "-topic", codec, "-file", path, "-compression", codec, "-header", "h=1", "-partitioner", "murmur2", "-key", "k")
		var d struct {
			Value   *string
			Base64  string `json:"value_base64"`
			Headers map[string]string
		}
		if err := json.Unmarshal([]byte(must(t, "mqclient", "consume", "-addr", addr, "-topic", codec, "-o", "json")), &d); err != nil {
			t.Fatal(err)
		}
		if d.Value != nil || len(d.Base64) < len(long) || d.Headers["h"] != "1" {
			t.Errorf("%s: value %v, %d characters of base64, headers %v", codec, d.Value, len(d.Base64), d.Headers)
		}
	}
	for _, acks := range []string{"all", "1", "0"} {
		must(t, "mqclient", "produce", "-addr", addr, "-topic", "acks", "-acks", acks, "-value", acks)
	}
	eventually(t, func() error { // acks=0 tells nobody when the record is there
		if got := must(t, "mqclient", "consume", "-addr", addr, "-topic", "acks"); !strings.Contains(got, "-- 3 message(s)") {
			return os.ErrNotExist
		}
		return nil
	})
	p.stop(t, 15)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		dump := must(t, "mqvalidate", "dump", filepath.Join(data, "topics", codec+"-0", "00000000000000000000.log"))
		if !strings.Contains(dump, "codec "+codec) {
			t.Errorf("the stored bytes of %s: %s", codec, dump)
		}
	}
}

func TestTopicsAreCreatedListedDescribedAndDeleted(t *testing.T) {
	_, addr := one(t, t.TempDir())
	must(t, "mqclient", "topic", "create", "-addr", addr, "orders", "-partitions", "4", "-set", "retention.ms=60000")
	if r := answered(t, "topic", "create", "-addr", addr, "orders"); r.code != 1 || !strings.Contains(r.err, "exists") {
		t.Errorf("again: exit code %d: %s", r.code, r.err)
	}
	if got := must(t, "mqclient", "topic", "list", "-addr", addr); !strings.Contains(got, "orders") {
		t.Errorf("list: %s", got)
	}
	var d struct {
		Partitions int
		Configs    map[string]string
		Details    []struct{ Leader, Partition int32 } `json:"partition_details"`
	}
	if err := json.Unmarshal([]byte(must(t, "mqclient", "topic", "describe", "-addr", addr, "orders", "-o", "json")), &d); err != nil {
		t.Fatal(err)
	}
	if d.Partitions != 4 || len(d.Details) != 4 || d.Configs["retention.ms"] != "60000" {
		t.Errorf("described as %+v", d)
	}
	must(t, "mqclient", "topic", "delete", "-addr", addr, "orders")
	if got := must(t, "mqclient", "topic", "list", "-addr", addr); strings.Contains(got, "orders") {
		t.Errorf("still listed: %s", got)
	}
}

// A topic that is made because a client asks for it has as many partitions as the node was told.
func TestATopicThatAProducerMakesHasTheNodesNumberOfPartitions(t *testing.T) {
	_, addr := one(t, t.TempDir(), "-set", "num.partitions=4")
	must(t, "mqclient", "produce", "-addr", addr, "-topic", "made", "-value", "x")
	var d struct{ Partitions int }
	if err := json.Unmarshal([]byte(must(t, "mqclient", "topic", "describe", "-addr", addr, "made", "-o", "json")), &d); err != nil || d.Partitions != 4 {
		t.Errorf("%v, %d partitions", err, d.Partitions)
	}
}

func TestHelpNamesEveryCommandAndCompletionIsOffered(t *testing.T) {
	for name, words := range map[string][]string{
		"server":     {"--addr", "dev", "install-completions", "Exit codes"},
		"mqclient":   {"produce", "consume", "topic create", "topic list", "topic describe", "topic delete", "cluster status", "cluster recover"},
		"mqvalidate": {"dump", "Exit codes"},
	} {
		for _, flag := range []string{"-help", "--help"} {
			got := must(t, name, flag)
			for _, w := range words {
				if !strings.Contains(got, w) {
					t.Errorf("%s %s does not mention %q:\n%s", name, flag, w, got)
				}
			}
		}
		if got := must(t, name, "-version"); !strings.Contains(got, "go1.") {
			t.Errorf("%s -version: %s", name, got)
		}
	}
}

func TestShellCompletionNamesCommandsAndFlags(t *testing.T) {
	for line, want := range map[string][]string{
		"mqclient ":               {"produce", "consume", "topic", "cluster"},
		"mqclient topic ":         {"create", "list", "describe", "delete"},
		"mqclient consume --part": {"--partition"},
		"server de":               {"dev"},
	} {
		name, _, _ := strings.Cut(line, " ")
		cmd := exec.Command(filepath.Join(bin, name))
		cmd.Env = cleanEnv("COMP_LINE="+line, "COMP_POINT="+fmt.Sprint(len(line)))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, w := range want {
			if !slices.Contains(strings.Fields(string(out)), w) {
				t.Errorf("%q is completed to %q, without %q", line, strings.Fields(string(out)), w)
			}
		}
	}
}
