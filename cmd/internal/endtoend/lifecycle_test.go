package endtoend

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestLifeOfAMessage is the README's road with the lines that it shows.
func TestLifeOfAMessage(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p, addr := one(t, data)
	must(t, "mqclient", "topic", "create", "-addr", addr, "-topic", "t", "-partitions", "3")
	want := []string{
		"produced to t partition=1 offset=0\n", // FNV-1a of the key modulo 3
		"produced to t partition=1 offset=1\n",
		"produced to t partition=2 offset=0\n",
		"produced to t partition=0 offset=0\n",
	}
	for i, key := range []string{"user-1", "user-1", "user-3", "user-9"} {
		if got := must(t, "mqclient", "produce", "-addr", addr, "-topic", "t", "-key", key, "-value", fmt.Sprintf("hello %d", i)); got != want[i] {
			t.Errorf("key %s: printed %q, want %q", key, got, want[i])
		}
	}
	merged := "partition=1 offset=0 key=user-1 value=hello 0\npartition=1 offset=1 key=user-1 value=hello 1\n" +
		"partition=2 offset=0 key=user-3 value=hello 2\npartition=0 offset=0 key=user-9 value=hello 3\n" +
		"-- 4 message(s) across 3 partition(s), merged by timestamp\n"
	for _, flag := range []string{"-all", "--all"} {
		if got := must(t, "mqclient", "consume", "-addr", addr, "-topic", "t", flag); got != merged {
			t.Errorf("consume %s printed\n%s", flag, got)
		}
	}
	live := must(t, "mqvalidate", data)
	if !strings.Contains(live, "a server is using "+data) || !strings.Contains(live, "1 topics, 3 segments, 4 messages, ") {
		t.Errorf("beside a running server mqvalidate printed\n%s", live)
	}
	if code := p.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM: exit code %d\n%s", code, p.log)
	}
	got := must(t, "mqvalidate", data)
	if !regexp.MustCompile(`^1 topics, 3 segments, 4 messages, \d+ bytes, 0 problems\non-disk data: OK\n$`).MatchString(got) {
		t.Errorf("mqvalidate printed\n%s", got)
	}
}

func TestAcknowledgedRecordsOutliveSIGKILL(t *testing.T) {
	data := t.TempDir()
	p, addr := one(t, data)
	var lines strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&lines, "k%d\tv%d\n", i, i)
	}
	r := try(t, lines.String(), "mqclient", "produce", "-addr", addr, "-topic", "t", "-keyed", "-timeout", patience.String())
	if r.code != 0 || strings.Count(r.out, "produced to t ") != 2000 {
		t.Fatalf("exit code %d, %d lines, %s", r.code, strings.Count(r.out, "\n"), r.err)
	}
	p.stop(t, syscall.SIGKILL)
	_, addr = one(t, data)
	got := must(t, "mqclient", "consume", "-addr", addr, "-topic", "t", "-o", "json")
	for i, line := range strings.Split(strings.TrimSpace(got), "\n") {
		var d struct {
			Offset     int64
			Key, Value string
		}
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatal(err)
		}
		if d.Offset != int64(i) || d.Value != fmt.Sprintf("v%d", i) || d.Key != fmt.Sprintf("k%d", i) {
			t.Fatalf("line %d: %s", i, line)
		}
	}
	if n := strings.Count(got, "\n"); n != 2000 {
		t.Fatalf("%d records of 2000 came back", n)
	}
}

func TestDamageIsNamedWithFileOffsetAndByte(t *testing.T) {
	data := t.TempDir()
	p, addr := one(t, data)
	for i := range 3 {
		must(t, "mqclient", "produce", "-addr", addr, "-topic", "t", "-value", fmt.Sprintf("value %d", i))
	}
	p.stop(t, syscall.SIGTERM)
	segment := filepath.Join(data, "topics", "t-0", "00000000000000000000.log")
	raw, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	second := 12 + int(raw[11]) // length of the first batch, which is short
	raw[second+70] ^= 1
	if err := os.WriteFile(segment, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	r := try(t, "", "mqvalidate", data)
	want := fmt.Sprintf("%s, offset 1, byte %d: ", segment, second)
	if r.code != 1 || !strings.HasPrefix(r.out, want) || !strings.HasSuffix(r.out, " problems\non-disk data: DAMAGED\n") {
		t.Errorf("exit code %d, want 1, and a line that begins with\n%s\ngot\n%s%s", r.code, want, r.out, r.err)
	}
	dump := try(t, "", "mqvalidate", "dump", segment)
	if dump.code != 1 || !strings.Contains(dump.out, "offsets [0, 1)") || strings.Contains(dump.err, "goroutine") {
		t.Errorf("dump: exit code %d\n%s%s", dump.code, dump.out, dump.err)
	}
}

func TestDamagedReplicaIsOutOfServiceAndSaysWhere(t *testing.T) {
	data := t.TempDir()
	p, addr := one(t, data)
	for _, topic := range []string{"sound", "damaged"} {
		for i := range 3 {
			must(t, "mqclient", "produce", "-addr", addr, "-topic", topic, "-value", fmt.Sprintf("value %d", i))
		}
	}
	p.stop(t, syscall.SIGKILL) // no clean stop: recovery reads everything
	segment := filepath.Join(data, "topics", "damaged-0", "00000000000000000000.log")
	raw, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	raw[70] ^= 1
	if err := os.WriteFile(segment, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	_, addr = one(t, data)
	if got := must(t, "mqclient", "consume", "-addr", addr, "-topic", "sound"); !strings.Contains(got, "-- 3 message(s)") {
		t.Errorf("the sound topic: %s", got)
	}
	r := try(t, "", "mqclient", "cluster", "status", "-addr", addr)
	if r.code != 1 || !strings.Contains(r.out, "damaged-0") || !strings.Contains(r.out, "replicas out of service") || !strings.Contains(r.out, "00000000000000000000.log") {
		t.Errorf("status: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	r = try(t, "", "mqclient", "consume", "-addr", addr, "-topic", "damaged", "-timeout", "2s")
	if r.code == 0 {
		t.Errorf("the damaged topic was read: %s", r.out)
	}
}

// dev starts three nodes with one command. They listen on ports around the one that is given; when another test holds one of those,
// it is tried again elsewhere.
func dev(t *testing.T) (p *process, addr, dir string) {
	for range 10 {
		addr, dir = freeAddr(t), t.TempDir()
		p = start(t, nil, "dev", "-addr", addr, "-data", dir)
		eventually(t, func() error {
			select {
			case <-p.done:
				return nil
			default:
			}
			if strings.Count(p.log.String(), "| GopherLog node ") < 3 {
				return fmt.Errorf("not all nodes listen")
			}
			return nil
		})
		select {
		case <-p.done:
			if !strings.Contains(p.log.String(), "the address is in use") {
				t.Fatalf("server dev ended")
			}
		default:
			return p, addr, dir
		}
	}
	t.Fatal("no free ports for three nodes")
	return nil, "", ""
}

// TestDevClusterRunsAndStopsWithOneSignal runs three nodes, writes through all of them and finds everything on each disk.
func TestDevClusterRunsAndStopsWithOneSignal(t *testing.T) {
	p, addr, dir := dev(t)
	eventually(t, func() error {
		r := try(t, "", "mqclient", "cluster", "status", "-addr", addr, "-timeout", "30s")
		if r.code != 0 || strings.Count(r.out, " ready") != 3 {
			return fmt.Errorf("status: exit code %d\n%s%s", r.code, r.out, r.err)
		}
		return nil
	})
	must(t, "mqclient", "topic", "create", "-addr", addr, "-topic", "t", "-partitions", "6")
	r := try(t, strings.Repeat("line\n", 600), "mqclient", "produce", "-addr", addr, "-topic", "t", "-timeout", patience.String())
	if r.code != 0 {
		t.Fatalf("produce: %s", r.err)
	}
	if got := must(t, "mqclient", "consume", "-addr", addr, "-topic", "t", "-all"); !strings.HasSuffix(got, "-- 600 message(s) across 6 partition(s), merged by timestamp\n") {
		t.Errorf("consume ended with %q", got[max(0, len(got)-100):])
	}
	for id := 1; id <= 3; id++ { // two replicas of three are enough for the answer: the third may have it a moment later
		eventually(t, func() error {
			if r := try(t, "", "mqvalidate", filepath.Join(dir, fmt.Sprint(id))); !strings.Contains(r.out, " 600 messages, ") {
				return fmt.Errorf("node %d: %s%s", id, r.out, r.err)
			}
			return nil
		})
	}
	if code := p.stop(t, syscall.SIGINT); code != 0 {
		t.Errorf("Ctrl-C: exit code %d\n%s", code, p.log)
	}
	for id := 1; id <= 3; id++ {
		got := must(t, "mqvalidate", filepath.Join(dir, fmt.Sprint(id)))
		if !strings.Contains(got, "1 topics, 6 segments, 600 messages, ") {
			t.Errorf("node %d: %s", id, got)
		}
	}
}
