// Command mqbench runs delivery scenarios against a broker, judges every
// message and writes a report.
//
// It knows how to enter the network namespace, show progress and turn results
// into exit codes; what happens in a run is decided in bench/suite.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"

	"gopherlog/bench/fault"
	"gopherlog/cmd/internal/cli"
)

// grammar is the command line. Each command has a Run method in a file of its own.
type grammar struct {
	Version  versionCmd  `cmd:"" help:"Print the version."`
	Run      runCmd      `cmd:"" help:"Run scenarios and write a report."`
	Price    priceCmd    `cmd:"" help:"Tell what each delivery guarantee costs on a running cluster; leave nothing there."`
	Plan     planCmd     `cmd:"" help:"Show the trials, time and disk that scenarios need; run nothing."`
	Validate validateCmd `cmd:"" help:"Check scenario files; print every mistake with its line."`
	Report   reportCmd   `cmd:"" help:"Draw the report of run directories again."`
	Doctor   doctorCmd   `cmd:"" help:"Check whether this machine can run scenarios and give sound figures."`
	Schema   schemaCmd   `cmd:"" help:"Print the scenario vocabulary as a JSON schema or as Markdown."`

	VersionFlag        kong.VersionFlag             `name:"version" help:"Print the version and exit."`
	InstallCompletions kongplete.InstallCompletions `cmd:"" help:"Install completion for your shell."`
}

const exitNote = `Exit codes: 0 pass, 1 internal error, 2 bad scenario or usage, 3 environment not usable, run not valid or a line undecided,
10 a delivery guarantee was violated, 99 a threshold was missed, 130 interrupted.`

func main() {
	fault.HandleProbe()
	spareSchedulers()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// spare is how many schedulers of goroutines there are beyond the cores: a pacer whose time has come finds one that is free, and does not
// wait behind goroutines that have been running for a while. The operating system shares the cores out.
const spare = 4

func spareSchedulers() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spare)
	}
}

func run(args []string, stdout, stderr io.Writer) int {
	var g grammar
	ctx, done, err := cli.Parse("mqbench", "Measure what a delivery guarantee costs, and prove whether it held.\n\n"+exitNote, &g, args, stdout, stderr, kong.Vars{"version": "mqbench " + cli.Version()})
	if err != nil {
		return cli.Fail(stderr, "mqbench", err)
	}
	if done {
		return 0
	}
	return cli.Fail(stderr, "mqbench", ctx.Run(&streams{stdout, stderr}))
}

// streams are where a command prints: results to out, progress to err.
type streams struct{ out, err io.Writer }

type versionCmd struct{}

func (versionCmd) Run(s *streams) error {
	_, err := fmt.Fprintln(s.out, "mqbench", cli.Version())
	return err
}
