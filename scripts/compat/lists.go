package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listsDir holds, for each suite, NAME.pass with the tests that must pass, one a line, and NAME.except with those that need not, each with
// a tab and the reason; and results.tsv with the counts of the last whole runs.
var listsDir = filepath.Join("scripts", "compat", "lists")

type outcome string

const (
	pass outcome = "pass"
	fail outcome = "fail"
	skip outcome = "skip"
)

// result is what came of one test. why is what a test that skipped or failed said about it, in a line.
type result struct {
	name    string
	outcome outcome
	why     string
}

func count(results []result) (passed, failed, skipped int) {
	for _, r := range results {
		switch r.outcome {
		case pass:
			passed++
		case fail:
			failed++
		case skip:
			skipped++
		}
	}
	return passed, failed, skipped
}

// lists are what is expected of a suite.
type lists struct {
	suite  string
	must   map[string]bool
	except map[string]string // name → reason
}

func readLists(suite string) (lists, error) {
	l := lists{suite: suite, must: map[string]bool{}, except: map[string]string{}}
	err1 := eachLine(filepath.Join(listsDir, suite+".pass"), func(line string) { l.must[line] = true })
	err2 := eachLine(filepath.Join(listsDir, suite+".except"), func(line string) {
		name, why, _ := strings.Cut(line, "\t")
		l.except[name] = why
	})
	return l, errors.Join(err1, err2)
}

// eachLine hands over the lines of a file that are neither empty nor comments. A file that is not there has none.
func eachLine(path string, fn func(string)) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if line := strings.TrimSpace(s.Text()); line != "" && line[0] != '#' {
			fn(line)
		}
	}
	return s.Err()
}

// verdict is where the results leave the lists.
type verdict struct {
	lost     []result // must pass, and did not or was not there
	unlisted []result // did not pass, and no list says why
	better   []string // passes, and is listed as one that need not
	grown    []string // passes, and is on no list
	late     []result // passed at the second try
}

func (l lists) judge(results []result) (v verdict) {
	seen := map[string]bool{}
	for _, r := range results {
		seen[r.name] = true
		if r.outcome == pass && r.why != "" {
			v.late = append(v.late, r)
		}
		_, excepted := l.except[r.name]
		switch {
		case r.outcome == pass && excepted:
			v.better = append(v.better, r.name)
		case r.outcome == pass && !l.must[r.name]:
			v.grown = append(v.grown, r.name)
		case r.outcome != pass && l.must[r.name]:
			v.lost = append(v.lost, r)
		case r.outcome != pass && !excepted:
			v.unlisted = append(v.unlisted, r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.must)) {
		if !seen[name] {
			v.lost = append(v.lost, result{name, fail, "did not run"})
		}
	}
	return v
}

// bad is what fails a suite. A test that passes now and is listed as an exception is told, and fails nothing: it may be a matter of luck.
func (v verdict) bad() bool { return len(v.lost)+len(v.unlisted) > 0 }

func (v verdict) print(w io.Writer) {
	for _, r := range v.lost {
		fmt.Fprintf(w, "    must pass: %s: %s %s\n", r.name, r.outcome, r.why)
	}
	for _, r := range v.unlisted {
		fmt.Fprintf(w, "    on no list: %s: %s %s\n", r.name, r.outcome, r.why)
	}
	for _, r := range v.late {
		fmt.Fprintf(w, "    passed %s: %s\n", r.why, r.name)
	}
	for _, name := range v.better {
		fmt.Fprintf(w, "    passes now, and is listed as an exception: %s\n", name)
	}
}

// grow adds what passed to the list of what must pass, unless it is an exception. Nothing is ever taken out.
func (l lists) grow(results []result) error {
	for _, r := range results {
		if _, excepted := l.except[r.name]; r.outcome == pass && !excepted {
			l.must[r.name] = true
		}
	}
	if len(l.must) == 0 {
		return nil
	}
	text := strings.Join(slices.Sorted(maps.Keys(l.must)), "\n") + "\n"
	return os.WriteFile(filepath.Join(listsDir, l.suite+".pass"), []byte(text), 0o644)
}

// row is a line of results.tsv: the last whole run of a suite on one target.
type row struct {
	suite, target, version  string
	passed, failed, skipped int
}

func readRows() (rows []row, err error) {
	err = eachLine(filepath.Join(listsDir, "results.tsv"), func(line string) {
		f := strings.Split(line, "\t")
		if len(f) != 6 {
			return
		}
		r := row{suite: f[0], target: f[1], version: f[2]}
		r.passed, _ = strconv.Atoi(f[3])
		r.failed, _ = strconv.Atoi(f[4])
		r.skipped, _ = strconv.Atoi(f[5])
		rows = append(rows, r)
	})
	return rows, err
}

// writeRow puts a run in the place of the suite's last one on the same target.
func writeRow(r row) error {
	rows, err := readRows()
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(o row) bool { return o.suite == r.suite && o.target == r.target })
	rows = append(rows, r)
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.suite+"\t"+a.target, b.suite+"\t"+b.target) })
	b := strings.Builder{}
	b.WriteString("# suite, target, version, passed, failed, skipped: the last whole run of each; written by compat -grow\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%d\t%d\t%d\n", r.suite, r.target, r.version, r.passed, r.failed, r.skipped)
	}
	return os.WriteFile(filepath.Join(listsDir, "results.tsv"), []byte(b.String()), 0o644)
}
