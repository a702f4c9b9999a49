package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopherlog/bench/check"
	"gopherlog/bench/result"
	"gopherlog/bench/suite"
	"gopherlog/cmd/internal/cli"
)

// left is a run as suite leaves it; written says whether its directory is there
// to draw a report from.
func left(t *testing.T, code int, written bool) *result.Run {
	t.Helper()
	r := &result.Run{Dir: result.Dir{Path: filepath.Join(t.TempDir(), "absent")}}
	if written {
		d, err := result.Create(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		r.Dir = *d
	}
	r.Manifest.Scenario.Name = "x"
	r.Results.ExitCode = code
	if code == suite.ExitViolation {
		r.Results.Verdict = check.Violated
	}
	if written {
		if err := errors.Join(r.WriteManifest(&r.Manifest), r.WriteResults(&r.Results)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestGravestFindingDecidesTheExitCode(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	broken := fmt.Errorf("%w: no space", suite.ErrEnvironment)
	for name, c := range map[string]struct {
		ctx     context.Context
		code    int
		written bool
		failed  error
		want    int
	}{
		"all well":                              {t.Context(), 0, true, nil, 0},
		"threshold":                             {t.Context(), suite.ExitThreshold, true, nil, suite.ExitThreshold},
		"violation":                             {t.Context(), suite.ExitViolation, true, nil, suite.ExitViolation},
		"violation, then no further trial":      {t.Context(), suite.ExitViolation, true, broken, suite.ExitViolation},
		"violation, and no report":              {t.Context(), suite.ExitViolation, false, nil, suite.ExitViolation},
		"violation, interrupted":                {over, suite.ExitViolation, true, nil, suite.ExitViolation},
		"interrupted":                           {over, suite.ExitUnusable, true, nil, suite.ExitInterrupted},
		"interrupted, and no report":            {over, suite.ExitUnusable, false, nil, suite.ExitInterrupted},
		"no further trial":                      {t.Context(), 0, true, broken, suite.ExitUnusable},
		"no report":                             {t.Context(), 0, false, nil, suite.ExitUnusable},
		"threshold missed and no further trial": {t.Context(), suite.ExitThreshold, true, broken, suite.ExitUnusable},
	} {
		r := left(t, c.code, c.written)
		err := (&runCmd{}).conclude(c.ctx, &streams{io.Discard, io.Discard}, r.Path, []*result.Run{r}, c.failed)
		if got := cli.Code(err); got != c.want {
			t.Errorf("%s: exit code %d (%v), want %d", name, got, err, c.want)
		}
	}
}

func TestRunIntoADirectoryThatHoldsOneIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, result.ManifestFile), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	sc := file(t, "version: 1\nname: x\ntarget: {system: external, external: {bootstrap: [127.0.0.1:1]}}\n")
	code, _, errs := call("run", sc, "-out", dir)
	if code != 2 || !strings.Contains(errs, "already holds a run") || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d, said: %s", code, errs)
	}
}

func TestRunIntoADirectoryOfOtherThingsIsRefusedAtOnce(t *testing.T) {
	external := "\ntarget: {system: external, external: {bootstrap: [127.0.0.1:1]}}\n"
	one, two := file(t, "version: 1\nname: one"+external), file(t, "version: 1\nname: two"+external)
	for name, args := range map[string][]string{"one scenario": {"run", one}, "a set": {"run", one, two}} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "20261130-yesterday"), 0o755); err != nil {
			t.Fatal(err)
		}
		code, _, errs := call(append(args, "-out", dir)...)
		if code != 2 || !strings.Contains(errs, "is not empty") || !strings.Contains(errs, "-out "+filepath.Join(dir, "NAME")) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d, said: %s", name, code, errs)
		}
		if there, err := os.ReadDir(dir); err != nil || len(there) != 1 {
			t.Errorf("%s left %v, %v", name, there, err)
		}
	}
}

func TestLatestFollowsTheNewestRunAndReplacesNothingElse(t *testing.T) {
	results := filepath.Join(t.TempDir(), "results")
	for _, run := range []string{"one", "two"} {
		if err := os.MkdirAll(filepath.Join(results, run), 0o755); err != nil {
			t.Fatal(err)
		}
		linkLatest(filepath.Join(results, run))
		if to, err := os.Readlink(filepath.Join(results, "latest")); err != nil || to != run {
			t.Errorf("latest points to %q, %v; want %s", to, err, run)
		}
	}
	if left, err := os.ReadDir(results); err != nil || len(left) != 3 {
		t.Errorf("%v, %v", left, err)
	}
	mine := filepath.Join(t.TempDir(), "results")
	if err := os.MkdirAll(filepath.Join(mine, "latest", "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	linkLatest(filepath.Join(mine, "one"))
	if _, err := os.Stat(filepath.Join(mine, "latest", "mine")); err != nil {
		t.Error(err)
	}
	linkLatest(filepath.Join(t.TempDir(), "elsewhere"))
}
