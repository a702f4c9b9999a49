package scenario

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written with a unit: 512B, 64KiB, 1MiB.
type Size int64

// Count is a plain number that may be written 100k or 2M.
type Count int64

// Rate is messages per second, written 5k/s.
type Rate float64

// SizeDist is a size or a log-normal distribution of sizes.
type SizeDist struct {
	Fixed  Size // 0 unless every value has this size
	Median Size
	P99    Size
}

// At is a moment of the timeline: a phase and a distance from its start.
type At struct {
	Phase     string
	Offset    time.Duration
	Failpoint string // not empty: when the target passes it, from the start of the phase on
	Hit       int64
}

// FaultTarget names what a fault strikes.
type FaultTarget struct {
	Role      string // leader, follower, node, all, txn_coordinator, group_coordinator, worker
	Topic     string // of leader and follower
	Partition int32
	Node      int // of node, counted from 1
	Worker    int // of worker, counted from 0
}

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1}}

func parseSize(s string) (Size, error) {
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			v, err := parseNumber(strings.TrimSpace(n))
			if err != nil {
				return 0, fmt.Errorf("%q is not a size such as 64KiB", s)
			}
			return Size(math.Round(v * u.bytes)), nil
		}
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("size %q has no unit: write %sB, %sKiB or %sMiB", s, s, s, s)
	}
	return 0, fmt.Errorf("%q is not a size such as 64KiB", s)
}

func (s Size) String() string {
	switch {
	case s != 0 && s%(1<<30) == 0:
		return fmt.Sprintf("%dGiB", s>>30)
	case s != 0 && s%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", s>>20)
	case s != 0 && s%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", s>>10)
	}
	return fmt.Sprintf("%dB", int64(s))
}

// parseNumber reads a number with an optional k or M.
func parseNumber(s string) (float64, error) {
	scale := 1.0
	switch {
	case strings.HasSuffix(s, "k"):
		s, scale = s[:len(s)-1], 1e3
	case strings.HasSuffix(s, "M"):
		s, scale = s[:len(s)-1], 1e6
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	return v * scale, nil
}

func parseCount(s string) (Count, error) {
	v, err := parseNumber(s)
	if err != nil || v != math.Trunc(v) || v < 0 {
		return 0, fmt.Errorf("%q is not a whole number such as 5000 or 100k", s)
	}
	return Count(v), nil
}

func parseRate(s string) (Rate, error) {
	n, ok := strings.CutSuffix(s, "/s")
	if !ok {
		if _, err := parseNumber(s); err == nil {
			return 0, fmt.Errorf("rate %q has no unit: write %s/s", s, s)
		}
		return 0, fmt.Errorf("%q is not a rate such as 5k/s", s)
	}
	v, err := parseNumber(n)
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("%q is not a rate such as 5k/s", s)
	}
	return Rate(v), nil
}

func (r Rate) String() string {
	switch {
	case r >= 1e6 && math.Mod(float64(r), 1e5) == 0:
		return strconv.FormatFloat(float64(r)/1e6, 'g', -1, 64) + "M/s"
	case r >= 1e3 && math.Mod(float64(r), 100) == 0:
		return strconv.FormatFloat(float64(r)/1e3, 'g', -1, 64) + "k/s"
	}
	return strconv.FormatFloat(float64(r), 'g', -1, 64) + "/s"
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, err := strconv.ParseFloat(s, 64); err == nil && s != "0" {
			return 0, fmt.Errorf("duration %q has no unit: write %ss or %sms", s, s, s)
		}
		return 0, fmt.Errorf("%q is not a duration such as 10s or 250ms", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("duration %q is negative", s)
	}
	return d, nil
}

func (d SizeDist) String() string {
	if d.Fixed > 0 {
		return d.Fixed.String()
	}
	return fmt.Sprintf("{dist: lognormal, median: %v, p99: %v}", d.Median, d.P99)
}

const p99Sigmas = 2.3263478740408408 // standard deviations from the median to the 99th percentile

// Mean is the expected size in bytes.
func (d SizeDist) Mean() float64 {
	if d.Fixed > 0 {
		return float64(d.Fixed)
	}
	mu := math.Log(float64(d.Median))
	sigma := (math.Log(float64(d.P99)) - mu) / p99Sigmas
	return math.Exp(mu + sigma*sigma/2)
}

var pointPattern = regexp.MustCompile(`^on failpoint (\S+)(?: hit (\d+))?$`)

var atPattern = regexp.MustCompile(`^\s*([a-z]+)\s*(?:\+\s*(\S+))?\s*$`)

func parseAt(s string) (At, error) {
	if strings.HasPrefix(s, "on failpoint") {
		m := pointPattern.FindStringSubmatch(s)
		if m == nil {
			return At{}, fmt.Errorf("%q is not a moment such as \"on failpoint voted/before-prepare hit 3\"", s)
		}
		hit, err := strconv.ParseInt(cmp.Or(m[2], "1"), 10, 32)
		if err != nil || hit < 1 {
			return At{}, fmt.Errorf("%q: passes are counted from 1", s)
		}
		return At{Phase: PhaseImpact, Failpoint: m[1], Hit: hit}, nil
	}
	m := atPattern.FindStringSubmatch(s)
	if m == nil {
		return At{}, fmt.Errorf("%q is not a moment such as impact+5s", s)
	}
	at := At{Phase: m[1]}
	if hint := oneOf(at.Phase, PhaseNames()[:4]); hint != "" {
		return At{}, fmt.Errorf("%q is not a phase%s", at.Phase, hint)
	}
	if m[2] != "" {
		d, err := parseDuration(m[2])
		if err != nil {
			return At{}, err
		}
		at.Offset = d
	}
	return at, nil
}

func (a At) String() string {
	if a.Failpoint != "" {
		return fmt.Sprintf("on failpoint %s hit %d", a.Failpoint, a.Hit)
	}
	return a.moment()
}

func (a At) moment() string { return fmt.Sprintf("%s+%v", a.Phase, a.Offset) }

var targetPattern = regexp.MustCompile(`^(leader|follower|node|worker)\(\s*(.+?)\s*\)$`)

// rolesLater are targets of the vocabulary that later faults and guarantees bring.
var rolesLater = []string{"controller", "minority", "majority", "client"}

func parseTarget(s string) (FaultTarget, error) {
	if s == "all" || s == "txn_coordinator" || s == "group_coordinator" {
		return FaultTarget{Role: s}, nil
	}
	word, _, _ := strings.Cut(s, "(")
	for _, later := range rolesLater {
		if word == later {
			return FaultTarget{}, fmt.Errorf("%w: target %q", errLater, word)
		}
	}
	m := targetPattern.FindStringSubmatch(s)
	if m == nil {
		return FaultTarget{}, fmt.Errorf("%q is not a target: leader(topic/partition), follower(topic/partition), node(n), worker(n), txn_coordinator, group_coordinator or all", s)
	}
	if m[1] == "node" {
		n, err := strconv.Atoi(m[2])
		if err != nil || n < 1 {
			return FaultTarget{}, fmt.Errorf("%q: nodes are counted from 1", s)
		}
		return FaultTarget{Role: "node", Node: n}, nil
	}
	if m[1] == "worker" {
		n, err := strconv.Atoi(m[2])
		if err != nil || n < 0 {
			return FaultTarget{}, fmt.Errorf("%q: workers are counted from 0", s)
		}
		return FaultTarget{Role: "worker", Worker: n}, nil
	}
	slash := strings.LastIndex(m[2], "/")
	if slash <= 0 {
		return FaultTarget{}, fmt.Errorf("%q names no partition: write %s(%s/0)", s, m[1], m[2])
	}
	p, err := strconv.ParseInt(m[2][slash+1:], 10, 32)
	if err != nil || p < 0 {
		return FaultTarget{}, fmt.Errorf("%q: %q is not a partition number", s, m[2][slash+1:])
	}
	return FaultTarget{Role: m[1], Topic: m[2][:slash], Partition: int32(p)}, nil
}

func (t FaultTarget) String() string {
	switch t.Role {
	case "node":
		return fmt.Sprintf("node(%d)", t.Node)
	case "worker":
		return fmt.Sprintf("worker(%d)", t.Worker)
	case "leader", "follower":
		return fmt.Sprintf("%s(%s/%d)", t.Role, t.Topic, t.Partition)
	}
	return t.Role
}
