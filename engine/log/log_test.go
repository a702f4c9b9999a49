package log

import "testing"

func TestAppendReadReopen(t *testing.T) {
	r, w := newRig(t, nil), newTwin()
	r.same(w)
	r.fill(w, side(1, 1))
	r.fill(w, data(2, 1, 3, 100), data(3, 1, 1, 10), side(4, 1), data(5, 2, 2, 2000))
	r.same(w)
	for i := uint64(6); i < 60; i++ {
		r.fill(w, data(i, 2+i/20, 1+int(i%4), 200))
	}
	r.same(w)
	if n := len(r.log.Segments()); n < 5 {
		t.Fatalf("%d segments", n)
	}
	t.Log(r.kill())
	r.same(w)
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	rec := r.kill()
	t.Log(rec)
	r.same(w)
	if rec.Scanned > 0 || len(rec.Rebuilt) > 0 {
		t.Fatalf("clean reopen did %+v", rec)
	}
	rep, err := Verify(r.fs, r.cfg.Dir)
	t.Log(rep, err)
	if err != nil || len(rep.Problems) > 0 {
		t.Fatal("problems")
	}
}
