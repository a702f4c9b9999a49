// Command scale holds three real nodes with very many partitions against their budgets: creation, idling, failover, restart.
//
// It knows the budgets, how to ask nodes over Kafka's wire protocol and their HTTP port, and what the kernel says about a process. It
// refuses to know how a node works inside, and judges no message: that is mqbench's work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// longest bounds a run, whatever hangs.
const longest = 40 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, longest)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	server, base string
	partitions   int
	topics       int
	settle, idle time.Duration
	fill         size
	only         string
	profile      string
	short        bool
}

// size is a number of bytes as 20GiB, 512MiB or a whole number.
type size int64

func (s *size) String() string {
	for _, u := range units {
		if n := int64(*s); n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

// Set implements flag.Value.
func (s *size) Set(text string) error {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.bytes {
			return fmt.Errorf("%q is no size: give 20GiB or 512MiB", text)
		}
		*s = size(n * u.bytes)
		return nil
	}
	return nil
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.StringVar(&o.server, "server", "", "the server command")
	flags.StringVar(&o.base, "dir", os.TempDir(), "directory for the nodes' data")
	flags.IntVar(&o.partitions, "partitions", 1000, "partitions, of replication factor 3")
	flags.IntVar(&o.topics, "topics", 10, "topics that share them")
	flags.DurationVar(&o.settle, "settle", 45*time.Second, "pause before idling is measured: nodes tidy up for half a minute")
	flags.DurationVar(&o.idle, "idle", 30*time.Second, "for how long idling is measured")
	flags.Var(&o.fill, "fill", "bytes that every node holds before one more restart, as 20GiB; three times as much on disk")
	flags.StringVar(&o.only, "rows", "", "comma-separated parts of step names (idle, failover, all); default: all. Creation always runs")
	flags.StringVar(&o.profile, "profile", "", "directory for processor profiles of node 1, one a step")
	flags.BoolVar(&o.short, "short", false, "check that every row works: no settling, figures without meaning")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.short {
		o.settle, o.idle = 0, 200*time.Millisecond
	}
	switch {
	case o.server == "":
		return o, errors.New("needs the server command: -server PATH")
	case o.partitions < 1 || o.topics < 1 || o.topics > o.partitions:
		return o, fmt.Errorf("%d partitions in %d topics: want at least one each", o.partitions, o.topics)
	}
	return o, nil
}

// run measures. A missed budget is printed and is no error; what could not be measured is.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.base, "gopherlog-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	head(out, o)
	c, err := newCluster(o, dir)
	if err != nil {
		return err
	}
	defer c.stop()
	r := &rig{options: o, cluster: c, out: out, partitions: spread(o.partitions, o.topics)}
	for _, s := range r.steps() {
		if !s.always && !asked(s.name, o.only) {
			continue
		}
		if err := r.profiled(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func asked(name, only string) bool {
	for part := range strings.SplitSeq(only, ",") {
		if strings.Contains(name, strings.TrimSpace(part)) {
			return true
		}
	}
	return false
}

func head(out io.Writer, o options) {
	load := "unknown"
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(b), " ")
	}
	fmt.Fprintf(out, "scale: %d partitions in %d topics on three nodes, replication factor 3; %d cores, %s %s/%s, load average %s\n",
		o.partitions, o.topics, runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, load)
	if o.short {
		fmt.Fprintln(out, "short: a functional check; the figures mean nothing")
	}
	fmt.Fprintf(out, "%-44s %12s %12s %-5s %s\n", "", "figure", "budget", "", "")
}
