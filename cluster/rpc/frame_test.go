package rpc

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

func TestPartHeadRoundTrip(t *testing.T) {
	want := partHead{
		last: true, sums: true, fromLen: 3, toLen: 4, entries: 5, id: 6, group: GroupID{Topic: [16]byte{7}, Partition: 8},
		term: 9, prevIndex: 10, prevTerm: 11, commit: 12, leaderLast: 13, bodies: 14, restSum: 15,
	}
	b := make([]byte, partHeadSize)
	want.encode(b)
	var got partHead
	if err := got.decode(b, 1<<20); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(partHead{})); diff != "" {
		t.Error(diff)
	}
	for i := range b[:84] {
		c := bytes.Clone(b)
		c[i] ^= 0x40
		if err := got.decode(c, 1<<20); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
}

func TestReplyRoundTrip(t *testing.T) {
	want := reply{success: true, noBackoff: true, code: 3, id: 4, term: 5, lastLog: 6, text: "why"}
	b := want.encode(nil)
	var got reply
	n, err := got.decode(b)
	if err != nil || n != 3 {
		t.Fatal(n, err)
	}
	got.text = string(b[replyHeadSize:])
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(reply{})); diff != "" {
		t.Error(diff)
	}
}

func TestHelloRoundTrip(t *testing.T) {
	want := hello{version: 1, cluster: "c-1", from: 2, to: 3}
	b := want.encode()
	got, err := readHello(bytes.NewReader(b[magicSize:]))
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, err := range []error{nil, ErrVersion, &remoteError{ErrForeignCluster, "two clusters"}, errors.New("other")} {
		got := readWelcome(bytes.NewReader(encodeWelcome(err)))
		if (err == nil) != (got == nil) || err != nil && err.Error() != got.Error() {
			t.Errorf("welcome of %v arrives as %v", err, got)
		}
	}
	if err := readWelcome(bytes.NewReader(encodeWelcome(&remoteError{ErrForeignCluster, "two clusters"}))); !errors.Is(err, ErrForeignCluster) {
		t.Errorf("%v does not compare", err)
	}
}

func TestServerIDNamesNodeAndIncarnation(t *testing.T) {
	id := MakeServerID(12, 0xfeed)
	if id != "12.000000000000feed" || id.Node() != 12 || id.Incarnation() != 0xfeed {
		t.Errorf("%s: node %d, incarnation %x", id, id.Node(), id.Incarnation())
	}
	for _, bad := range []ServerID{"", "12", "x.1", "-1.1", ".", "99999999999.1"} {
		if bad.Node() != 0 {
			t.Errorf("%q is node %d", bad, bad.Node())
		}
	}
}

func TestBuffersAreOverwrittenWhenTheyComeBack(t *testing.T) {
	p := buffers{poison: true}
	b := p.get(100)
	copy(b, "still used")
	p.put(b)
	if b[0] != 0xDB || b[:cap(b)][cap(b)-1] != 0xDB {
		t.Errorf("released buffer holds %x", b[:4])
	}
}

func TestBudgetServesWhatIsAboveItsLimitAlone(t *testing.T) {
	b := newBudget(100)
	n, ok := b.acquire(500, nil, 0)
	if !ok || n != 100 {
		t.Fatalf("charged %d, %v", n, ok)
	}
	if _, ok := b.acquire(1, nil, ms); ok {
		t.Error("more than the limit is held")
	}
	got := make(chan bool)
	go func() {
		_, ok := b.acquire(1, nil, 30*1000*ms)
		got <- ok
	}()
	b.release(n)
	if !<-got {
		t.Error("freed bytes were not handed on")
	}
}

// FuzzReadPart feeds arbitrary bytes to the receiving end of a plain stream:
// it must refuse or skip them, without a panic and without reserving what a
// head merely claims.
func FuzzReadPart(f *testing.F) {
	pool := &buffers{}
	entries := []*raft.Log{{Index: 5, Term: 2, Data: []byte("data"), Extensions: []byte{1}}, {Index: 6, Term: 2, Data: make([]byte, 3000)}}
	bufs, _, _ := encodePart(pool, nil, partHead{last: true, sums: true, id: 1, group: GroupID{Partition: 1}, term: 2, prevIndex: 4, prevTerm: 2}, "1.a", "2.a", entries, 3005)
	whole := bytes.Join(bufs, nil)
	f.Add(whole)
	f.Add(whole[:partHeadSize])
	f.Add(append(bytes.Clone(whole), whole...))
	huge := bytes.Clone(whole)
	(&partHead{entries: 1, bodies: 60 << 20, group: GroupID{Partition: 1}}).encode(huge)
	f.Add(huge)
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := New(Config{Node: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		g := n.Group(GroupID{Partition: 1}, "2.a", nil, GroupOptions{Bulk: true}).(*group)
		defer serveAll(g)()
		readAll(n, b)
	})
}
