package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// said is a logger of a group and what it has written, from info on.
func said(s *Sampler, now func() time.Time) (hclog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	return newRaftLogger(slog.New(slog.NewTextHandler(&out, nil)), "t-0", s, now), &out
}

func TestRepeatedLibraryMessagesAreSampled(t *testing.T) {
	now := time.Unix(100, 0)
	l, out := said(NewSampler(), func() time.Time { return now })
	for range 1000 { // as of so many groups, which have one sampler
		l.Error("failed to list snapshots", "error", errors.New("x"))
		l.Error("failed to heartbeat to", "peer", "2.a")
	}
	if n := strings.Count(out.String(), "failed to list snapshots"); n != samplePerMessage {
		t.Errorf("%d lines of one message, want %d", n, samplePerMessage)
	}
	if strings.Contains(out.String(), "heartbeat") {
		t.Error("a dead peer is reported by every group")
	}
	now = now.Add(sampleEvery)
	l.Error("failed to list snapshots")
	if n := strings.Count(out.String(), "failed to list snapshots"); n != samplePerMessage+1 {
		t.Errorf("%d lines after the period, want %d", n, samplePerMessage+1)
	}
	if !strings.Contains(out.String(), fmt.Sprintf(`"dropped before"=%d`, 1000-samplePerMessage)) {
		t.Errorf("how many were dropped is not told: %s", out)
	}
}

// The lines are of nodes that were killed, cut off, stopped and restarted, as the library gives them.
func TestOrdinaryEventsAreNoErrors(t *testing.T) {
	for _, x := range []struct {
		level slog.Level // of the library
		msg   string
		args  []any
		want  string // "": nothing from info on
	}{
		{slog.LevelError, "failed to appendEntries to", []any{"peer", "{Voter 2}", "error", rpc.ErrDown}, ""},
		{slog.LevelError, "failed to heartbeat to", []any{"peer", "2", "backoff time", "10ms", "error", rpc.ErrTimeout}, ""},
		{slog.LevelError, "failed to pipeline appendEntries", []any{"peer", "{Voter 2}", "error", raft.ErrPipelineShutdown}, ""},
		{slog.LevelError, "failed to start pipeline replication to", []any{"peer", "{Voter 2}", "error", rpc.ErrDown}, ""},
		{slog.LevelError, "failed to make requestVote RPC", []any{"target", "{Voter 2}", "error", errors.New("any"), "term", 7}, ""},
		{slog.LevelWarn, "failed to contact", []any{"server-id", "2", "time", "1s"}, ""},
		{slog.LevelWarn, "rejecting pre-vote request since node is not in configuration", []any{"from", "3"}, ""},
		{slog.LevelError, "failed to get log", []any{"index", 8056, "error", raft.ErrLogNotFound}, ""},
		{slog.LevelError, "failed to install snapshot", []any{"peer", "3", "id", "segment-176", "error", errors.New("raft is already shutdown")}, ""},
		{slog.LevelError, "failed to install snapshot", []any{"peer", "3", "id", "segment-795", "error", rpc.ErrStaleServer}, ""},
		{slog.LevelError, "failed to send snapshot to", []any{"peer", "{Voter 3}", "error", fmt.Errorf("install: %w", rpc.ErrDown)}, ""},
		{slog.LevelError, "failed to restore snapshot", []any{"error", raft.ErrRaftShutdown}, ""},
		{slog.LevelError, "failed to copy snapshot", []any{"error", errors.New("rpc error: code = Canceled desc = context canceled")}, ""},
		{slog.LevelError, "failed to take snapshot", []any{"error", ErrClosed}, ""},

		{slog.LevelWarn, "new leader elected, stepping down", nil, "INFO"},
		{slog.LevelError, "peer has newer term, stopping replication", []any{"peer", "{Voter 2}"}, "INFO"},
		{slog.LevelWarn, "failed to contact quorum of nodes, stepping down", nil, "INFO"},

		{slog.LevelError, "failed to send snapshot to", []any{"peer", "{Voter 3}", "error", errors.New("no snapshots found")}, "WARN"},
		{slog.LevelError, "failed to install snapshot", []any{"peer", "3", "error", errors.New("failed to create snapshot: no space left on device")}, "WARN"},

		{slog.LevelError, "failed to persist vote", []any{"error", errors.New("no space left on device")}, "ERROR"},
		{slog.LevelError, "failed to take snapshot", []any{"error", errors.New("input/output error")}, "ERROR"},
		{slog.LevelError, "failed to restore snapshot", []any{"id", "segment-20", "error", errors.New("log: corrupt")}, "ERROR"},
		{slog.LevelError, "failed to clear log suffix", []any{"error", errors.New("truncate log from 20: log: closed after a failed write or sync: i/o error")}, "ERROR"},
		{slog.LevelError, "a message of a newer library", []any{"error", errors.New("any")}, "ERROR"},
		{slog.LevelDebug, "entering leader state", nil, ""},
	} {
		l, out := said(nil, time.Now)
		switch x.level {
		case slog.LevelError:
			l.Error(x.msg, x.args...)
		case slog.LevelWarn:
			l.Warn(x.msg, x.args...)
		default:
			l.Info(x.msg, x.args...)
		}
		if got := out.String(); (x.want == "") != (got == "") || !strings.Contains(got, "level="+x.want) && x.want != "" || got != "" && !strings.Contains(got, "group=t-0") {
			t.Errorf("%s %v: want %q: %s", x.msg, x.args, x.want, got)
		}
	}
}

// loud are the warnings and errors of the library that an operator is to see.
var loud = []string{
	"expected heartbeat, got", "got unexpected command", "target does not support pre-vote RPC, treating as granted", // nodes that do not fit together
	"failed to append entry", "failed to clear log suffix", "failed to compact logs", "failed to copy snapshot", "failed to create snapshot to install", // disks
	"failed to finalize snapshot", "failed to get commit index from store", "failed to get last log index", "failed to get last log index from store",
	"failed to get last vote candidate", "failed to get last vote term", "failed to get log entry", "failed to list snapshots", "failed to open snapshot",
	"failed to persist vote", "failed to receive whole snapshot", "failed to remove old logs", "failed to reset logs", "failed to restore snapshot",
	"failed to stage commit index in commit tracking log store", "failed to take snapshot",
	"could not get configuration for stats", "pre-vote is disabled because it is not supported by the Transport", "restore committed logs enabled but log store does not support it",
}

// A newer library may say more: each of its warnings and errors is put into one of the lists by somebody who has read it.
func TestEveryWarningOfTheLibraryIsClassified(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/hashicorp/raft").Output()
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`\.logger\.(?:Error|Warn)\("([^"]+)"`)
	used := map[string]bool{}
	err = fs.WalkDir(os.DirFS(strings.TrimSpace(string(dir))), ".", func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".":
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"), name == "testing.go", name == "file_snapshot.go", name == "net_transport.go":
			return nil // what we do not use
		}
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), path))
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			used[m[1]] = true
		}
		return err
	})
	if err != nil || len(used) < 40 {
		t.Fatalf("%d messages, %v", len(used), err)
	}
	known := map[string]bool{}
	for _, msg := range loud {
		known[msg] = true
	}
	for msg := range ranks {
		known[msg] = true
	}
	for msg := range used {
		if !known[msg] {
			t.Errorf("%q is in no list", msg)
		}
	}
	for msg := range known {
		if !used[msg] {
			t.Errorf("the library does not say %q", msg)
		}
	}
}
