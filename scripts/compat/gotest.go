package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// module is a Go module whose tests are run in a copy of its source.
type module struct {
	path, version string
	files         map[string]string // added to the copy
	edits         []edit            // make the copy take addresses from the environment
}

// edit replaces a text in the files that match a pattern, some excepted. It must occur.
type edit struct {
	pattern, old, new string
	spare             []string
}

// source is where the module's copy stands once it is fetched.
func (m module) source(o options) string {
	h := fnv.New32a()
	fmt.Fprint(h, m.files, m.edits)
	return filepath.Join(o.cache, fmt.Sprintf("%s@%s-%08x", strings.ReplaceAll(m.path, "/", "+"), m.version, h.Sum32()))
}

// fetch brings the module by the Go command, which checks its sum, and copies it where it may be edited.
func (m module) fetch(ctx context.Context, e *env) error {
	dir := m.source(e.options)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", m.path+"@"+m.version)
	cmd.Dir = e.cache // outside of any module
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	if jerr := json.Unmarshal(out, &got); jerr != nil || got.Dir == "" {
		return fmt.Errorf("%s@%s: %s: %w", m.path, m.version, got.Error, errors.Join(err, jerr))
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.CopyFS(part, os.DirFS(got.Dir)); err != nil {
		return err
	}
	if err := writable(part); err != nil {
		return err
	}
	for name, text := range m.files {
		if err := os.WriteFile(filepath.Join(part, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, ed := range m.edits {
		if err := ed.apply(part); err != nil {
			return err
		}
	}
	return os.Rename(part, dir)
}

// writable undoes what the module cache protects its files with.
func writable(dir string) error {
	return filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode()|0o200)
	})
}

// goTest is one run of the Go command's tests.
type goTest struct {
	dir   string // the module's copy
	pkg   string
	flags []string
	vars  []string // of the environment
	limit time.Duration
}

// testEvent is a line of go test -json.
type testEvent struct {
	Action, Test, Output string
}

// run runs the tests and returns what came of those of the first level. A machine too busy to keep its leaders may fail a test that is
// right, so what fails and is no exception gets a second try, and its result says so.
func (g goTest) run(ctx context.Context, e *env) ([]result, error) {
	results, err := g.once(ctx, e, e.run)
	l, _ := readLists(e.suite)
	var again []string
	for _, r := range results {
		if _, excepted := l.except[r.name]; r.outcome == fail && !excepted {
			again = append(again, regexp.QuoteMeta(r.name))
		}
	}
	if err != nil || len(again) == 0 || len(again) > maxAgain {
		return results, err
	}
	second, err := g.once(ctx, e, "^("+strings.Join(again, "|")+")$")
	for _, s := range second {
		at := slices.IndexFunc(results, func(r result) bool { return r.name == s.name && r.outcome == fail })
		if at >= 0 && s.outcome == pass {
			results[at] = result{s.name, pass, "at the second try: " + results[at].why}
		}
	}
	return results, err
}

// maxAgain is how many tests get a second try: where more fail, the machine is not the reason.
const maxAgain = 8

// once runs the tests that match a pattern, or those of g's flags. A test that was running when the limit came has failed. All that
// was printed is in go-test.log.
func (g goTest) once(ctx context.Context, e *env, pattern string) ([]result, error) {
	args := append([]string{"test", "-json", "-count=1", "-timeout=" + g.limit.String()}, g.flags...)
	spared := e.spared()
	if len(spared) > 0 {
		var each []string
		for _, name := range slices.Sorted(maps.Keys(spared)) {
			each = append(each, "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
		}
		args = append(args, "-skip", strings.Join(each, "|"))
	}
	if pattern != "" { // the last one counts
		args = append(args, "-run", pattern)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, g.pkg)...)
	cmd.Dir, cmd.Env = g.dir, append(os.Environ(), append([]string{"GOFLAGS=-mod=mod", "GOWORK=off"}, g.vars...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	log, err := os.OpenFile(filepath.Join(e.dir, "go-test.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = io.MultiWriter(&stderr, log)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results := g.read(out, log)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return results, ctx.Err()
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("go test ran nothing: %w: %s", err, lastLine(stderr.String()))
	}
	for name, why := range spared {
		if pattern == e.run {
			results = append(results, result{name, skip, why})
		}
	}
	return results, nil
}

// spared are the tests that must not even be started, because they would take the others with them: exceptions whose reason begins so.
func (e *env) spared() map[string]string {
	const word = "not started: "
	l, _ := readLists(e.suite)
	spared := map[string]string{}
	for name, why := range l.except {
		if strings.HasPrefix(why, word) && e.run == "" {
			spared[name] = why
		}
	}
	return spared
}

// read turns events into results and copies what tests print to the log.
func (g goTest) read(events io.Reader, log io.Writer) []result {
	outcomes, said := map[string]outcome{}, map[string]string{}
	s := bufio.NewScanner(events)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var ev testEvent
		if json.Unmarshal(s.Bytes(), &ev) != nil {
			fmt.Fprintln(log, s.Text())
			continue
		}
		_, _ = io.WriteString(log, ev.Output)
		if ev.Test == "" || strings.Contains(ev.Test, "/") {
			if parent, _, sub := strings.Cut(ev.Test, "/"); sub && ev.Action == "output" {
				remember(said, parent, ev.Output)
			}
			continue
		}
		switch ev.Action {
		case "run":
			outcomes[ev.Test] = fail // until it has ended
		case "pass", "fail", "skip":
			outcomes[ev.Test] = outcome(ev.Action)
		case "output":
			remember(said, ev.Test, ev.Output)
		}
	}
	var results []result
	for name, o := range outcomes {
		r := result{name: name, outcome: o}
		if o != pass {
			r.why = said[name]
		}
		results = append(results, r)
	}
	return results
}

// remember keeps the last line that a test printed of its own accord, which is where Fatal and Skip leave their reason.
func remember(said map[string]string, test, output string) {
	line := strings.TrimSpace(output)
	at := strings.Index(line, "_test.go:")
	if at < 0 {
		return
	}
	if _, text, ok := strings.Cut(line[at:], ": "); ok {
		said[test] = cut(text, 200)
	}
}

func cut(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return cut(lines[len(lines)-1], 200)
}

func (ed edit) apply(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, ed.pattern))
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if !bytes.Contains(b, []byte(ed.old)) || slices.Contains(ed.spare, filepath.Base(f)) {
			continue
		}
		found = true
		if err := os.WriteFile(f, bytes.ReplaceAll(b, []byte(ed.old), []byte(ed.new)), 0o644); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s has no %s any more: look at the suite's new version", ed.pattern, ed.old)
	}
	return nil
}
