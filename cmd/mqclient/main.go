// Command mqclient produces and consumes records, and looks after topics, groups, transactions and the cluster, from the shell.
//
// It speaks Kafka's protocol through franz-go and knows nothing of GopherLog's insides: it works with any Kafka.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"

	"gopherlog/cmd/internal/cli"
)

const (
	name  = "mqclient"
	about = "Produce, consume, and look after topics, groups, transactions and the cluster.\n\nExit codes: 1 the cluster refused, 2 wrong flags, 3 the cluster cannot be reached."
)

// grammar is the command line. Flags of the whole program may stand anywhere.
type grammar struct {
	Addr    []string      `help:"Addresses of some nodes, with commas between them. Default: ${default}." default:"localhost:9092" placeholder:"HOST:PORT"`
	Timeout time.Duration `help:"How long to try before giving up." default:"15s"`
	Output  string        `short:"o" help:"Form of what is printed: ${enum}." enum:"text,json" default:"text"`
	Config  string        `help:"YAML file whose keys are flag names." placeholder:"FILE"`

	Produce            produceCmd                   `cmd:"" help:"Write records to a topic: one from -value or -file, or one per line of standard input."`
	Consume            consumeCmd                   `cmd:"" help:"Read records of a topic up to its present end, or on with -follow."`
	Topic              topicCmds                    `cmd:"" help:"Create, list, describe and delete topics."`
	Group              groupCmds                    `cmd:"" help:"List, describe, reset and delete consumer groups."`
	Txn                txnCmds                      `cmd:"" help:"List and describe transactional ids; find and abort transactions that hang."`
	Cluster            clusterCmds                  `cmd:"" help:"Look at the cluster, and decide after a power loss."`
	Version            kong.VersionFlag             `help:"Print the version and exit."`
	InstallCompletions kongplete.InstallCompletions `cmd:"" help:"Install completion for your shell."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	return cli.Fail(errs, name, parseAndRun(ctx, args, in, out, errs))
}

func parseAndRun(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) error {
	var g grammar
	file, err := cli.File(args)
	if err != nil {
		return err
	}
	k, done, err := cli.Parse(name, about, &g, args, out, errs, file, kong.Vars{"version": cli.Version()})
	if err != nil || done {
		return err
	}
	if g.Timeout <= 0 {
		return cli.Usage(fmt.Errorf("-timeout is %s: give a time to try, as in 15s", g.Timeout))
	}
	addr, err := addresses(g.Addr)
	if err != nil {
		return err
	}
	s := &session{ctx: ctx, addr: addr, timeout: g.Timeout, json: g.Output == "json", in: in, out: out, errs: errs}
	k.Bind(s)
	return k.Run()
}
