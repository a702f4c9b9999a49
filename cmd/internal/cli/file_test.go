package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type fileGrammar struct {
	Addr   string            `help:"where" default:"default:1"`
	Nodes  int               `help:"how many"`
	List   []string          `help:"several"`
	Set    map[string]string `help:"pairs"`
	Config string            `help:"file"`
}

// parse reads a configuration file with this content, variables and arguments.
func parse(t *testing.T, content string, args ...string) (fileGrammar, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gopherlog.yaml")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	args = append(args, "-config", path)
	var g fileGrammar
	opt, err := File(args)
	if err != nil {
		return g, err
	}
	var out, errs strings.Builder
	_, _, err = Parse("tool", "a tool", &g, args, &out, &errs, opt)
	return g, err
}

func TestFileFillsWhatFlagsAndVariablesLeaveOpen(t *testing.T) {
	content := "addr: file:1\nnodes: 3\nlist: [a, b]\nset:\n  flush.messages: 1\n  min.insync.replicas: 2\n"
	g, err := parse(t, content)
	if err != nil || g.Addr != "file:1" || g.Nodes != 3 || len(g.List) != 2 || g.Set["flush.messages"] != "1" || g.Set["min.insync.replicas"] != "2" {
		t.Fatalf("%+v, %v", g, err)
	}
	t.Setenv("GOPHERLOG_ADDR", "env:1")
	if g, err = parse(t, content); err != nil || g.Addr != "env:1" || g.Nodes != 3 {
		t.Fatalf("a variable must win over the file: %+v, %v", g, err)
	}
	if g, err = parse(t, content, "-addr", "flag:1"); err != nil || g.Addr != "flag:1" {
		t.Fatalf("a flag must win over both: %+v, %v", g, err)
	}
	if g, err = parse(t, ""); err != nil || g.Addr != "env:1" {
		t.Fatalf("an empty file: %+v, %v", g, err)
	}
}

func TestFileMistakesNameTheLineAndAreUsageErrors(t *testing.T) {
	for content, words := range map[string][]string{
		"addr: x\nadr: y\n":          {"gopherlog.yaml:2", `"adr"`, `did you mean "addr"`},
		"nothing_like_it: 1\n":       {"gopherlog.yaml:1", "known are: addr, list, nodes, set"},
		"addr: x\naddr: y\n":         {"gopherlog.yaml:2", "line 1"},
		"addr: [a: {b: c}]\n":        {"addr"},
		"nodes: many\n":              {"nodes", "many"},
		"config: other.yaml\n":       {`"config"`},
		"addr: {":                    {"not YAML"},
		"just text":                  {"gopherlog.yaml:1"},
		"set:\n  a: [1, 2]\n":        {"gopherlog.yaml:2", "a"},
		"adr: 1\nnodse: 2\naddr: x:": {},
	} {
		_, err := parse(t, content)
		if Code(err) != ExitUsage {
			t.Errorf("%q: code %d, %v", content, Code(err), err)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %q does not say %q", content, err, w)
			}
		}
	}
}

func TestSeveralUnknownKeysAreReportedAtOnce(t *testing.T) {
	_, err := parse(t, "adr: 1\nnodse: 2\n")
	if err == nil || !strings.Contains(err.Error(), `"addr"`) || !strings.Contains(err.Error(), `"nodes"`) {
		t.Fatalf("got %v", err)
	}
}

func TestMisspeltVariableIsRefused(t *testing.T) {
	var g fileGrammar
	var out, errs strings.Builder
	ctx, _, err := Parse("tool", "a tool", &g, nil, &out, &errs)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckEnv(ctx, []string{"GOPHERLOG_ADDR=x", "GOPHERLOG_CONFIG=y", "HOME=z", "GOPHERLOG_OTHER=1"}, "GOPHERLOG_OTHER"); err != nil {
		t.Error(err)
	}
	err = CheckEnv(ctx, []string{"GOPHERLOG_ADRD=x"})
	if Code(err) != ExitUsage || !strings.Contains(err.Error(), `"GOPHERLOG_ADDR"`) {
		t.Errorf("got %v", err)
	}
}

func TestDistanceCountsEdits(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"addr", "adr", 1}, {"addr", "adrd", 2}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestSettingGivenAsAFileIsToldWhereItBelongs(t *testing.T) {
	for path, want := range map[string]string{"min.insync.replicas=2": "given with --set", "nowhere.yaml": "check --config"} {
		if _, err := File([]string{"-config", path}); Code(err) != ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("-config %s: %v, want %q", path, err, want)
		}
	}
}
