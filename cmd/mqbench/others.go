package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gopherlog/bench/report"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/cmd/internal/cli"
)

type planCmd struct{ scenarioFlags }

// Run prints the matrix with its cost.
func (c *planCmd) Run(s *streams) error {
	list, err := c.parse()
	if err != nil {
		return err
	}
	var total time.Duration
	var need, left int64
	warm := map[string]time.Duration{}
	for _, p := range list {
		fmt.Fprintf(s.out, "%s (%s)\n", p.scenario.Name, p.file)
		for _, cell := range p.scenario.Expand() {
			if why := cell.Absent(); why != "" {
				fmt.Fprintf(s.out, "  %-44s %5s  %s\n", cell.Label(), "n/a", why)
				continue
			}
			size := "unbounded: closed model"
			if bytes, ok := cell.Writes(); ok {
				size = fmt.Sprintf("%.1f GB on disk", float64(bytes)/1e9)
			}
			fmt.Fprintf(s.out, "  %-44s %5s  %s\n", cell.Label(), cell.Takes().Round(time.Second), size)
		}
		plan := p.scenario.Plan(warm)
		if plan.Warming > 0 {
			how := "once for what scenarios of one call share"
			if p.scenario.Runs.BlockCluster {
				how = "with the launch, in each block"
			}
			fmt.Fprintf(s.out, "  %-44s %5s  %s\n", "warming of the clusters", plan.Warming.Round(time.Second), how)
		}
		fmt.Fprintf(s.out, "  %s × %s = %s, about %s; at most %.1f GB on disk at a time\n", counted(plan.Cells, "cell"), counted(plan.Repeats, "block"), counted(plan.Trials, "trial"),
			plan.Total.Round(time.Second), float64(plan.BrokerBytes)/1e9)
		if plan.Shrunk {
			fmt.Fprintf(s.out, "  runs.max_time %s allows no more blocks than that; %d were asked for\n", p.scenario.Runs.MaxTime, p.scenario.Runs.Repeats)
		}
		total += plan.Total
		left += plan.HistoryBytes
		need = max(need, left+plan.HereBytes)
	}
	fmt.Fprintf(s.out, "total: about %s. At acks=all a record is on a majority before it is acknowledged; tier T1: in page caches, T2: on disks.\n", total.Round(time.Second))
	if free, err := freeBytes("."); err == nil && uint64(need) > free {
		fmt.Fprintf(s.out, "! the disk is too small: %.1f GB are free here, about %.1f GB are needed: offer less, shorten phases or lower runs.repeats\n", float64(free)/1e9, float64(need)/1e9)
	}
	return nil
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

type validateCmd struct{ scenarioFlags }

// Run reads the files and says that they are sound.
func (c *validateCmd) Run(s *streams) error {
	list, err := c.parse()
	if err != nil {
		return err
	}
	for _, p := range list {
		fmt.Fprintf(s.out, "%s: OK, %s, %s\n", p.file, counted(len(p.scenario.Expand()), "cell"), counted(p.scenario.Runs.Repeats, "block"))
	}
	return nil
}

type reportCmd struct {
	Dirs  []string `arg:"" name:"run" help:"Run directories, or one directory that holds several." type:"path"`
	Out   string   `help:"Where to write. Default: the run directory, or the directory that holds the runs." type:"path"`
	Title string   `help:"Title of the page. Default: the first scenario's question."`
}

// Run renders from files alone.
func (c *reportCmd) Run(s *streams) error {
	dirs, out := c.Dirs, c.Out
	if len(dirs) == 1 {
		if _, err := os.Stat(filepath.Join(dirs[0], result.ManifestFile)); err != nil {
			inner, _ := filepath.Glob(filepath.Join(dirs[0], "*", result.ManifestFile))
			if len(inner) > 0 {
				if out == "" {
					out = dirs[0]
				}
				dirs = nil
				for _, m := range inner {
					dirs = append(dirs, filepath.Dir(m))
				}
			}
		}
	}
	if out == "" {
		out = dirs[0]
	}
	if err := report.Render(dirs, out, c.Title); err != nil {
		return cli.Usage(err)
	}
	fmt.Fprintf(s.out, "report: %s\n", filepath.Join(out, result.ReportFile))
	return nil
}

type schemaCmd struct {
	Format string `help:"json or markdown." enum:"json,markdown" default:"json"`
}

// Run prints what editors and readers need.
func (c *schemaCmd) Run(s *streams) error {
	if c.Format == "markdown" {
		_, err := s.out.Write(scenario.Docs())
		return err
	}
	_, err := s.out.Write(scenario.Schema())
	return err
}
