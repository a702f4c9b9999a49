package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// clientsHeading begins the part of docs/PROTOCOL.md that is written here. What stands before it is written by the broker's own test.
const clientsHeading = "\n## Clients\n"

// clientsSection says what foreign clients made of us, from the lists and the counts of the last whole runs.
func clientsSection() (string, error) {
	rows, err := readRows()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(clientsHeading + "\nWritten by `make compat` (`scripts/compat`) after its last whole runs: foreign suites and programs against three nodes, and " +
		"beside that the same against nodes of Apache Kafka, on a machine that was busy with other work. Passed, failed and skipped are tests of the first level. " +
		"What passed once is on a list in `scripts/compat/lists` and must pass for ever; a test that fails or is skipped for a reason stands below.\n\n" +
		"| Client | Version | Passed | Failed | Skipped | Kafka: passed, failed, skipped |\n|---|---|---|---|---|---|\n")
	for _, s := range suites {
		ours, ran := rowOf(rows, s.name, "gopherlog")
		k, baseline := rowOf(rows, s.name, "kafka")
		beside := "–"
		if baseline {
			beside = fmt.Sprintf("%d, %d, %d", k.passed, k.failed, k.skipped)
		}
		if !ran {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %s |\n", s.client, ours.version, ours.passed, ours.failed, ours.skipped, beside)
	}
	for _, s := range suites {
		l, err := readLists(s.name)
		if err != nil {
			return "", err
		}
		if _, ran := rowOf(rows, s.name, "gopherlog"); !ran || len(l.except) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### Need not pass: %s\n\n| Test | Why |\n|---|---|\n", s.client)
		for _, name := range slices.Sorted(maps.Keys(l.except)) {
			fmt.Fprintf(&b, "| %s | %s |\n", name, l.except[name])
		}
	}
	return b.String(), nil
}

func rowOf(rows []row, suite, target string) (row, bool) {
	for _, r := range rows {
		if r.suite == suite && r.target == target {
			return r, true
		}
	}
	return row{}, false
}

// writeDocument replaces the section in the document and leaves the rest as it is.
func writeDocument(path string) error {
	section, err := clientsSection()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, _, _ := strings.Cut(string(text), clientsHeading)
	return os.WriteFile(path, []byte(before+section), 0o644)
}
