package partition

import (
	"errors"
	"testing"
	"time"

	"gopherlog/engine/failpoint"
)

func TestOnlyThePlantedFaultTakesTheBatchesOfAFencedProducer(t *testing.T) {
	for _, on := range []bool{false, true} {
		opts := []option{confirming}
		if on {
			opts = append(opts, sabotaged(failpoint.SkipEpochCheck, 0))
		}
		h := open(t, opts...)
		h.mustPart(t, part(7, 3, 0, 1))
		h.mustMark(t, abortOf(7, 4)) // its successor begins
		h.mustPart(t, part(7, 4, 0, 1))
		late := wait(t, h.sendPart(part(7, 3, 1, 1), time.Time{}))
		if landed := late.Err == nil; landed != on || !on && !errors.Is(late.Err, ErrInvalidProducerEpoch) {
			t.Fatalf("planted %v: a batch of the fenced producer: %v", on, late.Err)
		}
		h.mustMark(t, commitOf(7, 4))
		if open, end := h.OpenTransactions(), h.HighWatermark(); open > 0 || h.LastStable() != end {
			t.Fatalf("planted %v: %d transactions are open, stable below %d of %d", on, open, h.LastStable(), end)
		}
	}
}
