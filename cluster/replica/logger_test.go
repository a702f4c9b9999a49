package replica

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestRepeatedLibraryMessagesAreSampled(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(100, 0)
	l := slog.New(slog.NewTextHandler(&out, nil))
	s := NewSampler()
	for range 1000 { // as many groups, one sampler
		newRaftLogger(l, s, func() time.Time { return now }).Error("failed to list snapshots", "error", "x")
		newRaftLogger(l, s, func() time.Time { return now }).Error("failed to heartbeat to", "peer", "2.a")
	}
	if n := strings.Count(out.String(), "failed to list snapshots"); n != samplePerMessage {
		t.Errorf("%d lines of one message, want %d", n, samplePerMessage)
	}
	if strings.Contains(out.String(), "heartbeat") {
		t.Error("a dead peer is reported by every group")
	}
	now = now.Add(sampleEvery)
	newRaftLogger(l, s, func() time.Time { return now }).Error("failed to list snapshots")
	if n := strings.Count(out.String(), "failed to list snapshots"); n != samplePerMessage+1 {
		t.Errorf("%d lines after the period, want %d", n, samplePerMessage+1)
	}
}
