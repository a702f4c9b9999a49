package replica

import (
	"bytes"
	"testing"
)

func TestThreeReplicasCommitTheSameBytesOverSockets(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, steady, func(o *rigOptions) { o.fabric = newSockets(t) })
	l := r.leader()
	l.produce(200, 3, "a")
	r.converge()
	want := r.nodes[0].bytesOf()
	for _, x := range r.nodes[1:] {
		if got := x.bytesOf(); !bytes.Equal(got, want) {
			t.Errorf("node %d holds %d bytes that differ from node 1's %d", x.id, len(got), len(want))
		}
	}
	if got := l.log.EndOffset(); got != 600 {
		t.Errorf("log ends at offset %d, want 600", got)
	}
	r.check()
}
