// Command compat runs foreign Kafka clients, and their own test suites, against three nodes and holds the results against lists: what
// passed once must pass for ever, and what does not pass is listed with the reason. It knows the suites, their sources at pinned
// versions and how to start GopherLog and Apache Kafka, and nothing of how either works.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	target string // gopherlog, kafka or external
	addr   string // of an external target
	bin    string // directory with our programs
	cache  string // what is fetched stays here
	out    string // logs of this run
	grow   bool   // write what passed into the lists and the document
	run    string // only these tests of Go suites
}

func main() {
	if filepath.Base(os.Args[0]) == "docker" {
		os.Exit(actAsDocker(os.Args[1:]))
	}
	var o options
	flag.StringVar(&o.target, "target", "gopherlog", "gopherlog or kafka: whose nodes are started")
	flag.StringVar(&o.addr, "addr", os.Getenv("COMPAT_ADDR"), "bootstrap `addresses` of a cluster that runs already")
	flag.StringVar(&o.bin, "bin", "bin", "`directory` with server and mqclient")
	flag.StringVar(&o.out, "out", "", "`directory` for logs; default: a new one under the system's temporary files")
	flag.StringVar(&o.run, "run", "", "only tests of Go suites that match this `pattern`; their lists are not judged")
	flag.BoolVar(&o.grow, "grow", false, "add what passed to the must-pass lists, and write the results into docs/PROTOCOL.md")
	list := flag.Bool("list", false, "list the suites")
	document := flag.Bool("document", false, "only write docs/PROTOCOL.md from the lists")
	flag.Parse()
	if *list {
		for _, s := range suites {
			fmt.Printf("%-22s %s\n", s.name, s.client)
		}
		return
	}
	if *document {
		exitOn(writeDocument(filepath.Join("docs", "PROTOCOL.md")))
		return
	}
	chosen, err := choose(flag.Args())
	exitOn(err)
	exitOn(o.prepare())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !runAll(ctx, o, chosen) {
		os.Exit(1)
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(2)
	}
}

// choose returns the suites of these names, all when there are none.
func choose(names []string) (chosen []suite, err error) {
	if len(names) == 0 {
		return suites, nil
	}
	for _, name := range names {
		at := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
		if at < 0 {
			return nil, fmt.Errorf("no suite is called %s: see -list", name)
		}
		chosen = append(chosen, suites[at])
	}
	return chosen, nil
}

func (o *options) prepare() error {
	if o.addr != "" {
		o.target = "external"
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	o.cache = filepath.Join(cache, "gopherlog", "compat")
	if o.out == "" {
		if o.out, err = os.MkdirTemp("", "compat-"); err != nil {
			return err
		}
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(o.cache, 0o755), os.MkdirAll(o.out, 0o755))
}

// runAll runs the suites one after the other, each on nodes of its own, and reports whether all did what their lists ask.
func runAll(ctx context.Context, o options, chosen []suite) bool {
	fmt.Printf("logs: %s\n%-22s %7s %7s %7s %8s  %s\n", o.out, "suite", "passed", "failed", "skipped", "seconds", "result")
	good := true
	for _, s := range chosen {
		if ctx.Err() != nil {
			return false
		}
		why := s.missing(o)
		if why == "" && o.target == "external" && s.ownNodes {
			why = "needs nodes of its own"
		}
		if why != "" {
			fmt.Printf("%-22s not run: %s\n", s.name, why)
			continue
		}
		if err := o.runOne(ctx, s); err != nil {
			good = false
		}
	}
	return good
}

var errLists = errors.New("not what the lists ask")

// runOne prints the suite's line, and below it what its lists do not expect.
func (o options) runOne(ctx context.Context, s suite) error {
	began := time.Now()
	dir := filepath.Join(o.out, s.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	results, version, err := o.results(ctx, s, dir)
	passed, failed, skipped := count(results)
	judged, _ := readLists(s.name)
	found := judged.judge(results)
	whole := o.run == "" && err == nil
	word := "ok"
	switch {
	case err != nil:
		word = "FAILED: " + err.Error()
	case o.target != "gopherlog":
		word = "baseline"
	case o.run != "":
		word = "part of it"
	case found.bad():
		word, err = "FAILED", errLists
	}
	fmt.Printf("%-22s %7d %7d %7d %8.0f  %s (%s)\n", s.name, passed, failed, skipped, time.Since(began).Seconds(), word, version)
	if o.run == "" {
		found.print(os.Stdout)
	}
	if !whole || !o.grow || o.target == "external" {
		return err
	}
	row := row{suite: s.name, target: o.target, version: version, passed: passed, failed: failed, skipped: skipped}
	if werr := o.record(judged, row, results); werr != nil {
		fmt.Println("   ", werr)
	}
	return err
}

// record keeps what a run has shown: names that passed, the counts, and the document made of them.
func (o options) record(judged lists, r row, results []result) error {
	if o.target == "gopherlog" {
		if err := judged.grow(results); err != nil {
			return err
		}
	}
	if err := writeRow(r); err != nil {
		return err
	}
	return writeDocument(filepath.Join("docs", "PROTOCOL.md"))
}

// results starts the nodes, runs the suite against them and stops them.
func (o options) results(ctx context.Context, s suite, dir string) ([]result, string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	e := &env{options: o, suite: s.name, dir: dir, addr: o.addr, checks: s.checks, vars: s.vars}
	if err := s.fetch(ctx, e); err != nil {
		return nil, "", fmt.Errorf("fetch: %w", err)
	}
	if o.target != "external" {
		c, err := startCluster(ctx, o, dir, s)
		if err != nil {
			return nil, "", err
		}
		defer c.stop()
		e.cluster, e.addr = c, strings.Join(c.clients, ",")
	}
	results, err := s.run(ctx, e)
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(a.name, b.name) })
	var log strings.Builder
	for _, r := range results {
		fmt.Fprintf(&log, "%s\t%s\t%s\n", r.outcome, r.name, r.why)
	}
	return results, s.version(e), errors.Join(err, os.WriteFile(filepath.Join(dir, "results.tsv"), []byte(log.String()), 0o644))
}
