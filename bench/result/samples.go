package result

import (
	"encoding/csv"
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
	Lag        int64 // records acknowledged and not yet delivered
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
