package hdr

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestMergedWorkersEqualOneWorker(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	one := NewRecorder(time.Second)
	workers := []*Recorder{NewRecorder(time.Second), NewRecorder(time.Second), NewRecorder(time.Second)}
	for range 30_000 {
		at, d := time.Duration(rnd.Int64N(int64(10*time.Second))), time.Duration(rnd.ExpFloat64()*float64(time.Millisecond))
		one.Record(at, d)
		workers[rnd.IntN(3)].Record(at, d)
	}
	a, b := Merge(one), Merge(workers...)
	if a.Len() != b.Len() || a.All().Count() != 30_000 || b.All().Count() != 30_000 {
		t.Fatalf("%d intervals, %d samples; %d intervals, %d samples", a.Len(), a.All().Count(), b.Len(), b.All().Count())
	}
	for i := range a.Len() {
		for _, p := range []float64{50, 99, 100} {
			x, _ := a.At(i).Percentile(p)
			if y, _ := b.At(i).Percentile(p); x != y {
				t.Errorf("interval %d p%v: %v, %v", i, p, x, y)
			}
		}
	}
}

func TestALateSampleFindsItsInterval(t *testing.T) {
	r := NewRecorder(time.Second)
	r.Record(500*time.Millisecond, time.Millisecond)
	r.Record(9500*time.Millisecond, time.Millisecond)
	r.Record(600*time.Millisecond, 30*time.Second) // completes long after its interval
	s := Merge(r)
	if got := s.At(0); got.Count() != 2 || got.Max() < 30*time.Second {
		t.Fatalf("first interval: %d samples, max %v", got.Count(), got.Max())
	}
	if s.At(9).Count() != 1 || s.At(5).Count() != 0 || s.Range(0, 9*time.Second).Count() != 2 {
		t.Fatal("samples in the wrong interval")
	}
}

func TestNoValueIsDropped(t *testing.T) {
	r := NewRecorder(time.Second)
	for _, d := range []time.Duration{-time.Second, 0, 1, time.Minute, time.Hour, 30 * time.Hour} {
		r.Record(0, d)
	}
	s := Merge(r)
	if s.All().Count() != 6 || s.Negative() != 1 || s.Beyond() != 1 {
		t.Fatalf("%d samples, %d negative, %d beyond", s.All().Count(), s.Negative(), s.Beyond())
	}
	if again := Merge(r); again.All().Count() != 6 {
		t.Fatal("merging changed the recorder")
	}
}

func TestPercentilesWithTooFewSamplesAreRefused(t *testing.T) {
	r := NewRecorder(time.Second)
	for i := range 1000 {
		r.Record(0, time.Duration(i+1)*time.Millisecond)
	}
	h := Merge(r).All()
	for p, want := range map[float64]bool{50: true, 99: true, 99.9: false, 99.99: false, 100: true} {
		if _, ok := h.Percentile(p); ok != want {
			t.Errorf("p%v of 1000 samples: ok = %v", p, ok)
		}
	}
	if d, _ := h.Percentile(99); d < 989*time.Millisecond || d > 991*time.Millisecond {
		t.Errorf("p99 = %v", d)
	}
	points := h.Points()
	if last := points[len(points)-1].Percentile; last > 99 || last < 98 {
		t.Errorf("the spectrum ends at p%v", last)
	}
	if Enough(99.9) != 10_000 || Enough(99.99) != 100_000 || Enough(50) != 20 {
		t.Error(Enough(99.9), Enough(99.99), Enough(50))
	}
}

func TestALogIsReadBack(t *testing.T) {
	a, b := NewRecorder(time.Second), NewRecorder(time.Second)
	for i := range 5000 {
		a.Record(time.Duration(i)*2*time.Millisecond, time.Duration(i)*time.Microsecond)
		b.Record(time.Duration(i)*time.Millisecond, 90*time.Minute)
	}
	start := time.UnixMilli(1_790_000_000_123).UTC()
	var buf bytes.Buffer
	for tag, r := range map[string]*Recorder{"ack": a, "visible": b} {
		if err := Merge(r).WriteLog(&buf, tag, start); err != nil {
			t.Fatal(err)
		}
	}
	got, at, err := ReadLog(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if !at.Equal(start) || len(got) != 2 {
		t.Fatalf("start %v, tags %v", at, got)
	}
	want := Merge(a)
	if got["ack"].Len() != want.Len() || got["ack"].Interval() != time.Second {
		t.Fatalf("%d intervals of %v", got["ack"].Len(), got["ack"].Interval())
	}
	for i := range want.Len() {
		x, y := want.At(i), got["ack"].At(i)
		p, _ := x.Percentile(50)
		q, _ := y.Percentile(50)
		if x.Count() != y.Count() || x.Max() != y.Max() || p != q {
			t.Errorf("interval %d: %d %v %v, read %d %v %v", i, x.Count(), x.Max(), p, y.Count(), y.Max(), q)
		}
	}
}

func TestPercentileTextIsInMilliseconds(t *testing.T) {
	r := NewRecorder(time.Second)
	for range 100 {
		r.Record(0, 5*time.Millisecond)
	}
	var buf bytes.Buffer
	if err := Merge(r).All().WritePercentiles(&buf); err != nil {
		t.Fatal(err)
	}
	if s := buf.String(); !strings.Contains(s, "Percentile") || !strings.Contains(s, "5.00") || !strings.Contains(s, "Total count    =          100") {
		t.Fatal(s)
	}
}

func BenchmarkRecord(b *testing.B) {
	r := NewRecorder(time.Second)
	rnd := rand.New(rand.NewPCG(1, 1))
	ds := make([]time.Duration, 4096)
	for i := range ds {
		ds[i] = time.Duration(rnd.ExpFloat64() * float64(3*time.Millisecond))
	}
	b.ReportAllocs()
	for i := range b.N {
		r.Record(time.Duration(i)*7*time.Microsecond, ds[i%4096])
	}
}
