package house_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents are all Markdown files of the tree that people wrote.
func documents(t *testing.T) (files []string) {
	t.Helper()
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".md") && !strings.HasPrefix(path, "results/") {
			files = append(files, path)
		}
	})
	return files
}

// walk visits the files of the tree that are not made by a target or a tool.
func walk(t *testing.T, fn func(path string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != "." && (strings.HasPrefix(name, ".") && name != ".ci" || name == "bin" || name == "data" || name == "coverage") {
				return filepath.SkipDir
			}
			return nil
		}
		fn(path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	for _, doc := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, doc), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", doc, m[1])
			}
		}
	}
}

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)(?:/[^`]*)?`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

// The list of traps is worth as much as the tests that it names.
func TestTestsThatDocumentsNameExist(t *testing.T) {
	have := map[string]bool{}
	walk(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
				have[m[1]] = true
			}
		}
	})
	for _, doc := range documents(t) {
		for _, m := range testName.FindAllStringSubmatch(read(t, doc), -1) {
			if !have[m[1]] {
				t.Errorf("%s names the test %s, which does not exist", doc, m[1])
			}
		}
	}
}

func TestDecisionsAreNumberedAndComplete(t *testing.T) {
	files, err := filepath.Glob("docs/decisions/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	seen := map[string]string{}
	for _, f := range files {
		base := filepath.Base(f)
		if base == "README.md" {
			continue
		}
		if !regexp.MustCompile(`^\d{4}-[a-z0-9-]+\.md$`).MatchString(base) {
			t.Errorf("%s: want NNNN-title-in-words.md", f)
			continue
		}
		if other := seen[base[:4]]; other != "" {
			t.Errorf("%s and %s have the same number", f, other)
		}
		seen[base[:4]] = base
		text := read(t, f)
		for _, part := range []string{"## Context", "## Choice", "## Price", "## What would change our mind", "Commit: "} {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %q", f, part)
			}
		}
	}
}

// Words that mark unfinished work; put together here so that this file does not hold them.
var unfinished = regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + "ME|XX" + `X)\b`)

func TestTreeHoldsNoNotesAboutUnfinishedWork(t *testing.T) {
	walk(t, func(path string) {
		switch filepath.Ext(path) {
		case ".go", ".sh", ".md", ".proto", ".yaml":
		default:
			if filepath.Base(path) != "Makefile" {
				return
			}
		}
		if strings.HasPrefix(path, "results/") {
			return
		}
		for i, line := range strings.Split(read(t, path), "\n") {
			if unfinished.MatchString(line) {
				t.Errorf("%s:%d: %s", path, i+1, strings.TrimSpace(line))
			}
		}
	})
}
