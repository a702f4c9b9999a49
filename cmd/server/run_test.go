package main

import (
	"bytes"
	"errors"
	"fmt"
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
