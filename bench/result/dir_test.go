package result

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
)

func made(t *testing.T) *Dir {
	t.Helper()
	d, err := Create(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRunReadBackIsTheRunThatWasWritten(t *testing.T) {
	d := made(t)
	m := Manifest{Command: "mqbench run x.yaml", Partial: true, Stopped: "interrupted", Cells: []Cell{{ID: "c01", Client: map[string]string{"acks": "all"}}}}
	r := Results{Verdict: check.Pass, Trials: []Trial{{ID: "b01-c01", Cell: "c01", Counts: Counts{Acked: 7, Failed: 1}, Invalid: []string{"late; very"},
		Faults: []fault.Event{{Kind: "kill", Nodes: []int{1}}}, Leaders: []LeaderChange{{At: 1.5, Topic: "load", Node: 2}}}}}
	if err := errors.Join(d.WriteManifest(&m), d.WriteResults(&r)); err != nil {
		t.Fatal(err)
	}
	again, err := Load(d.Path)
	if err != nil || !reflect.DeepEqual(again.Manifest, m) || !reflect.DeepEqual(again.Results, r) {
		t.Errorf("%v\n%+v\n%+v", err, again, r)
	}
	trials, err := os.ReadFile(d.File(TrialsFile))
	if err != nil || strings.Count(string(trials), "\n") != 2 || !strings.Contains(string(trials), "late; very") {
		t.Errorf("%v: %s", err, trials)
	}
	head, row, _ := strings.Cut(string(trials), "\n")
	if strings.Count(head, ",") != strings.Count(strings.TrimSpace(row), ",") {
		t.Errorf("the columns of %q and %q differ", head, row)
	}
	events, err := os.ReadFile(d.File(EventsFile))
	if err != nil || strings.Count(string(events), "\n") != 2 {
		t.Errorf("%v: %s", err, events)
	}
}

func TestSecondsReadBackAreThoseWritten(t *testing.T) {
	d := made(t)
	want := []Second{{At: 0, Sent: 5, Acked: 4, Failed: 1, AckP50: 0.5, AckP99: 1.25, AckMax: 2, VisibleP50: 0.75, VisibleP99: 3, VisibleMax: 4, Lag: 2}, {At: 1}}
	if err := d.WriteSeconds("t", want); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Seconds("t"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\n%+v", err, got, want)
	}
	for name, text := range map[string]string{"short": "at_s,sent\n1,2\n", "words": strings.Join(secondHeader, ",") + "\n1,2,3,4,5,6,7,8,9,10,many\n"} {
		if err := os.WriteFile(d.Samples(name+".csv"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Seconds(name); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
}

func TestSecondRunInADirectoryIsRefused(t *testing.T) {
	d := made(t)
	if err := d.WriteManifest(&Manifest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(d.Path); err == nil || !strings.Contains(err.Error(), "already holds a run") {
		t.Errorf("got %v", err)
	}
}

func TestARunDirectoryIsMadeOfNothingOrOfAnEmptyDirectory(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, free := range map[string]bool{filepath.Join(root, "new", "run"): true, t.TempDir(): true, root: false, file: false} {
		if err := Free(path); (err == nil) != free {
			t.Errorf("%s: got %v, want an error: %v", path, err, !free)
		}
	}
}

func TestForeignDirectoriesAndVersionsAreRefusedAsSuch(t *testing.T) {
	d := made(t)
	if _, err := Load(d.Path); err == nil || !strings.Contains(err.Error(), "no run directory") {
		t.Errorf("got %v", err)
	}
	for text, want := range map[string]string{`{"schema": 99}`: "schema version 99", `{"schema": 1`: "manifest.json"} {
		if err := os.WriteFile(d.File(ManifestFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(d.Path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// A full disk must leave the former file whole.
func TestFileThatCannotBeWrittenLeavesTheOldOne(t *testing.T) {
	d := made(t)
	if err := d.WriteResults(&Results{Verdict: check.Violated}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", d.File(ResultsFile+".tmp")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no device that is always full")
	}
	if err := d.WriteResults(&Results{Verdict: check.Pass}); err == nil {
		t.Error("a full device took the results")
	}
	r := &Run{Dir: *d}
	if err := r.readJSON(ResultsFile, &r.Results); err != nil || r.Results.Verdict != check.Violated {
		t.Errorf("%v, %s", err, r.Results.Verdict)
	}
}

func TestMetricsAreWrittenWhereTheyChange(t *testing.T) {
	d := made(t)
	rows := []NodeSample{{At: 0, Node: 1, RSS: 5, Metrics: map[string]float64{"a": 1, "b": 2}}, {At: 0, Node: 2}, {At: 1, Node: 1, Metrics: map[string]float64{"a": 1, "b": 3}}}
	if err := d.WriteNodes("t", rows); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(d.Samples("t-metrics.jsonl"))
	want := `{"at":0,"node":1,"metrics":{"a":1,"b":2}}
{"at":0,"node":2,"metrics":{}}
{"at":1,"node":1,"metrics":{"b":3}}
`
	if err != nil || string(got) != want {
		t.Errorf("%v: %s", err, got)
	}
	table, err := os.ReadFile(d.Samples("t-nodes.csv"))
	if err != nil || strings.Count(string(table), "\n") != 4 || !strings.Contains(string(table), "0.000,1,0.000,5,0,0") {
		t.Errorf("%v: %s", err, table)
	}
}
