package endtoend

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/engine/record"
)

// Offsets are committed about as fast as records are produced one by one: both are a record on a majority. Six connections, each with as
// many requests on their way, take turns between the two. GOPHERLOG_TEST_BUDGETS=1 lasts long enough to judge.
func TestOffsetsAreCommittedAboutAsFastAsRecords(t *testing.T) {
	turns, lasting := 1, 100*time.Millisecond
	if judged() {
		turns, lasting = 7, time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	_, addrs := three(t)
	const lanes = 6
	must(t, "mqclient", "topic", "create", "-addr", addrs[0], "t", "-partitions", fmt.Sprint(lanes), "-replication-factor", "3")
	must(t, "mqclient", "group", "reset", "warm", "-to", "0", "-topic", "t", "-addr", addrs[0])
	var produces, commits []*wire
	eventually(t, func() error {
		at, err := leaders(ctx, addrs...)
		if err != nil {
			return err
		}
		produces, commits = nil, nil
		for i := range int32(lanes) {
			addr, err := coordinator(t, addrs[0], 0, fmt.Sprint("g", i))
			if err != nil {
				return err
			}
			if at[i] < 1 {
				return fmt.Errorf("partition %d has no leader", i)
			}
			produces, commits = append(produces, dialWire(t, addrs[at[i]-1])), append(commits, dialWire(t, addr))
		}
		return nil
	})
	var offset atomic.Int64
	produce := func(lane int32) kmsg.Request { return produceOf("", false, lane, record.Builder{}) }
	commit := func(lane int32) kmsg.Request { return commitOf(fmt.Sprint("g", lane), lane, offset.Add(1), "") }
	var ratios, made, kept []float64
	for range turns {
		made = append(made, rate(t, produces, lasting, produce))
		kept = append(kept, rate(t, commits, lasting, commit))
		ratios = append(ratios, kept[len(kept)-1]/made[len(made)-1])
	}
	budget{what: "offset commits beside one-record produces", figure: median(ratios), least: true, limit: 0.5, unit: "x",
		note: fmt.Sprintf("%.0f and %.0f a second", median(kept), median(made))}.show(t)
}

// rate is how many requests a second all connections get answered.
func rate(t *testing.T, lanes []*wire, lasting time.Duration, next func(lane int32) kmsg.Request) float64 {
	t.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i, c := range lanes {
		wg.Go(func() {
			done, err := c.pump(100, func() kmsg.Request {
				if time.Since(began) > lasting {
					return nil
				}
				return next(int32(i))
			})
			if err != nil {
				t.Error(err)
			}
			n.Add(int64(done))
		})
	}
	wg.Wait()
	return float64(n.Load()) / time.Since(began).Seconds()
}

// codeOf is the error code of an answer about one partition.
func codeOf(resp kmsg.Response) error {
	switch r := resp.(type) {
	case *kmsg.OffsetCommitResponse:
		return kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.ProduceResponse:
		return kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode)
	}
	return fmt.Errorf("an answer of kind %d", resp.Key())
}
