package kafkatx

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/table.txt anew; read the difference")

// TestEveryStateAnswersEveryEvent compares what each state does on each event with testdata/table.txt, which is meant to be read.
func TestEveryStateAnswersEveryEvent(t *testing.T) {
	var b strings.Builder
	for _, s := range tableStates() {
		fmt.Fprintf(&b, "%s: %s\n", s.name, s.meta)
		for _, e := range tableEvents() {
			r := newRig(t)
			r.state, _ = r.cfg.Boot(1, s.meta, r.now)
			was := r.state.String()
			effects := r.do(e.event)
			if effects == "" && r.state.String() != was {
				effects = "(" + r.state.String() + ")"
			} else if effects == "" {
				effects = "nothing"
			}
			fmt.Fprintf(&b, "  %-34s %s\n", e.name, effects)
		}
	}
	const file = "testdata/table.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(b.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		if i >= len(got) || got[i] != line {
			t.Fatalf("line %d:\ngot  %s\nwant %s", i+1, got[min(i, len(got)-1)], line)
		}
	}
}

type tableState struct {
	name string
	meta *Meta
}

// The current epoch of producer 7 is 5 in all of them.
func tableStates() []tableState {
	exhausted := meta(Ongoing, lastEpoch, Version2, 1)
	next := meta(PrepareCommit, lastEpoch+1, Version2, 1)
	next.Next = 100
	rotated := meta(CompleteCommit, 0, Version2)
	rotated.ProducerID, rotated.LastEpoch = 100, lastEpoch
	timedOut := meta(CompleteAbort, 5, Version2)
	fenced := meta(CompleteAbort, 5, Version2)
	fenced.LastEpoch = None
	owing := meta(Ongoing, 5, Version2, 1)
	owing.Owed = &Owed{true, clock.UnixMilli(), parts(1)}
	return []tableState{
		{"unknown", nil},
		{"empty", meta(Empty, 5, Version0)},
		{"ongoing", meta(Ongoing, 5, Version0, 1)},
		{"ongoing at version 2", meta(Ongoing, 5, Version2, 1)},
		{"committing", meta(PrepareCommit, 5, Version0, 1, 2)},
		{"aborting", meta(PrepareAbort, 5, Version0, 1)},
		{"committing at version 2", meta(PrepareCommit, 5, Version2, 1)},
		{"aborting at version 2", meta(PrepareAbort, 5, Version2, 1)},
		{"committed", meta(CompleteCommit, 5, Version0)},
		{"aborted", meta(CompleteAbort, 5, Version0)},
		{"committed at version 2", meta(CompleteCommit, 5, Version2)},
		{"aborted at version 2, or timed out", timedOut},
		{"aborted for a new owner", fenced},
		{"ongoing in the last epoch", exhausted},
		{"committing out of the last epoch", next},
		{"committed out of the last epoch", rotated},
		{"ongoing, markers of the commit before owed", owing},
	}
}

type tableEvent struct {
	name  string
	event Event
}

func tableEvents() []tableEvent {
	r := &rig{id: 101}
	list := []tableEvent{
		{"InitProducerId", r.init(1)},
		{"InitProducerId 7:5", r.resume(1, 7, 5)},
		{"InitProducerId 7:4", r.resume(1, 7, 4)},
		{"InitProducerId 7:3", r.resume(1, 7, 3)},
		{"InitProducerId 7:32766", r.resume(1, 7, lastEpoch)},
		{"InitProducerId 8:5", r.resume(1, 8, 5)},
		{"InitProducerId, too long a timeout", InitProducerID{Request: 1, Timeout: time.Hour, ProducerID: None, Epoch: None, Fresh: 101}},
	}
	for _, v := range []Version{Version0, Version2} {
		at := fmt.Sprintf(" v%d", v)
		list = append(list,
			tableEvent{"AddPartitions 7:5 1" + at, r.add(1, 7, 5, v, 1)},
			tableEvent{"AddPartitions 7:5 1,3" + at, r.add(1, 7, 5, v, 1, 3)},
			tableEvent{"AddPartitions 7:4 1" + at, r.add(1, 7, 4, v, 1)},
			tableEvent{"AddPartitions 8:5 1" + at, r.add(1, 8, 5, v, 1)},
			tableEvent{"AddPartitions 100:0 1" + at, r.add(1, 100, 0, v, 1)},
			tableEvent{"EndTxn 7:5 commit" + at, r.end(1, 7, 5, true, v)},
			tableEvent{"EndTxn 7:5 abort" + at, r.end(1, 7, 5, false, v)},
			tableEvent{"EndTxn 7:4 commit" + at, r.end(1, 7, 4, true, v)},
			tableEvent{"EndTxn 7:4 abort" + at, r.end(1, 7, 4, false, v)},
			tableEvent{"EndTxn 7:3 commit" + at, r.end(1, 7, 3, true, v)},
			tableEvent{"EndTxn 8:5 commit" + at, r.end(1, 8, 5, true, v)},
			tableEvent{"EndTxn 7:32766 commit" + at, r.end(1, 7, lastEpoch, true, v)},
		)
	}
	return append(list,
		tableEvent{"Verify 7:5 1", Verify{1, 7, 5, parts(1)}},
		tableEvent{"Verify 7:5 1,3", Verify{1, 7, 5, parts(1, 3)}},
		tableEvent{"Verify 7:4 1", Verify{1, 7, 4, parts(1)}},
		tableEvent{"Marked t-1 7:5", Marked{Partition{"t", 1}, 7, 5}},
		tableEvent{"Marked t-1 7:4", Marked{Partition{"t", 1}, 7, 4}},
		tableEvent{"transaction timeout", Timer{TimerTransaction}},
		tableEvent{"resend", Timer{TimerResend}},
		tableEvent{"expiry", Timer{TimerExpiry}},
		tableEvent{"durable", Durable{}},
		tableEvent{"lost", Lost{}},
	)
}
