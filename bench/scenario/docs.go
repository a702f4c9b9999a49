package scenario

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

//go:generate go test . -run TestDocs -update

const docsHead = `<!-- Written by the scenario reader from its own vocabulary: go test ./bench/scenario -run Docs -update -->
# Scenarios

A scenario is a YAML file that asks a question of a broker: which guarantee, how much load, what breaks, what must hold. ` + "`mqbench validate FILE`" + `
lists every mistake at once; ` + "`mqbench plan FILE`" + ` tells time and size; ` + "`mqbench run FILE`" + ` runs it.

- **Strict.** Unknown keys, missing units and combinations that cannot be run are refused, with line, column and a suggestion. What hangs on a value that could not
  be read is checked once it can be. Keys marked *later* are known and not supported yet.
- **Units.** Durations: 250ms, 10s, 2m. Sizes: 512B, 64KiB, 1MiB. Rates: 5k/s. Counts may be written 100k or 2M.
- **Sweeps.** Any single value may be given as a list; the scenario then expands into a matrix of cells, one for each combination. A key that says nothing to a guarantee (the size of transactions to one without) makes no further cells of it.
- **extends: other.yaml** puts this file over another one: mappings key by key, lists whole.
- **-set key=value** overrides a key on the command line: ` + "`-set load.rate=5k/s`, `-set 'guarantee=[at_least_once, idempotent]'`, `-set topics.0.partitions=12`" + `.

`

const docsTail = `## Expectations

Each line of ` + "`expect`" + ` is ` + "`metric op value [in phase]`" + ` or ` + "`ratio(metric, a, b) op value`" + `, where a and b are two values of one swept key;
` + "`ratio(metric, a, b, key=value, …)`" + ` speaks only of the cells in which other swept keys have these values. Operators: < <= > >= == !=. Without a phase, latencies and rates speak of the steady phase, everything else of the whole trial.

A line of which no trial could have a figure is refused (of transactions where no guarantee has any, of outages without a fault, the latency of a closed loop), not left undecided
after the run. The others are *met*, *missed* or *undecided*. A line is undecided where a cell has no sound trial to read it from, and a ratio also where the limit lies
within its interval or fewer than three blocks measured it. Where other keys are swept too, a ratio is decided for each combination of them by itself,
and the worst outcome is the line's. ` + "`n50`" + `, which only a ratio may ask for, is the records of a transaction at which half of the rate without
transactions is reached, fitted over all sizes and blocks. Undecided is not a pass: what was asked got no answer, and the exit code is 3. More repeats or a
quieter machine decide it. A line that ends in ` + "`or undecided`" + ` asks only that nothing speak against it: it fails the run when it is missed, and
otherwise lets it pass as long as some trial is sound. The report shows it as undecided either way.

| Exit code | When; the first that applies |
|---|---|
| 10 | a guarantee was violated |
| 130 | the run was interrupted |
| 3 | the run is not valid: no trial, a trial that could not be judged, or none that is sound where a line needs one |
| 99 | a line was missed |
| 3 | a line was left undecided and does not say ` + "`or undecided`" + ` |
| 0 | otherwise |

| Metric | Unit |
|---|---|
%s
## Checks

| Rule | Counts |
|---|---|
%s
Which rule must be zero depends on the guarantee; every zero is reported with its denominator and a 95 %% upper bound. docs/TESTING.md says how
the rules themselves are tested.
`

// ruleNames say in a phrase what each rule counts; the rules themselves are in bench/check.
var ruleNames = map[string]string{
	"A1": "offsets that held two different messages, or one and then none", "A2": "further copies of a message",
	"A3": "messages never sent, failed for certain, damaged, or in the wrong partition", "A4": "acknowledged messages absent below an offset that was read",
	"A5": "acknowledged messages neither read nor proven absent: never a pass", "A6": "acknowledged messages beyond the end of the log",
	"A7": "where in a producer's sequence the lost ones lie", "A8": "batches that are not byte for byte the same at all replicas that hold them", "A9": "messages that stand before an earlier one of their producer and partition",
	"A10": "messages that stand before one that was acknowledged when they were sent",
	"A11": "end offsets that went back within an equal or rising leader epoch", "A12": "replicas that still lack something after the final read",
	"B1": "messages that a poll skipped", "B2": "messages that a poll brought out of order",
	"B3": "messages skipped between two polls of a member without a reason", "B4": "polls that went back without a reason",
	"B5": "messages that a group read again although a commit had covered them", "B6": "messages below a committed position that no member was given",
	"B7": "positions committed before their messages were processed", "B8": "positions that a group told below an earlier commit",
	"B9": "commits of an older generation that were accepted", "B10": "partitions that two members of one generation held at once",
	"B11": "where a group goes on after an abort", "B12": "partitions that a group stopped reading although there was more",
	"C1": "messages of aborted transactions that were read", "C2": "messages read before the commit of their transaction was asked for",
	"C3": "transactions of which a part is visible", "C5": "transactions that read of each other in a circle",
	"C7": "inputs without or with more than one output", "C8": "transactions of which only the output or only the position counts",
	"C9": "commits of a producer that was fenced", "C10": "C1 and C3 right after an end whose answer was lost",
	"C11": "transactions that hold back readers for longer than their timeout", "C12": "whether the committed messages add up",
	"D1": "transactions that ended differently in two partitions", "D2": "partitions left in doubt", "D3": "outcomes applied twice",
	"D4": "decisions that changed", "D5": "commits of a partition that never voted", "D6": "outcomes of transactions that nobody began",
}

// Docs is docs/SCENARIOS.md.
func Docs() []byte {
	var b strings.Builder
	b.WriteString(docsHead)
	docsOf(&b, reflect.TypeFor[Scenario](), "", "The file")
	var units, rules strings.Builder
	for _, m := range Metrics() {
		fmt.Fprintf(&units, "| `%s` | %s |\n", m, strings.ReplaceAll(string(metrics[m]), "_", " "))
	}
	for _, id := range RuleIDs() {
		fmt.Fprintf(&rules, "| %s | %s |\n", id, ruleNames[id])
	}
	fmt.Fprintf(&b, docsTail, units.String(), rules.String())
	return []byte(b.String())
}

// docsOf writes the table of one mapping, and then those of the mappings below it.
func docsOf(b *strings.Builder, t reflect.Type, path, title string) {
	fields, later := fieldsOf(t)
	fmt.Fprintf(b, "## %s\n\n| Key | Value | Default | Meaning |\n|---|---|---|---|\n", title)
	for _, f := range fields {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.name, kindOf(f), defaultOf(f), strings.ReplaceAll(meaning(f), "|", "\\|"))
	}
	if path == "" {
		b.WriteString("| `extends` | file |  | The file that this one is put over. |\n")
	}
	for _, key := range later {
		fmt.Fprintf(b, "| `%s` | *later* |  |  |\n", key)
	}
	b.WriteString("\n")
	for _, f := range fields {
		e := f.typ
		at := join(path, f.name)
		if e.Kind() == reflect.Slice {
			e, at = e.Elem(), at+"[]"
		}
		if e.Kind() == reflect.Struct && !isScalar(e) {
			docsOf(b, e, at, "`"+at+"`")
		}
	}
}

func meaning(f field) string {
	m := f.tag.Get("doc")
	if later := words(f.tag.Get("later")); len(later) > 0 {
		m += " *Later:* " + strings.Join(later, ", ") + "."
	}
	return m
}

func kindOf(f field) string {
	if enum := words(f.tag.Get("enum")); len(enum) > 0 {
		return strings.Join(enum, ", ")
	}
	switch f.typ {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Count]():
		return "count"
	case reflect.TypeFor[Rate]():
		return "rate"
	case reflect.TypeFor[SizeDist]():
		return "size or distribution"
	case reflect.TypeFor[At]():
		return "moment"
	case reflect.TypeFor[FaultTarget]():
		return "target"
	}
	switch f.typ.Kind() {
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "keys of your own"
	case reflect.Struct:
		return "mapping"
	case reflect.Bool:
		return "true, false"
	case reflect.String:
		return "text"
	case reflect.Float64:
		return "number" + rangeOf(f)
	}
	return "whole number" + rangeOf(f)
}

func rangeOf(f field) string {
	lo, hi := f.tag.Get("min"), f.tag.Get("max")
	switch {
	case lo != "" && hi != "":
		return ", " + lo + " to " + hi
	case lo != "":
		return ", at least " + lo
	}
	return ""
}

func defaultOf(f field) string {
	if f.tag.Get("required") != "" {
		return "required"
	}
	if def := f.tag.Get("default"); def != "" && !strings.Contains(f.tag.Get("doc"), "Default:") {
		return "`" + def + "`"
	}
	return ""
}
