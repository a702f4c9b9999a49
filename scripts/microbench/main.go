// Command microbench puts the hot paths of the broker beside bare loops that move the same bytes, and prints the ratios of one run.
//
// It knows the budgets, the bare loops and how two sides are measured in turn: the same chunk, files, durability (page cache, no sync),
// cores and machine state. It refuses to know scenarios, guarantees and faults, and judges no message: that is mqbench's work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// longest bounds a run, whatever hangs.
const longest = 12 * time.Minute

func main() {
	if runChild() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, longest)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "microbench:", err)
		os.Exit(1)
	}
}

// env is what the rows share.
type env struct {
	short   bool
	pairs   int
	dir     string // everything on disk lies here
	server  string // the server command
	profile string // directory for profiles, "" for none
}

// pick chooses between the size of a real run and that of a functional check.
func (e *env) pick(full, short int) int {
	if e.short {
		return short
	}
	return full
}

// run measures the rows that the arguments ask for. A missed budget is printed and is no error; a row that could not be measured is.
func run(ctx context.Context, args []string, out io.Writer) error {
	var e env
	var only, base string
	flags := flag.NewFlagSet("microbench", flag.ContinueOnError)
	flags.BoolVar(&e.short, "short", false, "check that every row works: tiny sizes, one pair, figures without meaning")
	flags.IntVar(&e.pairs, "pairs", 7, "alternating pairs; the ratio is the median of theirs")
	flags.StringVar(&base, "dir", os.TempDir(), "directory for all files, both sides'")
	flags.StringVar(&e.server, "server", "", "the server command (rows produce and fetch)")
	flags.StringVar(&e.profile, "profile", "", "directory for processor and allocation profiles of GopherLog's side")
	flags.StringVar(&only, "rows", "", "comma-separated parts of row names; default: all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if e.short {
		e.pairs = 1
	}
	var err error
	if e.dir, err = os.MkdirTemp(base, "gopherlog-microbench-"); err != nil {
		return err
	}
	defer os.RemoveAll(e.dir)
	head(out, &e)
	var failed []string
	for _, r := range rows(&e) {
		if !asked(r.name, only) {
			continue
		}
		if err := measure(ctx, &e, r, out); err != nil {
			fmt.Fprintf(out, "%-34s not measured: %v\n", r.name, err)
			failed = append(failed, r.name)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not measured: %s", strings.Join(failed, ", "))
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

func head(out io.Writer, e *env) {
	load := "unknown"
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(b), " ")
	}
	fmt.Fprintf(out, "microbench: %d cores, %s %s/%s, load average %s, files in %s, no sync, %d alternating pairs\n",
		runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, load, filepath.Dir(e.dir), e.pairs)
	if e.short {
		fmt.Fprintln(out, "short: a functional check; the figures mean nothing")
	}
	fmt.Fprintf(out, "%-34s %23s %23s %8s   %-9s\n", "", "bare (cpu/op)", "gopherlog (cpu/op)", "ratio", "budget")
}

// rows lists what is measured, in the order of the table.
func rows(e *env) []row {
	return []row{
		appendRow(e),
		replicatedRow(e, "replicated 16 KiB, 8 partitions", 16<<10, 16, 0.80),
		replicatedRow(e, "replicated 1 MiB, 8 partitions", 1<<20, 4, 0.70),
		produceRow(e, "produce 1 KiB, real client", 1000),
		produceRow(e, "produce 100 B, real client", 100),
		fetchRow(e),
		commitRow(e),
		duplicateRow(e),
	}
}
