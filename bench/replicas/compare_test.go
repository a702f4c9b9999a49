package replicas

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// batch encodes one of n records from base on; its records are size bytes that nobody decodes.
func batch(base int64, n int, epoch int32, size int) []byte {
	b := make([]byte, headBytes+size)
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-atEpoch))
	binary.BigEndian.PutUint32(b[atEpoch:], uint32(epoch))
	b[atMagic] = magic
	binary.BigEndian.PutUint32(b[atDelta:], uint32(n-1))
	for i := headBytes; i < len(b); i++ {
		b[i] = byte(base) + byte(i)*7
	}
	binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atSummed:], castagnoli))
	return b
}

// partition is what each of three nodes has of in/0: segments by their base offset.
type partition []map[int64][]byte

// honest is a partition of 3 batches a segment, the same at all nodes.
func honest(batches int) partition {
	p := partition{{}, {}, {}}
	var segment int64
	for i := range batches {
		base := int64(i * 2)
		if i%3 == 0 {
			segment = base
		}
		for node := range p {
			p[node][segment] = append(p[node][segment], batch(base, 2, int32(1+i/7), 40+i)...)
		}
	}
	return p
}

func (p partition) write(t *testing.T) (nodes []Node) {
	t.Helper()
	for i, segments := range p {
		n := Node{ID: i + 1, Data: t.TempDir()}
		dir := n.dir()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for base, b := range segments {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d.log", base)), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func (n Node) dir() string { return filepath.Join(n.Data, topicsDir, "in-0") }

func everything(string) bool { return true }

// generous limits, and no patience: what tests plant stays.
var generous = Limits{Whole: 1 << 30, Time: time.Minute, Patience: -time.Minute}

func read(t *testing.T, nodes []Node, l Limits) Partition {
	t.Helper()
	r, err := Read(t.Context(), nodes, everything, l)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Partitions) != 1 {
		t.Fatalf("%d partitions", len(r.Partitions))
	}
	return r.Partitions[0]
}

func TestWhatIsNotTheSameAtOneReplicaIsFoundWithNodeAndOffset(t *testing.T) {
	const batches = 20
	for name, c := range map[string]struct {
		bend      func(p partition)
		different int64
		want      Difference
		behind    int
	}{
		"nothing":               {func(partition) {}, 0, Difference{}, 0},
		"a flipped byte":        {func(p partition) { p[1][12][headBytes+5] ^= 1 }, 1, Difference{2, 12, Damaged, "the bytes have checksum"}, 0},
		"another epoch":         {func(p partition) { p[2][12][atEpoch+3] = 9 }, 1, Difference{3, 12, Divergent, "epoch 9, "}, 0},
		"an entry of its own":   {func(p partition) { copy(p[0][12], bent(p[0][12][:headBytes+46])) }, 1, Difference{1, 12, Divergent, "at node 2 epoch 1"}, 0},
		"a batch cut otherwise": {func(p partition) { p[1][36] = append(batch(36, 1, 3, 58), batch(37, 3, 3, 59)...) }, 2, Difference{2, 36, Divergent, "epoch 3"}, 0},
		"a length that is none": {func(p partition) { p[1][12][atLength] = 0xff }, 1, Difference{2, 12, Damaged, "no record batch at byte 0 of 00000000000000000012.log"}, 1},
		"a shorter copy":        {func(p partition) { delete(p[2], 36) }, 0, Difference{}, 1},
		"half a batch at the end": {func(p partition) {
			p[2][36] = append(p[2][36], batch(40, 1, 3, 100)[:90]...)
		}, 0, Difference{}, 0},
		"room made in advance": {func(p partition) { p[0][36] = append(p[0][36], make([]byte, 500)...) }, 0, Difference{}, 0},
		"a head that was deleted": {func(p partition) {
			delete(p[0], 0)
			delete(p[0], 6)
			delete(p[1], 0)
		}, 0, Difference{}, 0},
		"one segment for many": {func(p partition) {
			p[1][12] = append(p[1][12], p[1][18]...)
			delete(p[1], 18)
		}, 0, Difference{}, 0},
		"an empty copy": {func(p partition) { clear(p[2]) }, 0, Difference{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := honest(batches)
			c.bend(p)
			got := read(t, p.write(t), generous)
			if got.Different != c.different || len(got.Behind()) != c.behind || got.Stopped != "" {
				t.Errorf("%d different, behind %v, stopped %q: %+v", got.Different, got.Behind(), got.Stopped, got)
			}
			if got.Batches != got.Whole {
				t.Errorf("%d batches, %d byte by byte", got.Batches, got.Whole)
			}
			if c.different == 0 {
				return
			}
			d := got.Differences[0]
			if d.Node != c.want.Node || d.Offset != c.want.Offset || d.Kind != c.want.Kind || !strings.Contains(d.What, c.want.What) {
				t.Errorf("got %+v, want %+v", d, c.want)
			}
		})
	}
}

// bent is another sound batch at the same place.
func bent(b []byte) []byte {
	b = append([]byte(nil), b...)
	b[headBytes]++
	binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atSummed:], castagnoli))
	return b
}

func TestAHeadThatOneReplicaDeletedIsNotCompared(t *testing.T) {
	p := honest(20)
	delete(p[1], 0)
	p[0][0][headBytes] ^= 1 // below
	got := read(t, p.write(t), generous)
	if got.From != 6 || got.To != 40 || got.Batches != 17 || got.Different != 0 {
		t.Errorf("%+v", got)
	}
}

// Whichever single bit of a replica is another, it is found, and named with the right node.
func TestEveryFlippedBitIsFound(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 100 {
		p := honest(8)
		node, segment := rnd.IntN(3), int64(6*rnd.IntN(3))
		b := p[node][segment]
		at, bit := rnd.IntN(len(b)), rnd.IntN(8)
		b[at] ^= 1 << bit
		got := read(t, p.write(t), generous)
		blamed := false
		for _, d := range got.Differences {
			blamed = blamed || d.Node == node+1
		}
		// a length that has grown beyond the file looks like a batch of which the rest is to come
		if behind := got.Behind(); !blamed && (len(behind) != 1 || behind[0].Node != node+1) {
			t.Fatalf("seed %d: node %d, segment %d, byte %d, bit %d: %+v", seed, node+1, segment, at, bit, got)
		}
	}
}

func TestBeyondItsLimitsOnlyHeadsAreComparedAndItIsSaid(t *testing.T) {
	p := honest(20)
	p[1][12][headBytes+5] ^= 1
	p[2][36][atEpoch+3] = 9
	l := generous
	l.Whole = 0
	got := read(t, p.write(t), l)
	if got.Batches != 20 || got.Whole != 0 || got.Different != 1 || got.Differences[0].Offset != 36 {
		t.Errorf("%+v", got)
	}
	p = honest(3 * lookEvery)
	l.Time = -time.Second
	r, err := Read(t.Context(), p.write(t), everything, l)
	if err != nil || len(r.Unread) != 1 || r.Partitions[0].Batches != lookEvery || !strings.Contains(r.Unread[0], "in/0: the time for it was over at offset 512") {
		t.Errorf("%v %+v", err, r)
	}
}

// What a replica has not got yet, or has not dropped yet, is no difference once it has.
func TestAReplicaThatIsOnItsWayIsWaitedFor(t *testing.T) {
	p, late := honest(20), honest(20)
	delete(late[2], 36)
	copy(late[1][30], bent(late[1][30][:headBytes+55]))
	nodes := late.write(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		time.Sleep(again / 2)
		for node := 1; node < 3; node++ {
			for base, b := range p[node] {
				if err := os.WriteFile(filepath.Join(nodes[node].dir(), fmt.Sprintf("%020d.log", base)), b, 0o644); err != nil {
					t.Error(err)
				}
			}
		}
	})
	l := generous
	l.Patience = time.Minute
	got := read(t, nodes, l)
	wg.Wait()
	if got.Different != 0 || len(got.Behind()) != 0 || got.To != 40 {
		t.Errorf("%+v", got)
	}
}

func TestOnlyWantedTopicsAreRead(t *testing.T) {
	nodes := honest(4).write(t)
	for _, d := range []string{"other-0", "nonsense", "in-0.deleted"} {
		if err := os.MkdirAll(filepath.Join(nodes[0].Data, topicsDir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Read(t.Context(), append(nodes, Node{ID: 4, Data: t.TempDir()}), func(topic string) bool { return topic == "in" }, generous)
	if err != nil || len(r.Partitions) != 1 || len(r.Partitions[0].Copies) != 3 {
		t.Errorf("%v %+v", err, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, honest(2*lookEvery).write(t), everything, generous); err == nil {
		t.Error("nobody waits for it any more, and it went on")
	}
}

func BenchmarkCompare(b *testing.B) {
	dirs := []Copy{{Node: 1, Dir: b.TempDir()}, {Node: 2, Dir: b.TempDir()}, {Node: 3, Dir: b.TempDir()}}
	const batches, size = 2000, 16 << 10
	var segment []byte
	for i := range batches {
		segment = append(segment, batch(int64(i), 1, 1, size)...)
	}
	for _, c := range dirs {
		if err := os.WriteFile(filepath.Join(c.Dir, fmt.Sprintf("%020d.log", 0)), segment, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for name, whole := range map[string]int64{"whole": 1 << 40, "heads": 0} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(3 * len(segment)))
			for b.Loop() {
				if p, err := Compare(b.Context(), "in", 0, append([]Copy(nil), dirs...), Bounds{whole, time.Now().Add(time.Minute)}); err != nil || p.Batches != batches {
					b.Fatal(err, p)
				}
			}
		})
	}
}

// A partition that stays different takes nothing from the others.
func TestOneThatStaysDifferentLeavesTheOthersTheirTime(t *testing.T) {
	p := honest(2 * lookEvery)
	nodes := p.write(t)
	for _, n := range nodes {
		for k, name := range []string{"aa-0", "zz-0"} { // smaller, and as large
			dir := filepath.Join(n.Data, topicsDir, name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			b := batch(0, 2, 1, 30+k*n.ID)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d.log", 0)), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := Read(t.Context(), nodes, everything, Limits{Whole: 1 << 30, Time: 30 * time.Second, Patience: 2 * again})
	if err != nil || len(r.Partitions) != 3 || len(r.Unread) != 0 {
		t.Fatalf("%v %+v", err, r)
	}
	for _, p := range r.Partitions {
		if want := map[string]int64{"zz": 1}[p.Topic]; p.Different != want {
			t.Errorf("%+v", p)
		}
	}
}
