package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"gopherlog/bench/fault"
	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
	"gopherlog/bench/target"
	"gopherlog/cmd/internal/cli"
)

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
	server, err := c.Server, error(nil)
	if server == "" {
		server, err = locateServer()
	} else {
		_, err = os.Stat(server)
	}
	say(err == nil, true, "server binary "+server, fmt.Sprint(err))
	_, _, version, err := target.FindKafka()
	say(err == nil, false, strings.TrimSpace("Apache Kafka, to be measured beside "+version), fmt.Sprint(err))
	say(runtime.GOOS == "linux", false, "operating system "+runtime.GOOS, "only Linux gives network faults, the process table and sendfile")
	say(runtime.NumCPU() >= 2, false, fmt.Sprintf("%d cores", runtime.NumCPU()), "brokers and client will queue for one core: latency is then scheduling")
	err = fault.Probe()
	say(err == nil, false, "user and network namespace for network faults", fmt.Sprintf("%v: scenarios with a network partition will be reported as skipped", err))
	governor, _ := os.ReadFile("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	g := strings.TrimSpace(string(governor))
	say(g == "" || g == "performance", false, "frequency governor "+cmp.Or(g, "not told by this machine"), "figures vary with the clock: set it to performance")
	free, err := freeBytes(".")
	say(err == nil && free > 4<<30, false, fmt.Sprintf("%.0f GB free on disk", float64(free)/1e9), "long runs may fill the disk: see mqbench plan")
	limit, err := openFiles()
	say(err == nil && limit >= 4096, false, fmt.Sprintf("%d open files allowed", limit), "raise it with ulimit -n 65536 for many partitions")
	late, cores, err := calibrate()
	say(err == nil && late < time.Millisecond, false, fmt.Sprintf("load client alone, %d records a second: slot lateness p99 %s, %.2f cores", calibrationRate, late, cores),
		"it is late by itself: close other programs, or offer less")
	if bad > 0 {
		return cli.Environment(fmt.Errorf("%d checks failed", bad))
	}
	return nil
}

// calibrationRate is what the load client must be able to offer without a system.
const calibrationRate = 20_000

// calibrate offers load to a target that acknowledges at once: what is late
// there is the client's own doing.
func calibrate() (late time.Duration, cores float64, err error) {
	dir, err := os.MkdirTemp("", "mqbench-doctor")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "calibration.yaml")
	text := fmt.Sprintf("version: 1\nname: calibration\nload: {rate: %d/s}\nphases: {warmup: 500ms, steady: 2s, drain: 10s}\n", calibrationRate)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return 0, 0, err
	}
	sc, err := scenario.Parse(file, nil)
	if err != nil {
		return 0, 0, err
	}
	out, err := load.Run(context.Background(), load.NewNull(), load.PlanOf(sc.Expand()[0], 1, ""))
	if err != nil {
		return 0, 0, err
	}
	late, _ = out.Late.All().Percentile(99)
	return late, out.Client.CPU.Seconds() / out.Client.Wall.Seconds(), nil
}
