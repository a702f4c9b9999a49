package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestAPartitionThatNobodyLeadsHasNoOffsetsToShow(t *testing.T) {
	var out bytes.Buffer
	d := topicDetail{Detail: []partitionDetail{{Leader: -1, LeaderEpoch: 4, Replicas: []int32{1}, Start: -1, End: -1}}}
	if err := d.print(&session{out: &out}); err != nil || strings.Join(strings.Fields(strings.Split(out.String(), "\n")[2]), " ") != "0 none 4 1 none - -" {
		t.Errorf("%v, described as\n%s", err, out.String())
	}
}
