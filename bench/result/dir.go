package result

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Names of the files and folders in a run directory.
const (
	ManifestFile = "manifest.json"
	ResultsFile  = "results.json"
	TrialsFile   = "trials.csv"
	EventsFile   = "events.jsonl"
	BenchFile    = "bench.txt"
	JUnitFile    = "junit.xml"
	ReportFile   = "report.html"
	MarkdownFile = "report.md"
	samplesDir   = "samples"
	latencyDir   = "latency"
	historyDir   = "history"
	chartsDir    = "charts"
	logsDir      = "logs"
)

// Dir is one run directory.
type Dir struct{ Path string }

// Create makes a run directory with its folders. It refuses to write where
// something is already, as Free says.
func Create(path string) (*Dir, error) {
	if err := Free(path); err != nil {
		return nil, err
	}
	d := &Dir{Path: path}
	for _, sub := range []string{samplesDir, latencyDir, historyDir, chartsDir, logsDir} {
		if err := os.MkdirAll(filepath.Join(path, sub), 0o755); err != nil {
			return nil, fmt.Errorf("make the run directory: %w", err)
		}
	}
	return d, nil
}

// Free returns an error unless a run directory can be made of path: nothing is
// there, or a directory that holds nothing. A run never mixes with other files.
func Free(path string) error {
	if _, err := os.Stat(filepath.Join(path, ManifestFile)); err == nil {
		return fmt.Errorf("%s already holds a run: choose another directory with -out", path)
	}
	there, err := os.ReadDir(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s cannot become a run directory: %w", path, err)
	case len(there) > 0:
		return fmt.Errorf("%s is not empty, and the run becomes that directory itself: choose another with -out, as in -out %s", path, filepath.Join(path, "NAME"))
	}
	return nil
}

// Samples, Latency, History, Charts and Logs return paths inside the directory.
func (d *Dir) Samples(name string) string { return filepath.Join(d.Path, samplesDir, name) }
func (d *Dir) Latency(name string) string { return filepath.Join(d.Path, latencyDir, name) }
func (d *Dir) History(name string) string { return filepath.Join(d.Path, historyDir, name) }
func (d *Dir) Charts(name string) string  { return filepath.Join(d.Path, chartsDir, name) }
func (d *Dir) Logs(name string) string    { return filepath.Join(d.Path, logsDir, name) }
func (d *Dir) File(name string) string    { return filepath.Join(d.Path, name) }

// WriteManifest replaces manifest.json.
func (d *Dir) WriteManifest(m *Manifest) error {
	m.Schema = SchemaVersion
	return d.writeJSON(ManifestFile, m)
}

// WriteResults replaces results.json, trials.csv and events.jsonl.
func (d *Dir) WriteResults(r *Results) error {
	r.Schema = SchemaVersion
	return errors.Join(d.writeJSON(ResultsFile, r), d.writeTrials(r), d.writeEvents(r))
}

func (d *Dir) writeJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return replace(d.File(name), append(b, '\n'))
}

// replace writes a whole file beside the old one and renames it over, so that
// an interrupted run leaves the former content.
func replace(path string, b []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func (d *Dir) writeTrials(r *Results) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"trial", "cell", "block", "order", "offered_per_s", "achieved_per_s", "sent", "acked", "failed", "unknown",
		"late", "shed", "read", "lost", "duplicates", "unseen", "expired", "ack_p50_ms", "ack_p99_ms", "visible_p50_ms", "visible_p99_ms",
		"broker_cpu_us_per_record", "client_cpu_us_per_record", "broker_rss_bytes", "copies_at_ack", "stolen_share", "verdict", "set_aside"})
	for _, t := range r.Trials {
		ack, vis := t.Latency["ack"]["steady"], t.Latency["visible"]["steady"]
		per := 1e6 / float64(max(t.Usage.Records, 1))
		n, total := t.Counts, t.Check.Totals
		_ = w.Write([]string{t.ID, t.Cell, strconv.Itoa(t.Block), strconv.Itoa(t.Order), num(t.Offered), num(t.Achieved),
			whole(n.Sent), whole(n.Acked), whole(n.Failed), whole(n.Unknown), whole(n.Late), whole(n.Shed), whole(n.Delivered),
			whole(total.Lost), whole(total.Duplicates), whole(total.Unseen), whole(total.Expired),
			num(ack.P50), num(ack.P99), num(vis.P50), num(vis.P99), num(t.Usage.BrokerCPU * per), num(t.Usage.ClientCPU * per),
			whole(t.Usage.BrokerRSS), strconv.Itoa(t.Usage.CopiesAtAck), known(t.Usage.Stolen), string(t.Check.Status), strings.Join(t.Invalid, "; ")})
	}
	w.Flush()
	return replace(d.File(TrialsFile), []byte(b.String()))
}

// known is a figure, or nothing where there is none.
func known(v *float64) string {
	if v == nil {
		return ""
	}
	return num(*v)
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

func num(f float64) string { return strconv.FormatFloat(f, 'f', 3, 64) }

func (d *Dir) writeEvents(r *Results) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, t := range r.Trials {
		for _, e := range t.Faults {
			if err := enc.Encode(map[string]any{"trial": t.ID, "fault": e}); err != nil {
				return err
			}
		}
		for _, l := range t.Leaders {
			if err := enc.Encode(map[string]any{"trial": t.ID, "leader": l}); err != nil {
				return err
			}
		}
	}
	return replace(d.File(EventsFile), []byte(b.String()))
}

// Run is a run directory read back.
type Run struct {
	Dir
	Manifest Manifest
	Results  Results
}

// Load reads a run directory. A foreign schema version is refused as such.
func Load(path string) (*Run, error) {
	r := &Run{Dir: Dir{Path: path}}
	if err := r.readJSON(ManifestFile, &r.Manifest); err != nil {
		return nil, err
	}
	if r.Manifest.Schema != SchemaVersion {
		return nil, fmt.Errorf("%s was written in schema version %d; this mqbench reads version %d", path, r.Manifest.Schema, SchemaVersion)
	}
	return r, r.readJSON(ResultsFile, &r.Results)
}

func (r *Run) readJSON(name string, v any) error {
	b, err := os.ReadFile(r.File(name))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is no run directory: it has no %s", r.Path, name)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", r.File(name), err)
	}
	return nil
}
