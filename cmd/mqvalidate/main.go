// Command mqvalidate checks the bytes that a GopherLog node left on disk, reading only, and prints single files.
//
// It knows the engine's formats and nothing of clusters. It works beside a running server, where it checks the segments
// and leaves the rest alone.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"

	"gopherlog/cmd/internal/cli"
	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
)

const (
	name  = "mqvalidate"
	about = "Check a node's data directory: every batch, every index, the store, the control group's snapshots, the identity.\n\n" +
		"Exit codes: 1 something is wrong (each place is named with file, offset and byte), 2 wrong arguments, 3 a directory cannot be read."
)

type grammar struct {
	Check              checkCmd                     `cmd:"" default:"withargs" help:"Check data directories. This is what happens without a command."`
	Dump               dumpCmd                      `cmd:"" help:"Print one file of a partition's directory in readable form."`
	Version            kong.VersionFlag             `help:"Print the version and exit."`
	InstallCompletions kongplete.InstallCompletions `cmd:"" help:"Install completion for your shell."`
}

type checkCmd struct {
	Dirs   []string `arg:"" name:"dir" help:"Data directories of nodes, or directories that hold several, or one partition's directory." type:"path"`
	Output string   `short:"o" help:"Form of what is printed: ${enum}." enum:"text,json" default:"text"`
}

type dumpCmd struct {
	File string `arg:"" help:"A .log, .index, .timeindex, .txnindex, .snapshot, .ridx or .snap file, or a checkpoint." type:"path"`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit code. Damage is an answer, not a mistake: it has been printed, and the code is 1.
func run(args []string, out, errs io.Writer) int {
	var g grammar
	ctx, done, err := cli.Parse(name, about, &g, args, out, errs, kong.Vars{"version": cli.Version()})
	if err != nil || done {
		return cli.Fail(errs, name, err)
	}
	ctx.BindTo(out, (*io.Writer)(nil))
	return cli.Fail(errs, name, ctx.Run())
}

// Run prints the file.
func (c *dumpCmd) Run(out io.Writer) error {
	info, err := os.Stat(c.File)
	switch {
	case err != nil:
		return cli.Environment(fmt.Errorf("cannot read %s: %w", c.File, err))
	case info.IsDir():
		return cli.Usage(fmt.Errorf("%s is a directory: name one file in it", c.File))
	}
	if err := log.DumpFile(out, vfs.OS(), c.File); err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "log: "))
	}
	return nil
}
