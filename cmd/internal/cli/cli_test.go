package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func TestLongFlagsTakeOneDashOrTwo(t *testing.T) {
	in := []string{"produce", "-addr", "x:1", "--topic", "t", "-key=k", "-n", "3", "-o", "json", "-1", "--", "-value"}
	want := []string{"produce", "--addr", "x:1", "--topic", "t", "--key=k", "-n", "3", "-o", "json", "-1", "--", "-value"}
	if got := DoubleDash(in); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestMistakesAreUsageErrorsWithCodeTwo(t *testing.T) {
	var g struct {
		Addr string `help:"where"`
	}
	var out, errs strings.Builder
	_, done, err := Parse("tool", "a tool", &g, []string{"-adr", "x"}, &out, &errs)
	if done || Code(err) != ExitUsage || !strings.Contains(err.Error(), "--adr") {
		t.Errorf("got done=%v, code %d, %v; want a usage error that names --adr", done, Code(err), err)
	}
	if _, done, err = Parse("tool", "a tool", &g, []string{"-help"}, &out, &errs); !done || err != nil || !strings.Contains(out.String(), "--addr") {
		t.Errorf("-help: done=%v, %v, printed %q", done, err, out.String())
	}
}

func TestVariableDoesNotTurnACommandIntoItsVersion(t *testing.T) {
	t.Setenv("GOPHERLOG_VERSION", "1")
	t.Setenv("GOPHERLOG_ADDR", "x:1")
	var g struct {
		Addr    string
		Version kong.VersionFlag
	}
	var out, errs strings.Builder
	if _, done, err := Parse("tool", "a tool", &g, nil, &out, &errs, kong.Vars{"version": "9"}); done || err != nil || g.Addr != "x:1" || out.Len() > 0 {
		t.Errorf("done=%v, %v, -addr is %q, printed %q", done, err, g.Addr, out.String())
	}
	if _, done, err := Parse("tool", "a tool", &g, []string{"-version"}, &out, &errs, kong.Vars{"version": "9"}); !done || err != nil || out.String() != "9\n" {
		t.Errorf("-version: done=%v, %v, printed %q", done, err, out.String())
	}
}

func TestCodeFollowsTheChain(t *testing.T) {
	for want, err := range map[int]error{0: nil, 1: errors.New("x"), 2: fmt.Errorf("a: %w", Usage(errors.New("b"))), 3: Environment(errors.New("c"))} {
		if got := Code(err); got != want {
			t.Errorf("Code(%v) = %d, want %d", err, got, want)
		}
	}
}
