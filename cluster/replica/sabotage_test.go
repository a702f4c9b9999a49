package replica

import (
	"bytes"
	"testing"
	"testing/synctest"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
)

// Followers write batches down that are sound and not the leader's, and the leader those that it was given.
func TestOnlyThePlantedFaultMakesFollowersHoldAnotherByte(t *testing.T) {
	for _, planted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			points := failpoint.New()
			if err := points.SetSabotage(failpoint.Diverge, planted, 5); err != nil {
				t.Fatal(err)
			}
			r := newRig(t, 3, func(o *rigOptions) { o.points = points })
			l := r.lead(r.nodes[0])
			l.produce(100, 1, "a value that is long enough")
			end := l.log.EndOffset()
			r.eventually("everybody has everything", func() bool {
				for _, x := range r.nodes {
					if x.log.EndOffset() != end {
						return false
					}
				}
				return true
			})
			want := l.bytesOf()
			others := 0
			for _, x := range r.nodes[1:] {
				got := x.bytesOf()
				if !bytes.Equal(got, want) {
					others++
				}
				for a, b := got, want; len(b) > 0; {
					mine, restMine, err := record.Parse(a)
					if err != nil || mine.CheckCRC() != nil {
						t.Fatalf("node %d: %v, %v", x.id, err, mine.CheckCRC())
					}
					sent, restSent, err := record.Parse(b)
					if err != nil || mine.Length() != sent.Length() || mine.BaseOffset() != sent.BaseOffset() {
						t.Fatalf("node %d: %v, leader: %v, %v", x.id, mine, sent, err)
					}
					a, b = restMine, restSent
				}
			}
			if planted != (others == 2) || !planted && others > 0 {
				t.Errorf("planted %v: %d followers hold something else", planted, others)
			}
		})
	}
}
