package target

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc, fixed at 100 Hz for user space
// on every Linux architecture.
const clockTick = 10 * time.Millisecond

// ProcSample is one reading of a process's entry in the process table.
type ProcSample struct {
	CPU        time.Duration // user and system time since the process started
	RSS        int64         // bytes
	WriteBytes int64         // bytes that the process caused to be written to storage
	Threads    int
	State      byte // as in the process table: R running, S sleeping, T stopped, Z zombie
}

// ReadProc reads the process table (Linux). On other systems, and for a process
// that is gone, it returns an error.
func ReadProc(pid int) (ProcSample, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ProcSample{}, err
	}
	s, err := parseStat(string(b))
	if err != nil {
		return s, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	if io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid)); err == nil {
		for line := range strings.Lines(string(io)) {
			if v, ok := strings.CutPrefix(line, "write_bytes: "); ok {
				s.WriteBytes, _ = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			}
		}
	}
	return s, nil
}

// parseStat reads fields 14, 15 (utime, stime), 20 (threads) and 24 (rss).
// The command name in field 2 may hold blanks, so fields count from its end.
func parseStat(s string) (ProcSample, error) {
	i := strings.LastIndexByte(s, ')')
	if i < 0 {
		return ProcSample{}, fmt.Errorf("no command name in %q", s)
	}
	f := strings.Fields(s[i+1:])
	if len(f) < 22 {
		return ProcSample{}, fmt.Errorf("only %d fields", len(f)+2)
	}
	num := func(field int) int64 { v, _ := strconv.ParseInt(f[field-3], 10, 64); return v }
	return ProcSample{
		State:   f[0][0],
		CPU:     time.Duration(num(14)+num(15)) * clockTick,
		Threads: int(num(20)),
		RSS:     num(24) * int64(os.Getpagesize()),
	}, nil
}

// MachineSample is one reading of what became of the time of all processors since the machine started.
type MachineSample struct {
	Total  time.Duration // of all processors together
	Stolen time.Duration // of it: a processor had work, and the host of this virtual machine ran somebody else's
}

// ReadMachine reads what the kernel counts (Linux). On other systems it returns an error.
func ReadMachine() (MachineSample, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return MachineSample{}, err
	}
	s, err := parseMachine(string(b))
	if err != nil {
		return s, fmt.Errorf("/proc/stat: %w", err)
	}
	return s, nil
}

// parseMachine reads the first line: user, nice, system, idle, iowait, irq, softirq, steal. What follows, time of guests, is in the first two already.
func parseMachine(s string) (MachineSample, error) {
	const fields, steal = 8, 7
	line, _, _ := strings.Cut(s, "\n")
	f := strings.Fields(line)
	if len(f) < 1+fields || f[0] != "cpu" {
		return MachineSample{}, fmt.Errorf("no times of all processors in %q", line)
	}
	var out MachineSample
	for i, word := range f[1 : 1+fields] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return MachineSample{}, err
		}
		out.Total += time.Duration(n) * clockTick
		if i == steal {
			out.Stolen = time.Duration(n) * clockTick
		}
	}
	return out, nil
}

// StolenSince is the share of the processors' time since an earlier reading that the host took: 0 to 1.
func (s MachineSample) StolenSince(earlier MachineSample) float64 {
	total, stolen := s.Total-earlier.Total, s.Stolen-earlier.Stolen
	if total <= 0 || stolen <= 0 { // the kernel's counters may step back by a tick
		return 0
	}
	return min(stolen.Seconds()/total.Seconds(), 1)
}

// Scrape reads a Prometheus text page into name{labels} → value, without
// histogram buckets and what is no number: a sample of a run, not a monitoring system.
func Scrape(ctx context.Context, admin string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return parseMetrics(io.LimitReader(res.Body, 16<<20))
}

func parseMetrics(r io.Reader) (map[string]float64, error) {
	out := map[string]float64{}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), 1<<20)
	for sc.Scan() {
		line := sc.Text()
		if line == "" || line[0] == '#' || strings.Contains(line, "_bucket{") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			continue
		}
		if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
			out[line[:i]] = v
		}
	}
	return out, sc.Err()
}

// Sample is one reading of every node, taken once a second.
type Sample struct {
	At      time.Time
	Node    int
	Proc    ProcSample
	Metrics map[string]float64 // nil when the node did not answer
}

// Watch reads all nodes every interval and hands each reading to fn from one
// goroutine, until ctx ends. A node that is down or paused yields no sample.
func Watch(ctx context.Context, t Target, interval time.Duration, fn func(Sample)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		for _, n := range t.Nodes() {
			if n.State != Running || n.PID == 0 {
				continue
			}
			s := Sample{At: time.Now(), Node: n.ID}
			var err error
			if s.Proc, err = ReadProc(n.PID); err != nil {
				continue
			}
			if n.Admin != "" {
				s.Metrics, _ = Scrape(ctx, n.Admin)
			}
			fn(s)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
