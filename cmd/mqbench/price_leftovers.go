package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"gopherlog/bench/load"
	"gopherlog/bench/price"
	"gopherlog/cmd/internal/cli"
)

// sweepPatience is how long the removal of everything may take, also after an interrupt.
const sweepPatience = time.Minute

// mostListed is how many leftovers are named; the others are counted.
const mostListed = 20

// leftovers finds what runs left: every run's, or with a token that run's.
func (p *pricing) leftovers(run string) (load.Leftovers, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), sweepPatience)
	defer cancel()
	return p.inspector.Find(ctx, price.NamesUnder(p.plan.Prefix, run).Ours)
}

// conclude removes what is left where the run did not come so far; a graver end than what stays keeps its exit code.
func (p *pricing) conclude(err error) error {
	left := p.sweep()
	switch {
	case left == nil:
		return err
	case err == nil:
		return cli.Environment(left)
	}
	return &cli.Error{Code: cli.Code(err), Err: errors.Join(err, left)}
}

// sweep removes what this run created and its trials did not, also after an interrupt. The second call does nothing.
func (p *pricing) sweep() error {
	if p.swept {
		return nil
	}
	p.swept = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), sweepPatience)
	defer cancel()
	l, err := p.leftovers(p.plan.Run)
	if err != nil {
		return fmt.Errorf("whether anything of this run is left could not be found out: %w; `mqbench price -cleanup` tries again", err)
	}
	if !l.Removable() {
		return nil
	}
	err = p.inspector.Remove(ctx, l)
	if l, e := p.leftovers(p.plan.Run); err != nil || e != nil || l.Removable() {
		p.list("left on the cluster: ", l.List())
		first, _, _ := strings.Cut(fmt.Sprint(errors.Join(err, e)), "\n")
		return fmt.Errorf("%d things of this run could not be removed: %s; `mqbench price -cleanup` tries again", len(l.List()), first)
	}
	return nil
}

// offerLeftovers tells of what a run that was killed has left, and removes it if the user says so.
func (p *pricing) offerLeftovers() error {
	l, err := p.leftovers("")
	if err != nil {
		fmt.Fprintf(p.err, "note: leftovers of earlier runs could not be looked for: %v\n", err)
		return nil
	}
	p.tellLeftovers(l)
	if !l.Removable() {
		return nil
	}
	if !p.agreed("Remove them now?") {
		fmt.Fprintln(p.out, "They stay. `mqbench price -cleanup -yes` removes them.")
		return nil
	}
	return p.remove(l)
}

// cleanup removes leftovers, and measures nothing.
func (p *pricing) cleanup() error {
	l, err := p.leftovers("")
	if err != nil {
		return cli.Environment(err)
	}
	p.tellLeftovers(l)
	switch {
	case !l.Removable():
		fmt.Fprintf(p.out, "Nothing that an earlier run created is left under %s.\n", p.plan.Prefix)
		return nil
	case !p.agreed("Remove them?"):
		return cli.Usage(errors.New("nothing was removed: -yes agrees to it"))
	}
	return p.remove(l)
}

func (p *pricing) remove(l load.Leftovers) error {
	ctx, cancel := context.WithTimeout(p.ctx, sweepPatience)
	defer cancel()
	if err := p.inspector.Remove(ctx, l); err != nil {
		return cli.Environment(fmt.Errorf("not everything could be removed: %w", err))
	}
	fmt.Fprintf(p.out, "%d removed.\n", len(l.List()))
	return nil
}

func (p *pricing) tellLeftovers(l load.Leftovers) {
	names := price.NamesUnder(p.plan.Prefix, "")
	for _, u := range l.Unasked {
		p.list("note: ", []string{"leftovers could not be looked for everywhere: " + u})
	}
	if l.Removable() {
		fmt.Fprintf(p.out, "\nA run that did not end left these, or one goes on now:\n")
		var lines []string
		all := l.List()
		for _, x := range all[:min(mostListed, len(all))] {
			lines = append(lines, describe(names, x))
		}
		if more := len(all) - len(lines); more > 0 {
			lines = append(lines, fmt.Sprintf("and %d more", more))
		}
		p.list("  - ", lines)
	}
	if n := len(l.Idle); n > 0 {
		p.list("note: ", []string{fmt.Sprintf("%d transactional ids of earlier runs are known to the cluster; no client can remove them, it forgets them by itself (transactional.id.expiration.ms)", n)})
	}
}

// describe adds its age to a leftover, whose name is the last word.
func describe(names price.Names, line string) string {
	at := strings.LastIndex(line, " ") + 1
	return line[:at] + names.Describe(line[at:], time.Now())
}

// agreed asks on a terminal; elsewhere only -yes agrees.
func (p *pricing) agreed(question string) bool {
	if p.Yes {
		return true
	}
	f, ok := p.out.(*os.File)
	if !ok || !cli.IsTerminal(f) || !cli.IsTerminal(os.Stdin) {
		return false
	}
	fmt.Fprintf(p.out, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
