package result

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Second is one second of a trial, for the charts over time. Latencies are in
// milliseconds and from the intended send time; 0 where nothing was measured.
type Second struct {
	At         float64 // start of the second on the trial's clock
	Sent       int64
	Acked      int64
	Failed     int64
	AckP50     float64
	AckP99     float64
	AckMax     float64
	VisibleP50 float64
	VisibleP99 float64
	VisibleMax float64
	Lag        int64 // records acknowledged and not yet delivered, without those of aborted transactions
}

var secondHeader = []string{"at_s", "sent", "acked", "failed", "ack_p50_ms", "ack_p99_ms", "ack_max_ms",
	"visible_p50_ms", "visible_p99_ms", "visible_max_ms", "lag_records"}

// WriteSeconds writes samples/<trial>.csv.
func (d *Dir) WriteSeconds(trial string, rows []Second) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write(secondHeader)
	for _, s := range rows {
		_ = w.Write([]string{num(s.At), strconv.FormatInt(s.Sent, 10), strconv.FormatInt(s.Acked, 10), strconv.FormatInt(s.Failed, 10),
			num(s.AckP50), num(s.AckP99), num(s.AckMax), num(s.VisibleP50), num(s.VisibleP99), num(s.VisibleMax), strconv.FormatInt(s.Lag, 10)})
	}
	w.Flush()
	return replace(d.Samples(trial+".csv"), []byte(b.String()))
}

// NodeSample is one reading of a broker process.
type NodeSample struct {
	At         float64            `json:"at"` // seconds on the trial's clock
	Node       int                `json:"node"`
	CPU        float64            `json:"-"` // seconds since the process started
	RSS        int64              `json:"-"` // bytes
	WriteBytes int64              `json:"-"`
	Threads    int                `json:"-"`
	Metrics    map[string]float64 `json:"metrics"`
}

// WriteNodes writes samples/<trial>-nodes.csv with what the process table said,
// and samples/<trial>-metrics.jsonl with what the brokers said: in each line the
// metrics that changed since the node's line before.
func (d *Dir) WriteNodes(trial string, rows []NodeSample) error {
	if len(rows) == 0 {
		return nil
	}
	var table, metrics strings.Builder
	w, enc := csv.NewWriter(&table), json.NewEncoder(&metrics)
	_ = w.Write([]string{"at_s", "node", "cpu_s", "rss_bytes", "write_bytes", "threads"})
	last := map[int]map[string]float64{}
	for _, s := range rows {
		_ = w.Write([]string{num(s.At), strconv.Itoa(s.Node), num(s.CPU), whole(s.RSS), whole(s.WriteBytes), strconv.Itoa(s.Threads)})
		if last[s.Node] == nil {
			last[s.Node] = map[string]float64{}
		}
		changed := map[string]float64{}
		for k, v := range s.Metrics {
			if old, ok := last[s.Node][k]; !ok || old != v {
				changed[k], last[s.Node][k] = v, v
			}
		}
		s.Metrics = changed
		if err := enc.Encode(s); err != nil {
			return fmt.Errorf("write the metrics of trial %s: %w", trial, err)
		}
	}
	w.Flush()
	return errors.Join(replace(d.Samples(trial+"-nodes.csv"), []byte(table.String())), replace(d.Samples(trial+"-metrics.jsonl"), []byte(metrics.String())))
}

// Seconds reads samples/<trial>.csv.
func (d *Dir) Seconds(trial string) ([]Second, error) {
	f, err := os.Open(d.Samples(trial + ".csv"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord = len(secondHeader)
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	var out []Second
	for i, row := range rows {
		if i == 0 {
			continue
		}
		v := make([]float64, len(row))
		for j, cell := range row {
			if v[j], err = strconv.ParseFloat(cell, 64); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", f.Name(), i+1, err)
			}
		}
		out = append(out, Second{At: v[0], Sent: int64(v[1]), Acked: int64(v[2]), Failed: int64(v[3]), AckP50: v[4], AckP99: v[5], AckMax: v[6],
			VisibleP50: v[7], VisibleP99: v[8], VisibleMax: v[9], Lag: int64(v[10])})
	}
	return out, nil
}
