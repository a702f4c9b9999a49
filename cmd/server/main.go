// Command server runs GopherLog: one node, or three on this machine for trying things out.
//
// It reads flags, GOPHERLOG_* variables and a YAML file, builds the rooms of a node in order and takes them down in
// reverse; it knows nothing of what the rooms do.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"

	"gopherlog/cmd/internal/cli"
)

const (
	name  = "server"
	about = "GopherLog broker: one node. Without -peers it is a whole cluster by itself.\n\n" +
		"Flags win over GOPHERLOG_* variables, which win over the file named by -config. " +
		"SIGTERM or Ctrl-C stops in an orderly way, a second signal at once. Exit codes: 2 wrong flags or configuration, 3 the machine does not allow it."
)

// grammar is the command line.
type grammar struct {
	Run                nodeFlags                    `cmd:"" default:"withargs" help:"Run one node. This is what happens without a command."`
	Dev                devFlags                     `cmd:"" help:"Run a cluster of three nodes on this machine, until Ctrl-C."`
	Version            kong.VersionFlag             `help:"Print the version and exit."`
	InstallCompletions kongplete.InstallCompletions `cmd:"" help:"Install completion for your shell."`
}

// streams are where commands write.
type streams struct{ out, err io.Writer }

func main() {
	signals := watchSignals()
	os.Exit(run(os.Args[1:], streams{os.Stdout, os.Stderr}, signals.ctx))
}

func run(args []string, s streams, stop context.Context) int {
	if len(args) == 1 && slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		return cli.Fail(s.err, name, help(s))
	}
	return cli.Fail(s.err, name, parseAndRun(args, s, stop))
}

// help prints the commands and then the flags of the command that needs no name.
func help(s streams) error {
	for _, args := range [][]string{{"--help"}, {"run", "--help"}} {
		if _, _, err := cli.Parse(name, about, &grammar{}, args, s.out, s.err, kong.Vars{"version": cli.Version()}); err != nil {
			return err
		}
		fmt.Fprintln(s.out)
	}
	return nil
}

func parseAndRun(args []string, s streams, stop context.Context) error {
	var g grammar
	file, err := cli.File(args)
	if err != nil {
		return err
	}
	ctx, done, err := cli.Parse(name, about, &g, args, s.out, s.err, file, kong.Vars{"version": cli.Version()})
	if err != nil || done {
		return err
	}
	if err := cli.CheckEnv(ctx, os.Environ()); err != nil {
		return err
	}
	ctx.Bind(s)
	ctx.BindTo(stop, (*context.Context)(nil))
	return ctx.Run()
}
