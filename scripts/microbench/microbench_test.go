package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary play the parts that the program runs in processes of its own.
func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	os.Exit(m.Run())
}

func TestEveryRowIsMeasured(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir, "../../cmd/server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-short", "-dir", t.TempDir(), "-server", filepath.Join(dir, "server")}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Logf("\n%s", &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	const above = 3 // lines of the head
	all := rows(&env{})
	if len(lines) != above+len(all) {
		t.Fatalf("%d lines, want %d", len(lines), above+len(all))
	}
	for i, r := range all {
		if line := lines[above+i]; !strings.HasPrefix(line, r.name) || !strings.Contains(line, " ok") && !strings.Contains(line, " MISS") {
			t.Errorf("line of %q: %s", r.name, line)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "gopherlog-microbench-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A bare loop that grows is no bare loop any more.
func TestBareLoopsStayBare(t *testing.T) {
	limits := map[string]int{"bare_append.go": 60, "bare_copies.go": 60, "bare_sendfile.go": 60, "bare_echo.go": 60, "produceloop.go": 500}
	files, err := filepath.Glob("bare_*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if limits[f] == 0 {
			t.Errorf("%s has no limit", f)
		}
	}
	for f, limit := range limits {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(b, []byte("\n")); n > limit {
			t.Errorf("%s has %d lines, more than %d", f, n, limit)
		}
	}
}

func TestVerdicts(t *testing.T) {
	at := func(ops int64, allocs float64) sample {
		return sample{ops: ops, wall: 1e9, heap: heap{objects: allocs}}
	}
	r := row{name: "x", unit: "1/s", value: perSecond, limit: 0.8, most: heap{objects: 3}}
	for _, c := range []struct {
		what       string
		change     func(*row)
		bare, ours []sample
		want       string
	}{
		{"reached", nil, []sample{at(100, 0)}, []sample{at(80, 3)}, " ok"},
		{"missed", nil, []sample{at(100, 0)}, []sample{at(79, 3)}, "MISS"},
		{"too many allocations", nil, []sample{at(100, 0)}, []sample{at(90, 3.1)}, "MISS"},
		{"the median of the pairs counts", nil, []sample{at(100, 0), at(1000, 0), at(100, 0)}, []sample{at(85, 0), at(10, 0), at(85, 0)}, " ok"},
		{"at most", func(r *row) { r.atMost, r.limit = true, 3 }, []sample{at(100, 0)}, []sample{at(301, 0)}, "MISS"},
		{"alone", func(r *row) { r.atMost, r.limit = true, 100 }, nil, []sample{at(99, 0)}, " ok"},
	} {
		row := r
		if c.change != nil {
			c.change(&row)
		}
		if line := row.line(c.bare, c.ours); !strings.Contains(line, c.want) {
			t.Errorf("%s: want %q: %s", c.what, c.want, line)
		}
	}
}
