package wire

import "testing"

func TestRetainedBufferSurvivesTheAnswer(t *testing.T) {
	bufs := make(chan *Request, 10)
	s := start(t, Config{Handler: func(r *Request) {
		r.Buf.Retain()
		bufs <- r
		r.Reply(Response{})
	}})
	c := dial(t, s)
	send(t, c, frame(0, 1, []byte("kept")))
	response(t, c)
	r := <-bufs
	if string(r.Body) != "kept" {
		t.Fatalf("body %q after the answer", r.Body)
	}
	if s.Stats().InflightBytes == 0 {
		t.Fatal("a retained buffer is not charged")
	}
	r.Buf.Release()
	if r.Body[0] != poisonByte {
		t.Fatalf("released buffer reads %q, want poison", r.Body)
	}
}

func TestDetachedBufferIsNeverReused(t *testing.T) {
	p := &Pool{Poison: true}
	b := p.Get(100)
	bytes := b.Bytes()
	bytes[0] = 1
	b.Detach()
	b.Release()
	if bytes[0] != 1 {
		t.Fatal("a detached buffer was poisoned")
	}
	for range 100 {
		if c := p.Get(100); &c.b[0] == &bytes[0] {
			t.Fatal("a detached buffer came back from the pool")
		}
	}
}

func TestBufferReleasedTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	b := NewPool().Get(10)
	b.Release()
	b.Release()
}

func TestSizeClassesHoldWhatWasAskedFor(t *testing.T) {
	for n := 1; n <= maxClass; n += 1 + n/7 {
		c := classOf(n)
		if size := classSize(c); size < n || (n > minClass && size > n+n/2) {
			t.Fatalf("%d bytes are in class %d of %d bytes", n, c, size)
		}
		if c > 0 && classSize(c-1) >= n {
			t.Fatalf("%d bytes would fit class %d", n, c-1)
		}
	}
	if classOf(maxClass+1) != -1 || classOf(maxClass) != numClasses-1 {
		t.Fatal("the largest class is wrong")
	}
}
