package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatMustPassAndWhatNeedNot(t *testing.T) {
	l := lists{must: map[string]bool{"kept": true, "lost": true, "gone": true}, except: map[string]string{"known": "why", "healed": "why"}}
	v := l.judge([]result{{"kept", pass, ""}, {"lost", fail, "x"}, {"known", fail, "y"}, {"healed", pass, ""}, {"news", pass, ""}, {"unheard", skip, "z"}})
	want := verdict{lost: []result{{"lost", fail, "x"}, {"gone", fail, "did not run"}}, unlisted: []result{{"unheard", skip, "z"}}, better: []string{"healed"}, grown: []string{"news"}}
	if d := cmp.Diff(want, v, cmp.AllowUnexported(verdict{}, result{})); d != "" {
		t.Error(d)
	}
	if !v.bad() || (verdict{better: []string{"a"}, grown: []string{"b"}}).bad() {
		t.Error("what fails a suite is what was lost and what no list names")
	}
}

func TestListsOnlyGrow(t *testing.T) {
	old := listsDir
	listsDir = t.TempDir()
	defer func() { listsDir = old }()
	write(t, "s.pass", "b\n")
	write(t, "s.except", "# words\nd\tbecause\n")
	l, err := readLists("s")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.grow([]result{{"a", pass, ""}, {"b", fail, ""}, {"c", skip, ""}, {"d", pass, ""}}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(listsDir, "s.pass")); string(got) != "a\nb\n" {
		t.Errorf("the list is %q", got)
	}
	for _, r := range []row{{suite: "s", target: "gopherlog", version: "1", passed: 2}, {suite: "s", target: "kafka", version: "1"}, {suite: "s", target: "gopherlog", version: "2", passed: 3}} {
		if err := writeRow(r); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := readRows()
	if want := []row{{suite: "s", target: "gopherlog", version: "2", passed: 3}, {suite: "s", target: "kafka", version: "1"}}; err != nil || !cmp.Equal(want, rows, cmp.AllowUnexported(row{})) {
		t.Errorf("rows %+v, %v", rows, err)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(listsDir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGoTestsThatNeverEndHaveFailed(t *testing.T) {
	events := `{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"    a_test.go:7: no broker\n"}
{"Action":"run","Test":"TestB"}
{"Action":"run","Test":"TestB/sub"}
{"Action":"output","Test":"TestB/sub","Output":"        b_test.go:9: got 1, want 2\n"}
{"Action":"fail","Test":"TestB/sub"}
{"Action":"fail","Test":"TestB"}
{"Action":"skip","Test":"TestA"}
{"Action":"run","Test":"TestC"}
{"Action":"run","Test":"TestD"}
{"Action":"pass","Test":"TestD"}
not JSON`
	got := map[string]result{}
	for _, r := range (goTest{}).read(strings.NewReader(events), io.Discard) {
		got[r.name] = r
	}
	want := map[string]result{"TestA": {"TestA", skip, "no broker"}, "TestB": {"TestB", fail, "got 1, want 2"}, "TestC": {"TestC", fail, ""}, "TestD": {"TestD", pass, ""}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(result{})); d != "" {
		t.Error(d)
	}
}

func TestChecksOfPrograms(t *testing.T) {
	got := readChecks(strings.NewReader("warning\nPASS a\nFAIL b it broke\nSKIP c no zstd\nPass d\nPASS\n"), io.Discard)
	want := []result{{"a", pass, ""}, {"b", fail, "it broke"}, {"c", skip, "no zstd"}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(result{})); d != "" {
		t.Error(d)
	}
}

// A suite whose new version looks otherwise must not run unedited, against whatever listens at its own address.
func TestEditsMustApply(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a_test.go", "b_test.go", "c.go"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("localhost:9092 "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := (edit{pattern: "*_test.go", old: "localhost:9092", new: "addr", spare: []string{"b_test.go"}}).apply(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a_test.go": "addr a_test.go", "b_test.go": "localhost:9092 b_test.go", "c.go": "localhost:9092 c.go"} {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if err := (edit{pattern: "*_test.go", old: "nowhere", new: "x"}).apply(dir); err == nil {
		t.Error("an edit that does not apply was taken for one")
	}
}

// Names on both lists say two things at once; names of no suite are forgotten files.
func TestListsAreOfSuites(t *testing.T) {
	old := listsDir
	listsDir = "lists"
	defer func() { listsDir = old }()
	names := map[string]bool{}
	for _, s := range suites {
		names[s.name] = true
		l, err := readLists(s.name)
		if err != nil {
			t.Fatal(err)
		}
		for name, why := range l.except {
			if l.must[name] {
				t.Errorf("%s: %s must pass and need not", s.name, name)
			}
			if why == "" {
				t.Errorf("%s: %s need not pass, and nothing says why", s.name, name)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join("lists", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), filepath.Ext(f)); !names[name] && name != "results" {
			t.Errorf("%s belongs to no suite", f)
		}
	}
}

// The document is what the lists say.
func TestDocumentSaysWhatTheListsSay(t *testing.T) {
	old := listsDir
	listsDir = "lists"
	defer func() { listsDir = old }()
	section, err := clientsSection()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "PROTOCOL.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, got, _ := strings.Cut(string(text), clientsHeading); clientsHeading+got != section {
		t.Errorf("docs/PROTOCOL.md does not say what the lists say: run `go run ./scripts/compat -document` in the top directory")
	}
}
