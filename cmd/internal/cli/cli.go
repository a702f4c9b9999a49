// Package cli parses the command lines of all commands in one way: long flags
// with one dash or two, GOPHERLOG_* variables, completion, and errors that are
// one sentence with exit code 2.
//
// It knows no command's flags and does none of their work.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"
	"golang.org/x/term"
)

// Exit codes that all commands share.
const (
	ExitInternal    = 1
	ExitUsage       = 2
	ExitEnvironment = 3
)

// Error is an error with the exit code that it deserves.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Usage marks an error as the user's: exit code 2.
func Usage(err error) error { return &Error{ExitUsage, err} }

// Environment marks an error as the machine's: exit code 3.
func Environment(err error) error { return &Error{ExitEnvironment, err} }

// Code is the exit code for an error: 0 for nil, the code of an Error in its
// chain, else 1.
func Code(err error) int {
	var e *Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}
	return ExitInternal
}

// Parse reads args into grammar, a pointer to a struct with kong tags. When the
// command line only asked for help, a version or completion, that has been
// printed and done is true. A mistake comes back as a usage error.
func Parse(name, description string, grammar any, args []string, stdout, stderr io.Writer, opts ...kong.Option) (ctx *kong.Context, done bool, err error) {
	exited := false
	all := append([]kong.Option{
		kong.Name(name), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Exit(func(int) { exited = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.DefaultEnvars("GOPHERLOG"),
		kong.PostBuild(quietVersion),
	}, opts...)
	k, err := kong.New(grammar, all...)
	if err != nil {
		return nil, false, fmt.Errorf("the command's grammar is broken: %w", err)
	}
	kongplete.Complete(k)
	ctx, err = k.Parse(DoubleDash(args))
	if exited {
		return ctx, true, nil
	}
	if err != nil {
		return nil, false, Usage(fmt.Errorf("%w (%s --help lists what there is)", err, commandOf(name, err)))
	}
	return ctx, false, nil
}

// quietVersion takes the variable from -version: GOPHERLOG_VERSION in the environment of an image would turn every command into one that
// prints its version and succeeds.
func quietVersion(k *kong.Kong) error {
	for _, f := range k.Model.Flags {
		if f.Name == "version" {
			f.Envs, f.Tag.Envs = nil, nil
		}
	}
	return nil
}

// commandOf is the command in which a mistake was made, as far as it was understood.
func commandOf(name string, err error) string {
	var e *kong.ParseError
	if errors.As(err, &e) && e.Context != nil {
		if node := e.Context.Selected(); node != nil && node.Type == kong.CommandNode {
			return node.FullPath()
		}
	}
	return name
}

// DoubleDash rewrites -long and -long=x to --long and --long=x, up to a bare
// "--". Single letters and negative numbers stay as they are.
func DoubleDash(args []string) []string {
	out := append([]string(nil), args...)
	for i, a := range out {
		if a == "--" {
			break
		}
		if len(a) > 2 && a[0] == '-' && a[1] != '-' && a[2] != '=' && isLetter(a[1]) {
			out[i] = "-" + a
		}
	}
	return out
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// Fail prints the one sentence of an error and returns its exit code.
func Fail(stderr io.Writer, name string, err error) int {
	if err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", name, strings.TrimSpace(err.Error()))
	}
	return Code(err)
}

// Version is the module version and commit that the binary was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	if c := Commit(); c != "" && !strings.Contains(v, c[:min(12, len(c))]) {
		v += " " + c
	}
	return v + " " + info.GoVersion
}

// Commit is the revision that the binary was built from, with "+changes" when
// the tree differed from it; "" when unknown.
func Commit() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	var rev, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(10, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	if rev == "" {
		return ""
	}
	return rev + dirty
}

// IsTerminal says whether f is a character device that can show progress.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
