package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestLogLinesTakeAnyValueUnderAnyKey: libraries log durations as "time" and errors of several lines.
func TestLogLinesTakeAnyValueUnderAnyKey(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := newLogger(&nodeFlags{LogLevel: "info", LogFormat: format}, streams{err: &out})
		log.Info("election", "time", 1500*time.Millisecond, "error", errors.Join(errors.New("one"), errors.New("two")), "nothing", nil)
		log.Warn("wrapped", "error", fmt.Errorf("outer: %w", errors.New("inner")))
		log.Debug("not logged")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "1.5s") || !strings.Contains(lines[0], "one; two") || !strings.Contains(lines[1], "outer: inner") {
			t.Errorf("%s:\n%s", format, out.String())
		}
	}
}

type named string

type shown struct{ of string }

func (s shown) String() string { return s.of }

// A client chooses names of up to 32 KB. However one gets into a line, by itself, in an error, in what else can be printed, or in the
// message, the line shows where it begins and how long it is.
func TestALogLineShowsTheBeginningOfALongName(t *testing.T) {
	long := "pipe-" + strings.Repeat("é", 16_000) // cut where a character begins
	for _, format := range []string{"text", "json"} {
		for what, say := range map[string]func(*slog.Logger){
			"name":  func(l *slog.Logger) { l.Warn("not appended", "id", long) },
			"type":  func(l *slog.Logger) { l.Warn("not appended", "id", named(long)) },
			"error": func(l *slog.Logger) { l.Warn("not appended", "error", errors.New(long)) },
			"wrapped": func(l *slog.Logger) {
				l.Warn("not appended", "error", fmt.Errorf("group %s: %w", long, errors.New("inner")))
			},
			"joined":  func(l *slog.Logger) { l.Warn("not appended", "error", errors.Join(errors.New(long), errors.New(long))) },
			"shown":   func(l *slog.Logger) { l.Warn("not appended", "record", shown{long}) },
			"pointer": func(l *slog.Logger) { l.Warn("not appended", "record", &shown{long}) },
			"list":    func(l *slog.Logger) { l.Warn("not appended", "ids", []string{long, long}) },
			"struct":  func(l *slog.Logger) { l.Warn("not appended", "of", struct{ Names []named }{[]named{named(long)}}) },
			"group":   func(l *slog.Logger) { l.Warn("not appended", slog.Group("of", "id", long)) },
			"with":    func(l *slog.Logger) { l.With("id", long).WithGroup("in").Warn("not appended") },
			"message": func(l *slog.Logger) { l.Warn(long) },
		} {
			var out bytes.Buffer
			say(newLogger(&nodeFlags{LogLevel: "info", LogFormat: format}, streams{err: &out}))
			line := out.String()
			if len(line) > maxLogged+200 || !strings.Contains(line, "pipe-éé") || !strings.Contains(line, "é... (") || !strings.Contains(line, " bytes)") {
				t.Errorf("%s, %s: a line of %d bytes: %.300q", format, what, len(line), line)
			}
		}
	}
	var out bytes.Buffer
	newLogger(&nodeFlags{LogLevel: "info", LogFormat: "text"}, streams{err: &out}).Warn("whole", "id", strings.Repeat("x", maxLogged), "nobody", (*shown)(nil))
	if line := out.String(); !strings.Contains(line, "id="+strings.Repeat("x", maxLogged)+" nobody=<nil>") {
		t.Errorf("a name that fits: %q", line)
	}
}
