package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"gopherlog/bench/result"
)

//go:embed page.html
var pageSource string

// shownRows bounds the data table under a chart; the CSV holds every row.
const shownRows = 60

// Shown are the first rows of the chart's data.
func (c *Chart) Shown() [][]string { return c.Table.Rows[:min(len(c.Table.Rows), shownRows)] }

// Cut is how many rows Shown leaves out.
func (c *Chart) Cut() int { return len(c.Table.Rows) - len(c.Shown()) }

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"halves": func(cs []*Chart) bool {
		for _, c := range cs {
			if !c.Wide {
				return true
			}
		}
		return false
	},
	"bounds": splitBounds, "rowClass": besideClass,
	"markClass": func(mark string) string {
		return map[string]string{"✓": "ok", "≈": "meas", "✗": "bad", "?": "unk"}[mark]
	},
}).Parse(pageSource))

type question struct{ Question, Hypothesis, Outcome string }

type resolved struct{ Name, Text string }

// page is everything that the template prints.
type page struct {
	Title, Subtitle string
	Questions       []question
	Goals           []Beside // one, or none
	Beside          []Beside
	Cards           []card
	Commands        []string
	Bounds          string
	Prices, Latency []*Chart
	Sizes           []*Chart
	SizeTable       Table
	Claims          []claim
	Stall           *Chart
	Stalls          Table
	Latencies       Table
	Pipelines       Table
	Timelines       []*Chart
	Gaps            *Chart
	Ledger          ledger
	Rules           Table
	Witnesses       Table
	Legend          template.HTML
	Sent            Table
	Errors          Table
	Faults          Table
	Saturation      Table
	InFlight        Table
	Thresholds      Table
	AckMeaning      []string
	Settings        Table
	Resolved        []resolved
	Limits          []string
}

// Render draws the charts and the page of one or several run directories into
// out: charts/, report.html and report.md. With one run, out may be its own
// directory. It reads nothing but those directories.
func Render(dirs []string, out, title string) error {
	s := &set{}
	for _, d := range dirs {
		r, err := result.Load(d)
		if err != nil {
			return err
		}
		s.runs = append(s.runs, r)
	}
	sort.SliceStable(s.runs, func(i, j int) bool { return s.runs[i].Manifest.Started.Before(s.runs[j].Manifest.Started) })
	if len(s.runs) == 0 {
		return errors.New("there is no run to report on")
	}
	beside := SideBySide(s.runs)
	s.tellSystemsApart()
	p, charts, err := s.page(title)
	if err != nil {
		return err
	}
	if goals, ok := Goals(beside); ok {
		p.Goals = []Beside{goals}
	}
	p.Beside = beside
	s.retitle(p, charts)
	to := &result.Dir{Path: out}
	if err := os.MkdirAll(to.Charts(""), 0o755); err != nil {
		return err
	}
	for _, c := range charts {
		if err := c.write(to); err != nil {
			return err
		}
	}
	for name, t := range p.tables() {
		if err := os.WriteFile(to.Charts(name+".csv"), t.csv(), 0o644); err != nil {
			return err
		}
	}
	var html bytes.Buffer
	if err := pageTemplate.Execute(&html, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return errors.Join(os.WriteFile(to.File(result.ReportFile), html.Bytes(), 0o644),
		os.WriteFile(to.File(result.MarkdownFile), []byte(p.markdown()), 0o644))
}

// page assembles the parts in the order in which readers ask.
func (s *set) page(title string) (*page, []*Chart, error) {
	p := &page{Title: title, Cards: s.cards(), Ledger: s.safety(), Rules: s.rules(), Witnesses: s.witnesses(), Sent: s.sent(), Errors: s.errors(), Faults: s.faults(), Saturation: s.saturation(), InFlight: s.inFlight(),
		Thresholds: s.thresholds(), AckMeaning: s.ackMeaning(), Settings: s.settings(), Limits: s.limits(), SizeTable: s.sizeTable(), Stalls: s.stallTable(), Claims: s.claims(), Latencies: s.latencies(), Pipelines: s.pipelines()}
	s.head(p)
	p.Bounds = "lowest and highest"
	if !s.quick() {
		p.Bounds = "95 % interval"
	}
	if err := s.figures(p); err != nil {
		return nil, nil, err
	}
	p.Legend = s.legend(p.Latency)
	var charts []*Chart
	used := map[string]int{} // two runs may draw the same chart: their files must not overwrite each other
	for _, group := range [][]*Chart{p.Prices, p.Sizes, p.Latency, p.Timelines, {p.Gaps, p.Stall}} {
		for _, c := range group {
			if c != nil {
				if used[c.ID]++; used[c.ID] > 1 {
					c.ID = fmt.Sprintf("%s-%d", c.ID, used[c.ID])
				}
				charts = append(charts, c)
			}
		}
	}
	return p, charts, nil
}

// tables are the page's tables by the name of the CSV that holds them.
func (p *page) tables() map[string]Table {
	all := map[string]Table{"ledger": p.Ledger.table(), "rules": p.Rules, "sent": p.Sent, "errors": p.Errors, "faults": p.Faults,
		"saturation": p.Saturation, "thresholds": p.Thresholds, "settings": p.Settings}
	for name, t := range map[string]Table{"in-flight": p.InFlight, "transaction-cost": p.SizeTable, "stalls": p.Stalls, "claims": claimTable(p.Claims), "latencies": p.Latencies, "witnesses": p.Witnesses, "pipelines": p.Pipelines} {
		if len(t.Rows) > 0 {
			all[name] = t
		}
	}
	for _, b := range p.Goals {
		all["goals"] = b.Table
	}
	for i, b := range p.Beside {
		all[fmt.Sprintf("beside-%d", i+1)] = b.Table
	}
	return all
}

// head fills title, subtitle, questions and commands.
func (s *set) head(p *page) {
	first := s.runs[0].Manifest
	if p.Title == "" {
		p.Title = first.Scenario.Question
	}
	if p.Title == "" {
		p.Title = first.Scenario.Name
	}
	var files []string
	var wall time.Duration
	trialsRun := 0
	for _, r := range s.runs {
		m := r.Manifest
		files = append(files, fileName(m.Scenario))
		wall += m.Finished.Sub(m.Started)
		trialsRun += len(r.Results.Trials)
		q := question{Hypothesis: m.Scenario.Hypothesis, Outcome: s.outcome(r)}
		if m.Scenario.Question != p.Title {
			q.Question = m.Scenario.Question
		}
		p.Questions = append(p.Questions, q)
		p.Commands = append(p.Commands, m.Command)
		p.Resolved = append(p.Resolved, resolved{m.Scenario.Name, m.Scenario.Resolved})
	}
	p.Commands = unique(p.Commands, len(p.Commands))
	p.Subtitle = fmt.Sprintf("%s · %s, %s · %s, %s", strings.Join(files, ", "), systemNames(s.runs[0]), setUp(first.System), plural(trialsRun, "trial"), wall.Round(time.Second))
	if first.Commit != "" {
		p.Subtitle += " · commit " + first.Commit
	}
}

func fileName(sc result.Scenario) string {
	if i := strings.LastIndexByte(sc.File, '/'); i >= 0 {
		return sc.File[i+1:]
	}
	return sc.File
}

// figures draws every chart for which there is data. Open-loop and closed runs
// never share one.
func (s *set) figures(p *page) error {
	for _, r := range s.runs {
		gs := (&set{runs: []*result.Run{r}}).guarantees()
		if r.Manifest.Scenario.Model == "closed" {
			if r.Manifest.Cells[0].Bound == 1 {
				p.Prices = appendChart(p.Prices, prices(r, gs, "price-in-flight", "One record in flight, p50", "p50 (lower is better)",
					"One record in flight. "+shape(r), latency(ack, steady, p50)))
				continue
			}
			if c := transactionSize(r); c != nil {
				if s.sized() > 1 {
					c.Caption = r.Manifest.Scenario.Name + ". " + c.Caption
				}
				p.Sizes = append(p.Sizes, c) // no one factor tells what a transaction costs
				continue
			}
			p.Prices = appendChart(p.Prices, prices(r, gs, "price-throughput", "Throughput", "throughput (higher is better)", "Saturation throughput. "+shape(r), throughput))
			continue
		}
		if err := s.openFigures(p, r, gs); err != nil {
			return err
		}
	}
	p.Gaps, p.Stall = s.unavailability(), s.readerStall()
	return nil
}

func (s *set) openFigures(p *page, r *result.Run, gs []string) error {
	if len(gs) == 0 {
		return nil
	}
	if len(p.Latency) == 0 && (loads(r) > 1 || len(s.runs) == 1 || slices.Contains(measuredIn(r), commit)) {
		mid := middleRate(r, gs)
		p.Prices = appendChart(p.Prices, prices(r, gs, "price-visible-p99", "p99 until visible", "p99 until visible (lower is better)", fmt.Sprintf("p99 from intended send until a reader has it, at %s records a second. %s", compact(mid), shape(r)), latency(visible, steady, p99)))
		c, err := spectrum(r, gs, mid, ack)
		if err != nil {
			return err
		}
		p.Latency = appendChart(p.Latency, c)
		if loads(r) > 1 {
			p.Latency = appendChart(p.Latency, loadCurve(r, gs, ack))
		} else if c, err = spectrum(r, gs, mid, visible); err != nil {
			return err
		} else {
			p.Latency = appendChart(p.Latency, c)
		}
		if err := transactionLatency(p, r, gs, mid); err != nil {
			return err
		}
	}
	return s.timelines(p, r, gs)
}

// middleRate is the load that charts of one load show: of those at which most guarantees have a sound trial, the middle one.
func middleRate(r *result.Run, guarantees []string) float64 {
	sound := map[float64]map[string]bool{}
	for _, g := range guarantees {
		for _, c := range cells(r, g) {
			if sound[c.Rate] == nil {
				sound[c.Rate] = map[string]bool{}
			}
			if len(trials(r, c.ID)) > 0 {
				sound[c.Rate][g] = true
			}
		}
	}
	most := 0
	for _, with := range sound {
		most = max(most, len(with))
	}
	var rates []float64
	for _, rate := range slices.Sorted(maps.Keys(sound)) {
		if len(sound[rate]) == most {
			rates = append(rates, rate)
		}
	}
	return rates[len(rates)/2]
}

// transactionLatency draws what only transactions and pipelines have: each metric for itself, against load where there are several.
func transactionLatency(p *page, r *result.Run, gs []string, mid float64) error {
	metrics := measuredIn(r)
	if !slices.Contains(metrics, commit) && !slices.Contains(metrics, endToEnd) {
		return nil
	}
	for _, m := range metrics {
		switch {
		case m == ack, m == visible && loads(r) == 1:
		case loads(r) > 1:
			p.Latency = appendChart(p.Latency, loadCurve(r, gs, m))
		default:
			c, err := spectrum(r, gs, mid, m)
			if err != nil {
				return err
			}
			p.Latency = appendChart(p.Latency, c)
		}
	}
	return nil
}

func (s *set) timelines(p *page, r *result.Run, gs []string) error {
	gs = slices.Clone(gs)
	if !s.compared() { // the first system first, else the strongest guarantee
		slices.Reverse(gs)
	}
	for _, g := range gs {
		for _, c := range cells(r, g) {
			ts := trials(r, c.ID)
			if len(ts) == 0 {
				ts = recorded(r, c.ID) // better a picture that says what is wrong with it than none
			}
			if len(ts) == 0 || len(ts[0].Faults) == 0 {
				continue
			}
			shown := middleTrial(ts)
			chart, err := timeline(r, c, shown)
			if err != nil {
				return err
			}
			if len(shown.Invalid) > 0 {
				chart.Caption = "Trial " + shown.ID + " is set aside, its latencies are not sound: " + strings.Join(shown.Invalid, "; ") + ". " + chart.Caption
			}
			if len(s.runs) > 1 {
				chart.Title += ": " + r.Manifest.Scenario.Name
			}
			p.Timelines = append(p.Timelines, chart)
		}
	}
	return nil
}

func appendChart(to []*Chart, c *Chart) []*Chart {
	if c == nil {
		return to
	}
	return append(to, c)
}

// loads counts the different offered rates of a run.
func loads(r *result.Run) int {
	seen := map[float64]bool{}
	for _, c := range r.Manifest.Cells {
		seen[c.Rate] = true
	}
	return len(seen)
}

// shape describes records and partitions in half a sentence.
func shape(r *result.Run) string {
	partitions := fmt.Sprintf("%d partitions", r.Manifest.System.Partitions)
	if r.Manifest.System.Partitions == 1 {
		partitions = "1 partition"
	}
	least, most := r.Manifest.System.RecordBytes, r.Manifest.System.RecordBytes
	for i, c := range r.Manifest.Cells {
		n := recordBytes(r, c)
		if least, most = min(least, n), max(most, n); i == 0 {
			least, most = n, n
		}
	}
	bytes := compact(float64(least))
	if least < most {
		bytes += " to " + compact(float64(most))
	}
	return fmt.Sprintf("%s bytes a record, %s.", bytes, partitions)
}

// recordBytes is the mean size of a cell's records.
func recordBytes(r *result.Run, c result.Cell) int {
	return cmp.Or(c.Bytes, r.Manifest.System.RecordBytes)
}

// legend draws the line of each guarantee in the charts once.
func (s *set) legend(charts []*Chart) template.HTML {
	drawn := map[string]bool{}
	for _, c := range charts {
		for _, row := range c.Table.Rows {
			drawn[row[0]] = true
		}
	}
	var b strings.Builder
	for _, g := range s.guarantees() {
		if !drawn[g] {
			continue
		}
		l := look(g)
		c := themed.Replace(fmt.Sprintf("#%02X%02X%02X", l.Color.R, l.Color.G, l.Color.B))
		var dash []string
		for _, d := range l.Dashes {
			dash = append(dash, fmt.Sprint(float64(d)))
		}
		fmt.Fprintf(&b, `<span><svg class="key" viewBox="0 0 34 12" aria-hidden="true"><line x1="1" x2="33" y1="6" y2="6" stroke="%s" stroke-width="2.4" stroke-dasharray="%s"/></svg>%s</span>`,
			c, strings.Join(dash, " "), esc(l.Label))
	}
	return template.HTML(b.String())
}
