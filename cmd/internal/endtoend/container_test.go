package endtoend

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// instructions reads a Dockerfile into its instructions, with continued lines joined.
func instructions(t *testing.T) (out [][2]string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root(), "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.ReplaceAll(string(raw), "\\\n", " "), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		out = append(out, [2]string{word, strings.TrimSpace(rest)})
	}
	return out
}

func list(t *testing.T, text string) (out []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s is not a list of strings: %v", text, err)
	}
	return out
}

// TestDockerfileBuildsAndRunsTheServer does what docker would do with the build line and the command, without docker.
func TestDockerfileBuildsAndRunsTheServer(t *testing.T) {
	known := []string{"FROM", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "VOLUME", "ENTRYPOINT", "CMD"}
	got := map[string]string{}
	var build string
	for _, in := range instructions(t) {
		if !slices.Contains(known, in[0]) {
			t.Errorf("unknown instruction %s", in[0])
		}
		if in[0] == "RUN" && strings.Contains(in[1], "go build") {
			build = in[1]
		}
		got[in[0]] = in[1]
	}
	if got["EXPOSE"] != "9092" || got["VOLUME"] != "/data" || !strings.HasPrefix(got["FROM"], "debian:trixie") {
		t.Errorf("EXPOSE %s, VOLUME %s, last FROM %s", got["EXPOSE"], got["VOLUME"], got["FROM"])
	}
	out := t.TempDir()
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(build, "/out/", out+"/"))
	cmd.Dir = root()
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, b)
	}
	for _, in := range instructions(t) {
		if in[0] != "COPY" || !strings.Contains(in[1], "/out/server") {
			continue
		}
		for _, f := range strings.Fields(in[1]) {
			if name, ok := strings.CutPrefix(f, "/out/"); ok {
				if _, err := os.Stat(filepath.Join(out, name)); err != nil {
					t.Errorf("the build leaves no %s", name)
				}
			}
		}
	}
	entry := append(list(t, got["ENTRYPOINT"]), list(t, got["CMD"])...)
	if !slices.Equal(entry, []string{"server", "-addr", ":9092", "-data", "/data"}) {
		t.Errorf("the container runs %q", entry)
	}
	help := exec.Command(filepath.Join(out, "server"), append(entry[1:], "-help")...)
	if b, err := help.CombinedOutput(); err != nil {
		t.Errorf("the flags are not understood: %v\n%s", err, b)
	}
}

func TestComposeFileOffersThePortTheVolumeAndTheAdvertisedAddress(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root(), "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Services map[string]struct {
			Build       string
			Ports       []string
			Environment map[string]string
			Volumes     []string
			Stop        string `yaml:"stop_grace_period"`
			Healthcheck struct {
				Test     []string
				Interval string
				Start    string `yaml:"start_period"`
			}
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	mq, ok := c.Services["mq"]
	if !ok || len(c.Services) != 1 {
		t.Fatalf("services: %v", c.Services)
	}
	if mq.Build != "." || !slices.Equal(mq.Ports, []string{"9092:9092"}) || !slices.Equal(mq.Volumes, []string{"mq-data:/data"}) {
		t.Errorf("build %q, ports %q, volumes %q", mq.Build, mq.Ports, mq.Volumes)
	}
	if _, ok := c.Volumes["mq-data"]; !ok {
		t.Errorf("volumes: %v", c.Volumes)
	}
	advertise := mq.Environment["GOPHERLOG_ADVERTISE"]
	if advertise != "${GOPHERLOG_ADVERTISE:-localhost:9092}" {
		t.Errorf("GOPHERLOG_ADVERTISE is %q", advertise)
	}
	check := mq.Healthcheck.Test
	if len(check) < 3 || check[0] != "CMD" || check[1] != "mqclient" {
		t.Fatalf("healthcheck %q", check)
	}
	_, addr := one(t, t.TempDir(), "-advertise", "localhost:9092")
	args := check[2:]
	for i, a := range args {
		if a == "localhost:9092" {
			args[i] = addr
		}
	}
	must(t, "mqclient", args...)
}

// TestDemoRunsTheLifeCycle runs the script against a server of its own, and then against one that is there already.
func TestDemoRunsTheLifeCycle(t *testing.T) {
	want := []string{"with 3 partition(s)", "partition=1 offset=1\n", "-- 4 message(s) across 3 partition(s), merged by timestamp\n", "on-disk data: OK\n"}
	demo := func(env ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(root(), "scripts", "demo.sh"))
		cmd.Env = cleanEnv(env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, w := range want {
			if !strings.Contains(string(out), w) {
				t.Errorf("no %q in\n%s", w, out)
			}
		}
	}
	demo("MQ_PORT=" + freePort(t))
	if testing.Short() {
		return
	}
	data := t.TempDir()
	_, addr := one(t, data)
	demo("MQ_ADDR="+addr, "MQ_DATA="+data)
}

// TestRecordingOfTheDemoCanBePlayed reads docs/demo.cast as a player does.
func TestRecordingOfTheDemoCanBePlayed(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root(), "docs", "demo.cast"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	var head struct{ Version, Width, Height int }
	if err := json.Unmarshal([]byte(lines[0]), &head); err != nil || head.Version != 2 || head.Width == 0 || head.Height == 0 {
		t.Fatalf("header %s: %v", lines[0], err)
	}
	var shown strings.Builder
	last := 0.0
	for i, line := range lines[1:] {
		var at float64
		var kind, text string
		if err := json.Unmarshal([]byte(line), &[]any{&at, &kind, &text}); err != nil || at < last || kind != "o" {
			t.Fatalf("line %d: %s: %v", i+2, line, err)
		}
		last = at
		shown.WriteString(text)
	}
	for _, w := range []string{"produced to ", "merged by timestamp", "on-disk data: OK"} {
		if !strings.Contains(shown.String(), w) {
			t.Errorf("the recording does not show %q", w)
		}
	}
}
