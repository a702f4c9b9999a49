package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

func times(a Arrivals, n int) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = a.Next()
	}
	return out
}

func TestConstantArrivalsInterleaveAndNeverDrift(t *testing.T) {
	l := scenario.Load{Arrival: "constant", Rate: 3000}
	a, b := times(NewArrivals(l, 1, 0, 2), 1_500_001), times(NewArrivals(l, 1, 1, 2), 2)
	if a[1_500_000] != 1000*time.Second {
		t.Errorf("after 1,500,000 slots of one of two producers: %v", a[1_500_000])
	}
	if a[0] != 0 || b[0] != a[1]/2 {
		t.Errorf("%v, %v, %v", a[0], b[0], a[1])
	}
}

func TestPoissonArrivalsHaveTheRateAndSpreadOfTheirSeed(t *testing.T) {
	l := scenario.Load{Arrival: "poisson", Rate: 10_000}
	const n = 200_000
	a := times(NewArrivals(l, 1, 0, 1), n)
	mean := a[n-1].Seconds() / n
	if math.Abs(mean*10_000-1) > 0.01 {
		t.Errorf("mean gap %v s", mean)
	}
	short := 0
	for i := 1; i < n; i++ {
		if gap := (a[i] - a[i-1]).Seconds(); gap < mean*math.Ln2 {
			short++
		}
	}
	if share := float64(short) / n; share < 0.49 || share > 0.51 {
		t.Errorf("%.3f of the gaps are below the median of an exponential", share)
	}
	same, other := times(NewArrivals(l, 1, 0, 1), 10), times(NewArrivals(l, 2, 0, 1), 10)
	if fmt.Sprint(same) != fmt.Sprint(a[:10]) || fmt.Sprint(other) == fmt.Sprint(a[:10]) {
		t.Error("the seed does not decide the schedule")
	}
}

func TestLateSlotsGoOutTogetherAndNoneIsSkipped(t *testing.T) {
	clock := NewClock()
	p := NewPacer(clock, NewArrivals(scenario.Load{Arrival: "constant", Rate: 1000}, 1, 0, 1), 1)
	clock.Start()
	var got []time.Duration
	err := p.Run(t.Context(), 300*time.Millisecond, func(at time.Duration) {
		if len(got) == 100 {
			time.Sleep(100 * time.Millisecond) // a hiccup of the harness itself
		}
		got = append(got, at)
	})
	if err != nil || len(got) != 300 {
		t.Fatalf("%v, %d slots", err, len(got))
	}
	for i, at := range got {
		if at != time.Duration(i)*time.Millisecond {
			t.Fatalf("slot %d was due at %v", i, at)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewPacer(clock, NewArrivals(scenario.Load{Arrival: "constant", Rate: 1}, 1, 0, 1), 1).Run(ctx, time.Hour, func(time.Duration) {}); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

func TestANullTargetShowsTheCeilingOfTheHarness(t *testing.T) {
	p := smallPlan(t, scenario.AtLeastOnce)
	p.HistoryDir = ""
	p.Load.Rate = 20_000
	out, err := Run(t.Context(), NewNull(), p)
	if err != nil {
		t.Fatal(err)
	}
	n := out.Ack.All().Count()
	if n < 15_000 || out.Late.All().Count() != n || len(out.Invalid) > 0 || !out.Drain.Complete {
		t.Fatalf("%d messages, drain %+v, %q", n, out.Drain, out.Invalid)
	}
	p50, _ := out.Late.All().Percentile(50)
	p99, _ := out.Late.All().Percentile(99)
	t.Logf("slot lateness p50 %v p99 %v at %v, client CPU %.2f", p50, p99, p.Load.Rate, out.Client.CPU.Seconds()/out.Client.Wall.Seconds())
}

func TestASealedValueIsOpenedAndADamagedOneIsNot(t *testing.T) {
	b := newBodies(scenario.Value{Size: scenario.SizeDist{Fixed: 300}, Entropy: 0.5}, "none", 1, 0)
	v := b.next(nil)
	h := header{Run: 1, Producer: 2, Session: 3, Partition: 4, Sequence: 5, Intended: 6}
	h.seal(v)
	var got header
	if ours, sound := got.open(v); !ours || !sound || got != h {
		t.Fatalf("%v %v %+v", ours, sound, got)
	}
	for i := range v {
		v[i] ^= 0x10
		if ours, sound := got.open(v); ours && sound {
			t.Errorf("byte %d is not covered", i)
		}
		v[i] ^= 0x10
	}
	if ours, sound := got.open(v[:299]); !ours || sound {
		t.Error("a cut value is sound")
	}
	if ours, _ := got.open([]byte("someone else's")); ours {
		t.Error("a stranger's value is ours")
	}
}

func TestValuesHaveTheWantedSizesAndEntropy(t *testing.T) {
	d := scenario.SizeDist{Median: 512, P99: 16 << 10}
	b := newBodies(scenario.Value{Size: d, Entropy: 0.25}, "zstd", 1, 0)
	const n = 20_000
	below, far, bytes, zero := 0, 0, 0, 0
	var v []byte
	for range n {
		v = b.next(v)
		if len(v) <= 512 {
			below++
		}
		if len(v) > 16<<10 {
			far++
		}
		for _, c := range v[HeaderBytes:] {
			bytes++
			if c == 0 {
				zero++
			}
		}
	}
	if below < n*48/100 || below > n*52/100 || far < n/200 || far > n/60 {
		t.Errorf("%d of %d at or below the median, %d beyond p99", below, n, far)
	}
	if share := float64(zero) / float64(bytes); share < 0.73 || share > 0.78 {
		t.Errorf("%.3f of the body is zero", share)
	}
}

func TestKeysFollowTheirDistribution(t *testing.T) {
	const n, space = 100_000, 1000
	count := func(k scenario.Keys) map[string]int {
		k.Space = space
		d := newKeys(k, 1, 0, 1)
		seen := map[string]int{}
		var key []byte
		for range n {
			key = d.next(key)
			seen[string(key)]++
		}
		return seen
	}
	if k := newKeys(scenario.Keys{Dist: "none"}, 1, 0, 1).next(nil); k != nil {
		t.Errorf("none: %q", k)
	}
	if c := count(scenario.Keys{Dist: "sequential"}); len(c) != space || c["key-0"] != n/space {
		t.Errorf("sequential: %d keys, %d of the first", len(c), c["key-0"])
	}
	if c := count(scenario.Keys{Dist: "uniform"}); len(c) != space || c["key-7"] > 2*n/space {
		t.Errorf("uniform: %d keys, %d of one", len(c), c["key-7"])
	}
	if c := count(scenario.Keys{Dist: "hotset", HotShare: 0.01, HotLoad: 0.9}); c["key-0"] < 8*n/100 || c["key-0"] > 10*n/100 {
		t.Errorf("hotset: %d of a hot key", c["key-0"])
	}
	for _, theta := range []float64{0, 0.5, 0.99, 1, 1.5} {
		c := count(scenario.Keys{Dist: "zipf", Theta: theta})
		sum := 0.0
		for r := 1.0; r <= space; r++ {
			sum += math.Pow(r, -theta)
		}
		for _, rank := range []int{0, 1, 9} {
			want := n * math.Pow(float64(rank+1), -theta) / sum
			if got := float64(c[fmt.Sprintf("key-%d", rank)]); math.Abs(got-want) > 5*math.Sqrt(want)+1 {
				t.Errorf("zipf %v: rank %d drawn %v times, not %.0f", theta, rank, got, want)
			}
		}
	}
}

func TestPartitionersAgreeWithTheClientsThatUseThem(t *testing.T) {
	kafka := kgo.StickyKeyPartitioner(nil).ForTopic("t") // murmur2, as Kafka's own clients
	murmur, fnv := newPartitioner("murmur2", 1, 0), newPartitioner("fnv1a", 1, 0)
	for i := range 1000 {
		key := []byte(fmt.Sprintf("key-%d", i*i))[:min(i%9+1, 5)]
		key = append(key, byte(i), byte(i>>3))
		if got, want := murmur.choose(key, 0, 7), kafka.Partition(&kgo.Record{Key: key}, 7); got != want {
			t.Fatalf("murmur2 of %q: %d, not %d", key, got, want)
		}
		h := uint64(2166136261)
		for _, c := range key {
			h = (h ^ uint64(c)) * 16777619 & math.MaxUint32
		}
		if got := fnv.choose(key, 0, 7); got != int(h%7) {
			t.Fatalf("fnv1a of %q: %d", key, got)
		}
	}
	turns := newPartitioner("round_robin", 1, 0)
	for i := range 12 {
		if got := turns.choose(nil, 0, 5); got != i%5 {
			t.Fatalf("turn %d: %d", i, got)
		}
	}
	stick := newPartitioner("sticky", 1, 0)
	last, runs := -1, 0
	for range 640 {
		if p := stick.choose(nil, 1024, 6); p != last {
			last = p
			runs++
		}
	}
	if runs != 10 {
		t.Errorf("640 KiB went out in %d runs of 64 KiB", runs)
	}
}

func TestAnOutageLastsWhileSomethingWaitsAndNothingIsAcknowledged(t *testing.T) {
	const ms = time.Millisecond
	var o outageTracker
	o.sent(0)
	o.acked(10 * ms)
	o.sent(500 * ms) // nothing waited in between: a quiet partition is not an outage
	o.acked(510 * ms)
	o.sent(600 * ms)
	o.sent(650 * ms)
	o.gaveUp() // a failure is no acknowledgement
	o.acked(800 * ms)
	o.sent(900 * ms)
	got := o.finish(2000*ms, "t", 3)
	want := []Outage{{"t", 3, 600 * ms, 800 * ms, false}, {"t", 3, 900 * ms, 2000 * ms, true}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v", got)
	}
}

func TestGuaranteesFixTheirSettings(t *testing.T) {
	p := scenario.Producers{Linger: time.Millisecond, BatchBytes: 1 << 20, Compression: "lz4"}
	for g, want := range map[scenario.Guarantee][3]any{scenario.AtMostOnce: {1, false, 0}, scenario.AtLeastOnce: {-1, false, -1}, scenario.Idempotent: {-1, true, -1}} {
		c, err := ConfigOf(g, p, 100)
		if err != nil || [3]any{c.Acks, c.Idempotent, c.Retries} != want || c.Inflight != 5 || c.DeliveryTimeout != 30*time.Second || c.Linger != time.Millisecond || c.Compression != "lz4" {
			t.Errorf("%s: %v %+v", g, err, c)
		}
	}
	p.Overrides = map[string]string{"acks": "all", "retries": "3", "request_timeout": "700ms", "delivery_timeout": "5s", "max_in_flight": "1"}
	c, err := ConfigOf(scenario.AtMostOnce, p, 100)
	if err != nil || c.Acks != -1 || c.Retries != 3 || c.RequestTimeout != 700*time.Millisecond || c.DeliveryTimeout != 5*time.Second || c.Inflight != 1 {
		t.Errorf("%v %+v", err, c)
	}
	_, d := fakeCluster(t)
	deviations := 0
	for _, s := range d.Settings(c) {
		if s.Value == "" || s.Key == "" {
			t.Errorf("%+v", s)
		}
		if s.Deviates {
			deviations++
		}
	}
	if deviations != 5 {
		t.Errorf("%d deviations are marked", deviations)
	}
	p.Overrides = map[string]string{"linger.ms": "3"}
	if _, err := ConfigOf(scenario.AtMostOnce, p, 100); err == nil {
		t.Error("an unknown override passed")
	}
	if _, err := ConfigOf("exactly_once", scenario.Producers{}, 100); err == nil {
		t.Error("an unknown guarantee passed")
	}
}

func TestAnOverloadedTargetShedsAndCountsInsteadOfWaiting(t *testing.T) {
	c, d := fakeCluster(t)
	p := smallPlan(t, scenario.AtLeastOnce)
	p.Load.MaxOutstanding = 50
	clock, held := NewClock(), make(chan struct{})
	var once sync.Once
	p.Clock = clock
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if clock.Now() > 200*time.Millisecond {
			once.Do(func() { time.AfterFunc(1300*time.Millisecond, func() { close(held) }) })
			c.SleepControl(func() { <-held })
		}
		return nil, nil, false
	})
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	var sum PhaseCounts
	for _, x := range out.Phases {
		sum.add(x)
	}
	if sum.Shed == 0 || sum.Slots != sum.Sent+sum.Shed || sum.Acked != sum.Sent {
		t.Errorf("%+v", sum)
	}
	for _, k := range out.Seconds {
		if k.Waiting > 50 {
			t.Errorf("%d outstanding at %v", k.Waiting, k.At)
		}
	}
}

func TestAProberMeasuresAStall(t *testing.T) {
	c, d := fakeCluster(t)
	if err := d.CreateTopics(t.Context(), []TopicSpec{{Name: "in", Partitions: 1, ReplicationFactor: 3}}); err != nil {
		t.Fatal(err)
	}
	clock := NewClock()
	q := history.Partition{Topic: "in", Partition: 0}
	p, err := StartProber(t.Context(), ProbeConfig{Nodes: c.ListenAddrs(), Partitions: []history.Partition{q}, RunID: 1, Acks: -1, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	const from, stall = 300 * time.Millisecond, 2 * time.Second // far longer than a busy machine keeps an answer waiting
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "in", Count: -1, When: func(kmsg.Request) bool {
		now := clock.Now()
		return now >= from && now < from+stall
	}})
	defer fault.Remove()
	clock.Start()
	if err := clock.SleepUntil(t.Context(), from+stall+time.Second); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, g := range p.Stop(stall / 2) {
		found = found || g.Start <= from+stall/2 && g.End >= from+stall
	}
	if !found {
		t.Error("the stall was not measured")
	}
}

func TestAProbeIsMarkedAndIsNoMessageOfTheRun(t *testing.T) {
	raw := probeBatch(9, time.Second)
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw); err != nil {
		t.Fatal(err)
	}
	if int(b.Length) != len(raw)-12 || b.NumRecords != 1 || uint32(b.CRC) != binary.BigEndian.Uint32(raw[17:]) {
		t.Fatalf("%+v", b)
	}
	records, err := kfake.BatchRecords(b)
	if err != nil || len(records) != 1 {
		t.Fatal(err, len(records))
	}
	var h header
	if ours, sound := h.open(records[0].Value); !ours || !sound || h.Flags != flagProbe || h.Run != 9 || bytes.Contains(records[0].Key, []byte("key")) {
		t.Errorf("%v %v %+v", ours, sound, h)
	}
}

func TestPaceIsWhatWasAcknowledgedRightBefore(t *testing.T) {
	var tr outageTracker
	for at := time.Duration(0); at < 3*time.Second; at += time.Millisecond {
		tr.sent(at)
		if at < time.Second || at >= 2*time.Second {
			tr.acked(at)
		} else {
			tr.gaveUp()
		}
	}
	p := Pace{Step: paceStep, Acked: tr.paces}
	for at, want := range map[time.Duration]float64{
		0: 0, 50 * time.Millisecond: 0, 500 * time.Millisecond: 1000, time.Second: 1000, 1500 * time.Millisecond: 500,
		2 * time.Second: 0, 2250 * time.Millisecond: 200, 3 * time.Second: 1000, 4 * time.Second: 0, time.Hour: 0,
	} {
		if got := p.Before(at, time.Second); got != want {
			t.Errorf("before %v: %v a second, want %v", at, got, want)
		}
	}
}
