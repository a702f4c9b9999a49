package partition

import (
	"testing"
	"time"

	"gopherlog/engine/log"
)

// retention.bytes is kept to while a topic is written, not every few seconds only: with one whole segment too many the
// oldest goes, from the leader's disk and from the followers'.
func TestRetentionByBytesDoesNotWaitForTheClock(t *testing.T) {
	const segment = 1 << 20
	c := startCluster(t, 3, func(cfg *Config) { cfg.RetentionEvery = time.Hour })
	c.create("busy", 1, 3, map[string]string{"segment.bytes": "1048576", "retention.bytes": "2097152"})
	c.led("busy", 1)
	for range 16 << 20 / 200_000 {
		c.produce("busy", 0, batchOf(nil, 2, 100_000))
	}
	for _, n := range c.nodes {
		p := c.on(n, "busy", 0)
		c.await("the oldest segments to go", func() bool {
			if p.Size() <= 4*segment+retentionStep && p.LogStart() > 0 {
				return true
			}
			// Segments that a follower still needs stay, and are looked at again when more is written.
			c.produce("busy", 0, batchOf(nil, 2, 100_000))
			return false
		})
	}
}

func TestRoomIsWhatMayComeUntilASegmentIsTooMuch(t *testing.T) {
	segments := []log.SegmentInfo{{BaseOffset: 0, Bytes: 60 << 20}, {BaseOffset: 10, Bytes: 60 << 20}, {BaseOffset: 20, Bytes: 10 << 20}}
	for _, c := range []struct {
		name               string
		start, bytes, want int64
	}{
		{"unlimited", 0, -1, 1<<63 - 1},
		{"two of three are enough", 0, 70 << 20, retentionStep},
		{"nearly", 0, 80 << 20, 10 << 20},
		{"the first is on its way", 10, 70 << 20, 60 << 20},
		{"only the active one is kept", 20, 70 << 20, 70 << 20},
	} {
		s := defaults()
		s.RetentionBytes = c.bytes
		if got := roomFor(segments, c.start, &s); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
