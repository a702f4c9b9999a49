package load

import "time"

// stillGrace is beyond the timeout of a transaction: where the last stable offset stood still below the end for longer than both, nobody is
// going to end what holds it back. The checks call it hanging sooner.
const stillGrace = 7 * time.Second

// standing is since when each partition's last stable offset has not moved although the log goes on behind it, by flat partition.
type standing []stood

type stood struct {
	at, end int64 // as last told
	since   time.Duration
	known   bool
}

// end notes the end of a partition's log.
func (s standing) end(partition int, offset int64) { s[partition].end = offset }

// stable notes a last stable offset.
func (s standing) stable(partition int, offset int64, now time.Duration) {
	if p := &s[partition]; !p.known || offset > p.at || offset >= p.end {
		p.at, p.since, p.known = offset, now, true
	}
}

// stuck says that every partition whose last stable offset lies below its end has stood there for longer than patience since calm, and that
// there is one.
func (s standing) stuck(stable, ends []int64, calm, now, patience time.Duration) bool {
	found := false
	for i := range stable {
		switch p := s[i]; {
		case stable[i] < 0 || ends[i] < 0:
			return false
		case stable[i] >= ends[i]:
		case !p.known || stable[i] != p.at || now-max(p.since, calm) <= patience:
			return false
		default:
			found = true
		}
	}
	return found
}
