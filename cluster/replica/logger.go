package replica

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// samplePerMessage lines of one message pass per sampleEvery; a dead peer
	// makes every group say the same.
	samplePerMessage = 5
	sampleEvery      = 10 * time.Second
	// sampleMessages bounds the distinct messages that are counted.
	sampleMessages = 256
)

// Sampler limits how often the library's messages are repeated. One serves all
// groups of a node.
type Sampler struct {
	mu     sync.Mutex
	counts map[string]int
	since  time.Time
}

// NewSampler returns an empty sampler.
func NewSampler() *Sampler { return &Sampler{counts: make(map[string]int)} }

// allow counts a message; the last allowed one of a period says so.
func (s *Sampler) allow(msg string, now time.Time) (ok, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.since) >= sampleEvery || len(s.counts) >= sampleMessages {
		clear(s.counts)
		s.since = now
	}
	s.counts[msg]++
	n := s.counts[msg]
	return n <= samplePerMessage, n == samplePerMessage
}

// raftLogger passes the library's messages to slog: its chatter about normal
// elections is debug, the rest is sampled.
type raftLogger struct {
	to      *slog.Logger
	sampler *Sampler
	name    string
	args    []any
	now     func() time.Time
}

func newRaftLogger(to *slog.Logger, s *Sampler, now func() time.Time) hclog.Logger {
	if s == nil {
		s = NewSampler()
	}
	return &raftLogger{to: to, sampler: s, now: now}
}

// expected names the library's warnings and errors that only say that a peer
// is down, behind or newer: the transport reports dead peers once per node.
var expected = map[string]bool{
	"failed to heartbeat to":                                     true,
	"failed to appendEntries to":                                 true,
	"failed to pipeline appendEntries":                           true,
	"failed to start pipeline replication to":                    true,
	"failed to make requestVote RPC":                             true,
	"failed to contact":                                          true,
	"appendEntries rejected, sending older logs":                 true,
	"failed to get log":                                          true, // of a deposed leader; damage is reported by the group
	"failed to append to logs":                                   true, // reported by the group, when it begins and ends
	"failed to commit logs":                                      true, // same
	"failed to get previous log":                                 true,
	"previous log term mis-match":                                true,
	"peer has newer term, stopping replication":                  true,
	"rejecting vote request since we have a leader":              true,
	"rejecting pre-vote request since we have a leader":          true,
	"rejecting pre-vote request since our last index is greater": true,
	"rejecting pre-vote request since our last term is greater":  true,
	"rejecting vote request since our last index is greater":     true,
	"rejecting vote request since our last term is greater":      true,
	"heartbeat timeout reached, starting election":               true,
	"Election timeout reached, restarting election":              true,
	"duplicate requestVote from":                                 true,
	"clearing log suffix":                                        true,
	"skipping application of old log":                            true,
	"no known peers, aborting election":                          true,
	"not part of stable configuration, aborting election":        true,
	"failed to contact quorum of nodes, stepping down":           true,
	"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election": true,
}

func (l *raftLogger) emit(level slog.Level, msg string, args []any) {
	if level < slog.LevelWarn || expected[msg] {
		level = slog.LevelDebug
	}
	ctx := context.Background()
	if !l.to.Enabled(ctx, level) {
		return
	}
	if level > slog.LevelDebug {
		ok, last := l.sampler.allow(msg, l.now())
		if !ok {
			return
		}
		if last {
			args = append(args[:len(args):len(args)], "sampled", "further lines of this kind are dropped")
		}
	}
	l.to.Log(ctx, level, "raft: "+msg, l.attrs(args)...)
}

// attrs renders hclog's deferred formats.
func (l *raftLogger) attrs(args []any) []any {
	out := append(l.args[:len(l.args):len(l.args)], args...)
	for i, a := range out {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			if s, ok := f[0].(string); ok {
				out[i] = fmt.Sprintf(s, f[1:]...)
			}
		}
	}
	return out
}

func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	l.emit(slogLevel(level), msg, args)
}

func slogLevel(level hclog.Level) slog.Level {
	switch {
	case level >= hclog.Error:
		return slog.LevelError
	case level == hclog.Warn:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (l *raftLogger) Trace(string, ...any)             {}
func (l *raftLogger) Debug(msg string, args ...any)    { l.emit(slog.LevelDebug, msg, args) }
func (l *raftLogger) Info(msg string, args ...any)     { l.emit(slog.LevelDebug, msg, args) }
func (l *raftLogger) Warn(msg string, args ...any)     { l.emit(slog.LevelWarn, msg, args) }
func (l *raftLogger) Error(msg string, args ...any)    { l.emit(slog.LevelError, msg, args) }
func (l *raftLogger) IsTrace() bool                    { return false }
func (l *raftLogger) IsDebug() bool                    { return l.to.Enabled(context.Background(), slog.LevelDebug) }
func (l *raftLogger) IsInfo() bool                     { return l.IsDebug() }
func (l *raftLogger) IsWarn() bool                     { return true }
func (l *raftLogger) IsError() bool                    { return true }
func (l *raftLogger) ImpliedArgs() []any               { return l.args }
func (l *raftLogger) Name() string                     { return l.name }
func (l *raftLogger) SetLevel(hclog.Level)             {}
func (l *raftLogger) GetLevel() hclog.Level            { return hclog.Warn }
func (l *raftLogger) ResetNamed(n string) hclog.Logger { return l.Named(n) }

func (l *raftLogger) With(args ...any) hclog.Logger {
	c := *l
	c.args = append(l.args[:len(l.args):len(l.args)], args...)
	return &c
}

func (l *raftLogger) Named(name string) hclog.Logger {
	c := *l
	c.name = name
	return &c
}

func (l *raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *stdlog.Logger {
	return stdlog.New(io.Discard, "", 0)
}

func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return io.Discard }
