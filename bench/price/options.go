// Package price asks a running cluster what each delivery guarantee costs on it.
//
// It knows what a run would create there, which rights that takes, how to find what an earlier run left, and how the
// answer is put as a list. It starts no broker and measures nothing: bench/suite does, with the scenarios in here.
package price

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopherlog/bench/scenario"
)

// DefaultPrefix begins the name of everything that a run creates.
const DefaultPrefix = "mqbench-price-"

// TransactionFor is the longest that a transaction lasts: what streams processing with Kafka commits by, too.
const TransactionFor = 100 * time.Millisecond

// VotedPrefix stands before the prefix in the ids of voted transactions: it chooses the protocol.
const VotedPrefix = "2pc."

// Limits of what can be asked for.
const (
	leastPrefix = 4 // a shorter one says too little in a list of topics
	mostPrefix  = 120
	mostRate    = 1_000_000
	mostBlocks  = 20
	mostSteady  = time.Minute

	MostTime = 10 * time.Minute // that a whole run may take
)

// Options are the questions a user can change.
type Options struct {
	Brokers    []string
	Silent     []string // addresses that were named with Brokers and did not answer
	Prefix     string
	Run        string // token of this run, which follows the prefix; "": NewPlan draws one
	Guarantees []scenario.Guarantee
	Rate       float64 // records a second, over all producers: nothing is sent faster, but at saturation
	Saturate   bool    // measure also what the cluster takes at most
	Producers  int
	Partitions int
	Copies     int // of each partition; 0: the cluster's default
	Bytes      int // of a record
	Records    int // of a transaction, unless TransactionFor is over before
	Workers    int // of a pipeline that makes a record of each that it reads; 0: no pipeline
	Blocks     int
	Steady     time.Duration // the measured part of a trial; a third of it is sent before, not measured
	Seed       int64
}

// Guarantees are all that can be priced, from weak to strong.
var Guarantees = []scenario.Guarantee{scenario.AtMostOnce, scenario.AtLeastOnce, scenario.Idempotent, scenario.Transactional, scenario.TwoPhaseCommit}

var (
	prefixPattern = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9._-]*$`)
	tokenPattern  = `[a-z2-7]{4}`
	stampPattern  = `-\d{8}-\d{6}\.\d{3}-`
)

// stampLayout is how a moment stands in a name, in UTC.
const stampLayout = "20060102-150405.000"

// Validate lists everything that is wrong at once.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Brokers) == 0 {
		bad("no broker is named: give host:port of at least one")
	}
	for _, b := range o.Brokers {
		if host, port, err := net.SplitHostPort(b); err != nil || host == "" || port == "" {
			bad("broker %q is not host:port", b)
		}
	}
	if !prefixPattern.MatchString(o.Prefix) || len(o.Prefix) < leastPrefix || len(o.Prefix) > mostPrefix {
		bad("prefix %q is not fit for names: %d to %d letters, digits, dots, dashes and underscores, a letter first", o.Prefix, leastPrefix, mostPrefix)
	}
	for _, g := range o.Guarantees {
		if !slices.Contains(Guarantees, g) {
			bad("guarantee %q is not one of %s", g, words(Guarantees))
		}
	}
	if !slices.Contains(o.Guarantees, scenario.AtLeastOnce) {
		bad("at_least_once must be among the guarantees: the others are told as multiples of it")
	}
	between := func(what string, v, least, most int) {
		if v < least || v > most {
			bad("%s is %d: give %d to %d", what, v, least, most)
		}
	}
	if o.Rate < 1 || o.Rate > mostRate {
		bad("the rate is %g: give 1 to %d records a second", o.Rate, mostRate)
	}
	between("the number of producers", o.Producers, 1, 64)
	between("the number of partitions", o.Partitions, 1, 256)
	between("the number of copies", o.Copies, 0, 31)
	between("the size of a record", o.Bytes, 64, 1<<20)
	between("the number of records of a transaction", o.Records, 1, 100_000)
	between("the number of workers", o.Workers, 0, 16)
	between("the number of blocks", o.Blocks, 1, mostBlocks)
	if o.Steady < 100*time.Millisecond || o.Steady > mostSteady {
		bad("the measured part of a trial is %s: give 100ms to %s", Span(o.Steady), Span(mostSteady))
	}
	if len(errs) == 0 {
		errs = append(errs, o.enough())
	}
	return errors.Join(errs...)
}

// ParseRate reads records a second: 5k/s, 2500/s or 2500.
func ParseRate(s string) (float64, error) {
	n, scale := strings.TrimSuffix(s, "/s"), 1.0
	if thousands, ok := strings.CutSuffix(n, "k"); ok {
		n, scale = thousands, 1000
	}
	v, err := strconv.ParseFloat(n, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v <= 0 {
		return 0, fmt.Errorf("%q is not a rate such as 5k/s", s)
	}
	return v * scale, nil
}

func words(gs []scenario.Guarantee) string {
	var out []string
	for _, g := range gs {
		out = append(out, string(g))
	}
	return strings.Join(out, ", ")
}

// newRun draws a token that no other run is likely to have.
func newRun() string {
	var b [3]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("price: no random bytes: " + err.Error())
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))[:4]
}

// Names tells what belongs to runs of price: by the prefix, and by the token and the moment behind it, which nobody
// else's names have.
type Names struct{ pattern *regexp.Regexp }

// NamesUnder are those of every run under a prefix; with run, of that run alone.
func NamesUnder(prefix, run string) Names {
	token := tokenPattern
	if run != "" {
		token = regexp.QuoteMeta(run)
	}
	return Names{regexp.MustCompile(`^(?:` + regexp.QuoteMeta(VotedPrefix) + `)?` + regexp.QuoteMeta(prefix) + `(` + token + stampPattern + `)`)}
}

// Ours says whether a run of price made the thing of this name.
func (n Names) Ours(name string) bool { return n.pattern.MatchString(name) }

// Begun is the moment in a name; false where the name is not ours.
func (n Names) Begun(name string) (time.Time, bool) {
	m := n.pattern.FindStringSubmatch(name)
	if m == nil {
		return time.Time{}, false
	}
	_, stamp, _ := strings.Cut(strings.TrimSuffix(m[1], "-"), "-")
	at, err := time.ParseInLocation(stampLayout, stamp, time.UTC)
	return at, err == nil
}
