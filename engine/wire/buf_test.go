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

// The charge ends with the last reference, the bytes with the last hold: a client may send on while a slow peer
// still reads what it sent before.
func TestHeldBytesOutliveTheirCharge(t *testing.T) {
	p := &Pool{Poison: true}
	b := p.Get(100)
	charged := true
	b.onFree = func(*Buf) { charged = false }
	bytes := b.Bytes()
	bytes[0] = 1
	b.Hold()
	b.Hold()
	b.Release()
	if charged {
		t.Fatal("a buffer without references is charged")
	}
	b.Drop()
	if bytes[0] != 1 {
		t.Fatal("held bytes were poisoned")
	}
	for range 100 {
		if c := p.Get(100); &c.b[0] == &bytes[0] {
			t.Fatal("a held buffer came back from the pool")
		}
	}
	b.Drop()
	if bytes[0] != poisonByte {
		t.Fatalf("free bytes read %d, want poison", bytes[0])
	}
}

func TestUnbalancedHoldsPanic(t *testing.T) {
	for name, act := range map[string]func(b *Buf){
		"hold of a free buffer": func(b *Buf) { b.Release(); b.Hold() },
		"dropped twice":         func(b *Buf) { b.Release(); b.Drop() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			act(NewPool().Get(10))
		})
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
