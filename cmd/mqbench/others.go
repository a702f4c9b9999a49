package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"gopherlog/bench/fault"
	"gopherlog/bench/report"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/cmd/internal/cli"
)

// trialOverhead is what a trial takes beside its phases: starting three
// brokers, connecting, draining, judging and stopping.
const trialOverhead = 5 * time.Second

type planCmd struct{ scenarioFlags }

// Run prints the matrix with its cost.
func (c *planCmd) Run(s *streams) error {
	list, err := c.parse()
	if err != nil {
		return err
	}
	var total time.Duration
	for _, p := range list {
		cells := p.scenario.Expand()
		var block time.Duration
		var bytes float64
		fmt.Fprintf(s.out, "%s (%s)\n", p.scenario.Name, p.file)
		for _, cell := range cells {
			d := cell.Phases.End(scenario.PhaseRecovery) + trialOverhead + cell.Runs.Cooldown
			block += d
			size := "unbounded: closed model"
			if cell.Load.Model == "open" {
				b := float64(cell.Load.Rate) * cell.Phases.End(scenario.PhaseRecovery).Seconds() * float64(cell.Load.Value.Size.Mean()) * float64(max(cell.Target.ReplicationFactor, 1))
				bytes = max(bytes, b)
				size = fmt.Sprintf("%.1f GB on disk", b/1e9)
			}
			fmt.Fprintf(s.out, "  %-44s %5s  %s\n", cell.Label(), d.Round(time.Second), size)
		}
		all := block * time.Duration(p.scenario.Runs.Repeats)
		fmt.Fprintf(s.out, "  %d cells × %d blocks = %d trials, about %s; at most %.1f GB on disk at a time\n", len(cells), p.scenario.Runs.Repeats,
			len(cells)*p.scenario.Runs.Repeats, all.Round(time.Second), bytes/1e9)
		total += all
	}
	fmt.Fprintf(s.out, "total: about %s. At acks=all a record is on a majority before it is acknowledged; tier T1: in page caches, T2: on disks.\n", total.Round(time.Second))
	return nil
}

type validateCmd struct{ scenarioFlags }

// Run reads the files and says that they are sound.
func (c *validateCmd) Run(s *streams) error {
	list, err := c.parse()
	if err != nil {
		return err
	}
	for _, p := range list {
		fmt.Fprintf(s.out, "%s: OK, %d cells, %d blocks\n", p.file, len(p.scenario.Expand()), p.scenario.Runs.Repeats)
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

type doctorCmd struct {
	Server string `help:"The server binary to look for." type:"path"`
}

// Run checks one thing a line; what cannot work at all makes the exit code 3.
func (c *doctorCmd) Run(s *streams) error {
	bad := 0
	say := func(ok bool, fatal bool, what, advice string) {
		mark := "✓"
		if !ok {
			mark = "≈"
			if fatal {
				mark = "✗"
				bad++
			}
			what += ": " + advice
		}
		fmt.Fprintf(s.out, "%s %s\n", mark, what)
	}
	rc := runCmd{Server: c.Server}
	err := rc.findServer([]parsed{{scenario: &scenario.Scenario{Target: scenario.Target{System: "gopherlog"}}}})
	say(err == nil, true, "server binary "+rc.Server, fmt.Sprint(err))
	say(runtime.GOOS == "linux", false, "operating system "+runtime.GOOS, "only Linux gives network faults, the process table and sendfile")
	say(runtime.NumCPU() >= 2, false, fmt.Sprintf("%d cores", runtime.NumCPU()), "brokers and client will queue for one core: latency is then scheduling")
	err = fault.Probe()
	say(err == nil, false, "user and network namespace for network faults", fmt.Sprintf("%v: scenarios with a network partition will be reported as skipped", err))
	governor, _ := os.ReadFile("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	g := strings.TrimSpace(string(governor))
	say(g == "" || g == "performance", false, "frequency governor "+g, "figures vary with the clock: set it to performance")
	free, err := freeBytes(".")
	say(err == nil && free > 4<<30, false, fmt.Sprintf("%.0f GB free on disk", float64(free)/1e9), "long runs may fill the disk: see mqbench plan")
	limit, err := openFiles()
	say(err == nil && limit >= 4096, false, fmt.Sprintf("%d open files allowed", limit), "raise it with ulimit -n 65536 for many partitions")
	if bad > 0 {
		return cli.Environment(fmt.Errorf("%d checks failed", bad))
	}
	return nil
}
