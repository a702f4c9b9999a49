package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"gopherlog/engine/vfs"
)

func TestTroubleIsToldWhenItChanges(t *testing.T) {
	var tr troubles
	full, gone := errors.New("disk full"), errors.New("disk gone")
	for i, c := range []struct {
		about string
		err   error
		want  bool
	}{
		{"a", nil, false}, {"a", full, true}, {"a", full, false}, {"b", full, true}, {"a", gone, true},
		{"a", nil, true}, {"a", nil, false}, {"a", gone, true}, {"b", full, false},
	} {
		if got := tr.news(c.about, c.err); got != c.want {
			t.Errorf("%d: %s %v: %t", i, c.about, c.err, got)
		}
	}
	for i := range 3 * maxTroubles {
		tr.news(fmt.Sprint(i), full)
	}
	if len(tr.last) > maxTroubles {
		t.Errorf("%d troubles are remembered", len(tr.last))
	}
}

// errorLines counts the lines of level ERROR that name a text.
type errorLines struct {
	slog.Handler
	text string
	n    *atomic.Int32
}

func (h errorLines) Enabled(context.Context, slog.Level) bool { return true }
func (h errorLines) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h errorLines) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError && strings.Contains(r.Message, h.text) {
		h.n.Add(1)
	}
	return nil
}

func TestReplicaThatCannotBeOpenedIsToldOnceAndServesWhenItCan(t *testing.T) {
	var told atomic.Int32
	logger := slog.New(errorLines{slog.DiscardHandler, "out of service", &told})
	c := startCluster(t, 1, func(cfg *Config) { cfg.Logger = logger })
	n := c.nodes[0]
	c.create("t", 1, 1, nil)
	c.produce("t", 0, plain(1))
	n.stop()
	path := "data/topics/t-0/" + metadataFile
	sound, err := vfs.ReadFile(n.fs, path)
	n.must(err)
	n.must(vfs.WriteFileAtomic(n.fs, path, []byte("version: 0\ntopic_id: damaged\n")))
	n.start()
	n.ready()
	c.await("the replica has failed", func() bool { return n.m.Failed()["t-0"] != nil })
	for i := range 5 { // each makes the manager look at what is missing
		name := fmt.Sprint("other", i)
		c.create(name, 1, 1, nil)
		c.led(name, 1)
	}
	if got := told.Load(); got != 1 {
		t.Errorf("%d lines say that it is out of service", got)
	}
	if err := n.m.Failed()["t-0"]; !strings.Contains(err.Error(), metadataFile) {
		t.Errorf("the reason does not name the file: %v", err)
	}
	n.must(vfs.WriteFileAtomic(n.fs, path, sound))
	c.create("last", 1, 1, nil)
	c.led("t", 1)
	if got := c.read("t", 0); len(got) != 1 {
		t.Errorf("%d batches", len(got))
	}
}
