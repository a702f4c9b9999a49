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
	mu      sync.Mutex
	counts  map[string]int
	dropped map[string]int // in the periods before, not told yet
	since   time.Time
}

// NewSampler returns an empty sampler.
func NewSampler() *Sampler { return &Sampler{counts: map[string]int{}, dropped: map[string]int{}} }

// count tells how often a message came in this period, this time included,
// and with the first of a period how many were dropped before it.
func (s *Sampler) count(msg string, now time.Time) (n, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.since) >= sampleEvery || len(s.counts) >= sampleMessages {
		s.turn(now)
	}
	s.counts[msg]++
	if s.counts[msg] == 1 {
		dropped = s.dropped[msg]
		delete(s.dropped, msg)
	}
	return s.counts[msg], dropped
}

// turn begins a period.
func (s *Sampler) turn(now time.Time) {
	if len(s.dropped) >= sampleMessages {
		clear(s.dropped)
	}
	for msg, n := range s.counts {
		if n > samplePerMessage {
			s.dropped[msg] += n - samplePerMessage
		}
	}
	clear(s.counts)
	s.since = now
}

// raftLogger passes the library's messages to slog, ranked by what they mean to
// an operator; what is not debug is sampled.
type raftLogger struct {
	to      *slog.Logger
	sampler *Sampler
	name    string
	args    []any
	now     func() time.Time
}

// newRaftLogger returns the logger of one group, which each line names.
func newRaftLogger(to *slog.Logger, group any, s *Sampler, now func() time.Time) hclog.Logger {
	if s == nil {
		s = NewSampler()
	}
	return &raftLogger{to: to, sampler: s, args: []any{"group", group}, now: now}
}

func (l *raftLogger) emit(level slog.Level, msg string, args []any) {
	level = rank(level, msg, args)
	ctx := context.Background()
	if !l.to.Enabled(ctx, level) {
		return
	}
	if level > slog.LevelDebug {
		n, dropped := l.sampler.count(msg, l.now())
		if n > samplePerMessage {
			return
		}
		args = args[:len(args):len(args)]
		if dropped > 0 {
			args = append(args, "dropped before", dropped)
		}
		if n == samplePerMessage {
			args = append(args, "sampled", "further lines of this kind are dropped")
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
