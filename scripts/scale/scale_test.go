package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryStepIsMeasuredAndNothingIsLeft(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "../../cmd/server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var out bytes.Buffer
	args := []string{"-short", "-partitions", "9", "-topics", "2", "-fill", "20MiB", "-dir", dir, "-server", filepath.Join(bin, "server")}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Logf("\n%s", &out)
	for _, row := range []string{"creation", "idle", "resident memory", "open files", "/metrics", "SIGKILL of a node that led", "restart of it, until /readyz",
		"restart of it, until in sync", "bytes of the killed node", "restart with them, until /readyz", "restart of all", "the same"} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q", row)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestSizesAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]size{"20GiB": 20 << 30, "512MiB": 512 << 20, "7KiB": 7 << 10, "123": 123, "0": 0} {
		var s size
		if err := s.Set(text); err != nil || s != want || s.String() != text {
			t.Errorf("%q: %d, %v, shown as %s", text, int64(s), err, &s)
		}
	}
	for _, text := range []string{"", "GiB", "-1MiB", "1.5GiB", "9999999999GiB"} {
		if err := new(size).Set(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
