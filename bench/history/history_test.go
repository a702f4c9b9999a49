package history

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var twoTopics = []Partition{{"in", 0}, {"in", 1}, {"out", 0}}

func TestARecordIsReadBackAsItWasWritten(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	w, err := Create(dir, 7, twoTopics)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Stream(RoleAcks, "p00")
	if err != nil {
		t.Fatal(err)
	}
	want := make([]Record, 50_000)
	for i := range want {
		want[i] = randomRecord(rnd)
		s.Append(want[i])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(t, filepath.Join(dir, "p00.hist"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if st := w.Stats(); st.Records != int64(len(want)) || st.Dropped != 0 || st.Bytes > int64(len(want))*MaxRecordBytes {
		t.Fatalf("stats %+v", st)
	}
}

func TestNoRecordTakesMoreThanTwentyFourBytes(t *testing.T) {
	for _, r := range farthestRecords() {
		c := newCoder(MaxPartition + 1)
		if n := len(c.append(nil, &r)); n > MaxRecordBytes {
			t.Errorf("%+v takes %d bytes", r, n)
		}
		back := Record{Kind: r.Kind, Step: r.Step, Producer: 1}
		if n := len(c.append(nil, &back)); n > MaxRecordBytes {
			t.Errorf("after it, %+v takes %d bytes", back, n)
		}
	}
}

// farthestRecords are records of each kind at the limits of the format.
func farthestRecords() (all []Record) {
	far := Record{Producer: MaxProducer, Session: MaxSession, Partition: MaxPartition, Sequence: MaxSequence, Offset: MaxOffset, Txn: MaxTxn,
		Epoch: 1<<31 - 2, At: MaxTime}
	add := func(k Kind, s Step, res Result) {
		r := far
		r.Kind, r.Step, r.Result = k, s, res
		all = append(all, r)
	}
	for k := Sent; k <= Group; k++ {
		switch k {
		case Outcome:
			for _, result := range []Result{OK, Failed, Unknown} {
				add(k, 0, result)
			}
		case Transaction:
			for step := Inited; step <= InDoubt; step++ {
				add(k, step, 0)
			}
		case Group:
			for step := Assigned; step <= Thawed; step++ {
				add(k, step, Unknown)
			}
		default:
			add(k, 0, 0)
		}
	}
	return all
}

func TestASenderIsNeverHeldUpAndLostRecordsAreCounted(t *testing.T) {
	const queue = 4
	w, err := create(t.TempDir(), 1, twoTopics, queue)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Stream(RoleSends, "p00")
	if err != nil {
		t.Fatal(err)
	}
	// The writing goroutine is stuck on this stream's own write, as on a stalled disk, until the pipe is closed.
	r, stuck, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	file := s.f
	s.f = stuck
	const n = (queue + 20) * blockBytes / 4
	for i := range uint64(n) {
		s.Append(Record{Kind: Sent, Sequence: i, At: time.Duration(i) * time.Microsecond})
	}
	dropped := w.Stats().Dropped
	if dropped == 0 {
		t.Fatal("nothing was counted as dropped")
	}
	r.Close()
	stuck.Close()
	file.Close()
	if err := w.Close(); err == nil {
		t.Fatal("the write error was not reported")
	}
}

func TestAnUnknownVersionIsRefusedAsAVersion(t *testing.T) {
	path := writeSome(t, 10)
	b, _ := os.ReadFile(path)
	b[4] = 99
	os.WriteFile(path, b, 0o644)
	if _, err := OpenReader(path); !errors.Is(err, ErrVersion) {
		t.Fatalf("got %v", err)
	}
}

func TestDamageIsReportedWithItsPlace(t *testing.T) {
	path := writeSome(t, 10_000)
	whole, _ := os.ReadFile(path)
	for name, damage := range map[string]func([]byte) []byte{
		"flipped bit": func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"cut tail":    func(b []byte) []byte { return b[:len(b)-5] },
		"bad header":  func(b []byte) []byte { b[12] ^= 1; return b },
		"empty":       func([]byte) []byte { return nil },
	} {
		os.WriteFile(path, damage(append([]byte(nil), whole...)), 0o644)
		_, err := readAll(t, path)
		var c *CorruptError
		if !errors.As(err, &c) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	b, _ := os.ReadFile(writeSome(f, 100))
	f.Add(b)
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "x.hist")
		os.WriteFile(path, b, 0o644)
		readAll(t, path)
	})
}

func BenchmarkAppend(b *testing.B) {
	w, _ := Create(b.TempDir(), 1, twoTopics)
	s, _ := w.Stream(RoleAcks, "p00")
	b.ReportAllocs()
	for i := range b.N {
		s.Append(Record{Kind: Outcome, Result: OK, Partition: uint32(i % 3), Sequence: uint64(i / 3), Offset: int64(i / 3), At: time.Duration(i) * 7 * time.Microsecond})
	}
	w.Close()
}

func BenchmarkNext(b *testing.B) {
	path := writeSome(b, 1_000_000)
	b.ResetTimer()
	for n := 0; n < b.N; {
		r, _ := OpenReader(path)
		var rec Record
		for n < b.N && r.Next(&rec) {
			n++
		}
		r.Close()
	}
}

func writeSome(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	w, err := Create(dir, 1, twoTopics)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Stream(RoleReads, "c00")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		s.Append(Record{Kind: Delivered, Producer: uint16(i % 4), Sequence: uint64(i / 4), Partition: uint32(i % 3), Offset: int64(i / 3), At: time.Duration(i) * time.Microsecond})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "c00.hist")
}

func readAll(t testing.TB, path string) ([]Record, error) {
	r, err := OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var all []Record
	var rec Record
	for r.Next(&rec) {
		all = append(all, rec)
	}
	return all, r.Err()
}

func randomRecord(rnd *rand.Rand) Record {
	at := time.Duration(rnd.Int64N(int64(MaxTime/time.Microsecond))) * time.Microsecond
	r := Record{Kind: Kind(1 + rnd.IntN(int(Group))), Partition: uint32(rnd.IntN(3)), Offset: -1, At: at}
	switch {
	case r.isAnswer():
		r.Offset, r.Epoch = rnd.Int64N(MaxOffset), rnd.Int32()-1
		r.Asked = at - time.Duration(rnd.Int64N(1000))*time.Microsecond
		return r
	case r.Kind == Origin:
		r.Offset, r.At = rnd.Int64N(MaxOffset), 0
		return r
	}
	r.Producer, r.Session = uint16(rnd.IntN(5)), uint16(rnd.IntN(3))
	if rnd.IntN(2) == 0 {
		r.Producer, r.Session = uint16(rnd.IntN(MaxProducer+1)), uint16(rnd.IntN(MaxSession+1))
	}
	switch r.Kind {
	case Transaction:
		r.Partition, r.Step = 0, Step(1+rnd.IntN(int(InDoubt)))
		switch r.Step {
		case Inited:
			r.Epoch = int32(rnd.IntN(1<<15)) - 1
			return r
		case Aborted, InDoubt:
			r.Class = uint8(rnd.IntN(256))
		}
		r.Txn = uint32(rnd.IntN(MaxTxn + 1))
		return r
	case Group:
		return randomStep(rnd, r)
	}
	r.Sequence = rnd.Uint64N(MaxSequence)
	switch r.Kind {
	case Sent:
		r.Txn = uint32(rnd.IntN(MaxTxn + 1))
	case Outcome:
		if r.Result = Result(1 + rnd.IntN(3)); r.Result != OK {
			r.Class = uint8(rnd.IntN(256))
		} else if rnd.IntN(10) > 0 {
			r.Offset = rnd.Int64N(MaxOffset)
		}
	case Delivered:
		r.Flags, r.Offset, r.Txn = uint8(rnd.IntN(8)), rnd.Int64N(MaxOffset), uint32(rnd.IntN(MaxTxn+1))
	}
	return r
}

func randomStep(rnd *rand.Rand, r Record) Record {
	r.Step = Assigned + Step(rnd.IntN(int(Thawed-Assigned)+1))
	offset, epoch := r.Step.has()
	if offset {
		r.Offset = rnd.Int64N(MaxOffset+2) - 1
	}
	if epoch {
		r.Epoch = rnd.Int32() - 1
	}
	switch r.Step {
	case CommitAsked:
		r.Txn = uint32(rnd.IntN(MaxTxn + 1))
	case PollEnd:
		r.Asked = r.At - time.Duration(rnd.Int64N(1000))*time.Microsecond
	case CommitAnswered:
		r.Asked = r.At - time.Duration(rnd.Int64N(1000))*time.Microsecond
		if r.Result = Result(1 + rnd.IntN(3)); r.Result != OK {
			r.Class = uint8(rnd.IntN(256))
		}
	}
	return r
}
