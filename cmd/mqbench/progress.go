package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
	"gopherlog/bench/load"
	"gopherlog/bench/price"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/suite"
	"gopherlog/cmd/internal/cli"
)

// plainEvery is how often a glance is printed where there is no terminal.
const plainEvery = 10 * time.Second

// progress prints what the suite does: one line that is overwritten on a
// terminal, plain lines elsewhere.
type progress struct {
	w    io.Writer
	live bool
	cols func() int // of the terminal; it may be resized

	mu    sync.Mutex
	head  string
	last  time.Time
	width int // of the live line, to clear it
	spark []time.Duration
}

func newProgress(w io.Writer, mode string) suite.Progress {
	if mode == "none" {
		return nil
	}
	f, ok := w.(*os.File)
	live := mode == "auto" && ok && cli.IsTerminal(f) && cli.IsTerminal(os.Stdin) && os.Getenv("CI") == "" && os.Getenv("TERM") != "dumb"
	return &progress{w: w, live: live, cols: func() int { return columnsOf(f) }}
}

func (p *progress) TrialStarts(n, total int, c scenario.Cell, block int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.head = fmt.Sprintf("%d/%d %s %s", n, total, c.Name, c.Label())
	p.spark, p.last = nil, time.Now()
	if !p.live {
		fmt.Fprintf(p.w, "trial %s (block %d)\n", p.head, block+1)
	}
}

func (p *progress) TrialGlance(g load.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.P99 > 0 {
		p.spark = append(p.spark, g.P99)
		p.spark = p.spark[max(0, len(p.spark)-16):]
	}
	line := fmt.Sprintf("%s · %s %.0fs · %.0f acked/s", p.head, g.Phase, g.At.Seconds(), g.Acked)
	if g.P50 > 0 {
		line += " · p50 " + g.P50.Round(10*time.Microsecond).String()
	}
	if g.P99 > 0 { // a second with few records has none
		line += " p99 " + g.P99.Round(10*time.Microsecond).String()
	}
	if g.Failed+g.Shed > 0 {
		line += fmt.Sprintf(" · %d failed %d shed", g.Failed, g.Shed)
	}
	if p.live {
		p.overwrite(line + " " + bars(p.spark))
	} else if time.Since(p.last) >= plainEvery {
		p.last = time.Now()
		fmt.Fprintln(p.w, "  "+line)
	}
}

// bars draws a line of eight heights, the highest being the largest value.
func bars(v []time.Duration) string {
	var top time.Duration
	for _, x := range v {
		top = max(top, x)
	}
	var b strings.Builder
	for _, x := range v {
		b.WriteRune([]rune("▁▂▃▄▅▆▇█")[int(7*x/max(top, 1))])
	}
	return b.String()
}

func (p *progress) overwrite(line string) {
	fits := []rune(line)
	fits = fits[:min(len(fits), max(p.cols()-1, 0))] // a longer one would go on in the next row, and \r leads to the last row's begin
	fmt.Fprintf(p.w, "\r%s%s", string(fits), strings.Repeat(" ", max(0, p.width-len(fits))))
	p.width = len(fits)
}

// print writes a lasting line above the live one, on a terminal as several where it is long.
func (p *progress) print(line string) {
	if !p.live {
		fmt.Fprintln(p.w, line)
		return
	}
	p.overwrite("")
	fmt.Fprint(p.w, "\r")
	p.width = 0
	text := strings.TrimLeft(line, " ")
	mark := line[:len(line)-len(text)]
	for n, part := range price.Wrap(mark, text, p.cols()-2) {
		if n > 0 {
			part = "  " + part
		}
		fmt.Fprintln(p.w, part)
	}
}

func (p *progress) TrialFault(e fault.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := strings.TrimSpace(e.Kind + " " + e.Shape)
	switch {
	case e.Skipped:
		p.print(fmt.Sprintf("  fault %s: %s", name, e.Error))
	case e.Error != "":
		p.print(fmt.Sprintf("  fault %s on %s failed: %s", name, e.Target, e.Error))
	case e.Healed.IsZero():
		p.print(fmt.Sprintf("  fault %s on %s: %s", name, e.Target, e.Proof))
	default:
		p.print(fmt.Sprintf("  healed %s after %s", name, e.Healed.Sub(e.Injected).Round(time.Millisecond)))
	}
}

func (p *progress) TrialEnds(t result.Trial, took, remaining time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mark := map[check.Status]string{check.Pass: "✓", check.Violated: "✗", check.Inconclusive: "?"}[t.Check.Status]
	line := fmt.Sprintf("%s %s · %d acked, %d lost, %d duplicate · %s", mark, p.head, t.Check.Totals.Acked, t.Check.Totals.Lost, t.Check.Totals.Duplicates, took.Round(time.Second))
	if len(t.Invalid) > 0 {
		line += " · set aside: " + strings.Join(t.Invalid, "; ")
	}
	if len(t.Check.Reasons) > 0 {
		line += " · " + strings.Join(t.Check.Reasons, "; ")
	}
	if remaining > 0 {
		line += fmt.Sprintf(" · about %s left", remaining.Round(time.Second))
	}
	p.print(line)
}

func (p *progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print("note: " + text)
}

// printSummary closes a run with its verdict and thresholds.
func printSummary(w io.Writer, r *result.Run) {
	verdict := map[check.Status]string{check.Pass: "✓ delivery held", check.Violated: "✗ delivery did NOT hold", check.Inconclusive: "? could not be judged"}[r.Results.Verdict]
	trials := "1 trial"
	if n := len(r.Results.Trials); n != 1 {
		trials = fmt.Sprintf("%d trials", n)
	}
	fmt.Fprintf(w, "\n%s: %s (%s, %d set aside, seed %d)\n", r.Manifest.Scenario.Name, verdict,
		trials, len(r.Results.Trials)-len(r.Results.Valid()), r.Manifest.Scenario.Seed)
	for _, t := range r.Results.Trials {
		if t.Counts.Failed+t.Counts.Unknown > 0 {
			for _, e := range t.Errors[:min(3, len(t.Errors))] {
				fmt.Fprintf(w, "  %s: %d × %s\n", t.ID, e.Count, e.What)
			}
		}
		for _, x := range t.Check.Rules {
			if x.Status == check.Violated && !x.Tolerated {
				fmt.Fprintf(w, "  ✗ %s %s %s: %d of %d %s\n", t.ID, x.ID, x.Name, x.Count, x.Denominator, x.Of)
				for _, e := range x.Examples[:min(3, len(x.Examples))] {
					fmt.Fprintf(w, "      %s\n", e)
				}
			}
		}
	}
	for _, e := range r.Results.Expectations {
		mark := map[string]string{"met": "✓", "missed": "✗", "undecided": "?"}[e.Outcome]
		fmt.Fprintf(w, "  %s %s: %s\n", mark, e.Line, e.Got)
	}
}
