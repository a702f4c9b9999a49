package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// maxCells bounds the matrix that a scenario may expand into.
const maxCells = 1000

// Parse reads a scenario file, the files it extends, and the -set overrides (key=value), and reports every problem at once as Problems.
func Parse(path string, sets []string) (*Scenario, error) {
	var problems Problems
	root := readTree(path, &problems, 0)
	if root == nil {
		return nil, problems.sorted()
	}
	for _, set := range sets {
		applySet(root, set, &problems)
	}
	d := newDecoder(&problems)
	first := d.cell(root, 0, nil)
	cells := []Cell{first}
	if total := d.total(); total > maxCells {
		problems.add(root.place, "", fmt.Sprintf("the sweeps make %d cells, more than %d", total, maxCells), "")
	} else {
		cells = d.cells(root, total)
	}
	if len(problems) > 0 {
		return nil, problems.sorted()
	}
	s := cells[0].Scenario
	s.Faults = s.faults
	s.cells = cells
	for _, w := range d.sweeps {
		s.swept = append(s.swept, Sweep{Key: w.path, Values: w.written()})
	}
	return &s, nil
}

// A Sweep is a key that was given as a list, and its values as written.
type Sweep struct {
	Key    string
	Values []string
}

// Expand lists the combinations of the sweeps, in file order, last sweep fastest. A key that says nothing to a guarantee (the size of
// transactions to one without) makes no further cells of it and is no axis of its cell. A scenario without sweeps has one cell.
// The cells share no maps or slices that their users may change.
func (s *Scenario) Expand() []Cell { return slices.Clone(s.cells) }

// Sweeps lists the swept keys in the order of the vocabulary.
func (s *Scenario) Sweeps() []Sweep { return slices.Clone(s.swept) }

// Label is a short name of the cell: the values of its axes, or the scenario's name where nothing is swept.
func (c Cell) Label() string {
	if len(c.Axes) == 0 {
		return c.Name
	}
	parts := make([]string, len(c.Axes))
	for i, a := range c.Axes {
		parts[i] = a.Value
	}
	return strings.Join(parts, " · ")
}

func (w *sweep) written() []string {
	out := make([]string, len(w.list.items))
	for i, item := range w.list.items {
		out[i] = item.values
	}
	return out
}

func (d *decoder) total() int {
	total := 1
	for _, w := range d.sweeps {
		if total *= max(1, len(w.list.items)); total > maxCells {
			return total
		}
	}
	return total
}

// cells decodes every combination.
func (d *decoder) cells(root *node, total int) []Cell {
	out := make([]Cell, 0, total)
	for i := range total {
		rest := i
		for j := len(d.sweeps) - 1; j >= 0; j-- {
			w := d.sweeps[j]
			w.at = rest % max(1, len(w.list.items))
			rest /= max(1, len(w.list.items))
		}
		c := d.cell(root, len(out), d.sweeps) // a repeated cell is read too: its values must be sound
		if !d.repeats(c.Guarantee) {
			out = append(out, c)
		}
	}
	return out
}

// repeats says whether the current combination differs from one before it only in keys that say nothing to the guarantee.
func (d *decoder) repeats(g Guarantee) bool {
	return slices.ContainsFunc(d.sweeps, func(w *sweep) bool { return w.at > 0 && mute(w.path, g) })
}

// mute says whether a key says nothing to a guarantee.
func mute(key string, g Guarantee) bool {
	switch {
	case strings.HasPrefix(key, "producers.transaction."):
		return !g.Transacts()
	case strings.HasPrefix(key, "target.settings.transaction.voted."):
		return g != TwoPhaseCommit
	}
	return false
}

// cell decodes the current combination and checks that it can be run.
func (d *decoder) cell(root *node, index int, sweeps []*sweep) Cell {
	s := d.scenario(root)
	s.resolve()
	for _, w := range d.sweeps {
		d.given[w.path] = true
	}
	d.validate(&s)
	s.faults = s.Faults
	s.Faults = occurring(s.Faults, s.Guarantee)
	c := Cell{Scenario: s, Index: index}
	for _, w := range sweeps {
		if mute(w.path, s.Guarantee) {
			continue
		}
		c.Axes = append(c.Axes, Axis{Key: w.path, Value: w.list.items[w.at].values})
	}
	return c
}

// resolve fills in the defaults that depend on other values.
func (s *Scenario) resolve() {
	if len(s.Topics) == 0 {
		s.Topics = []Topic{{Name: "load", Partitions: 6}}
	}
	t := &s.Target
	if t.ReplicationFactor == 0 && t.System != "external" {
		t.ReplicationFactor = min(3, t.Nodes)
	}
	if t.MinInsyncReplicas == 0 && t.ReplicationFactor > 0 {
		t.MinInsyncReplicas = t.ReplicationFactor/2 + 1
	}
	if s.Load.Partitioner == "" {
		s.Load.Partitioner = "sticky"
		if s.Load.Keys.Dist != "none" {
			s.Load.Partitioner = "fnv1a"
		}
	}
	if len(s.Report.Formats) == 0 {
		s.Report.Formats = []string{"html", "json", "hlog", "md", "gobench", "junit"}
	}
}

// occurring are the faults of a guarantee, each as often as it comes.
func occurring(faults []Fault, g Guarantee) (out []Fault) {
	for _, f := range faults {
		if f.Only != "" && f.Only != g {
			continue
		}
		n, every := f.Times, f.Every
		f.Times, f.Every = 1, 0
		for range max(1, n) {
			out = append(out, f)
			f.At.Offset += every
		}
	}
	return out
}
