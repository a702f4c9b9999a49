package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// choppy returns its bytes in pieces of random length.
type choppy struct {
	b   []byte
	rng *rand.Rand
}

func (c *choppy) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.b[:min(len(c.b), 1+c.rng.IntN(300))])
	c.b = c.b[n:]
	return n, nil
}

// cut is the specification of the frame reader: the frames of a stream, and whether it ends between two.
func cut(stream []byte, maxFrame int) (frames [][]byte, clean bool) {
	for len(stream) > 0 {
		if len(stream) < 4 {
			return frames, false
		}
		n := int(int32(binary.BigEndian.Uint32(stream)))
		if n < minFrame || n > maxFrame || len(stream) < 4+n {
			return frames, false
		}
		frames = append(frames, stream[4:4+n])
		stream = stream[4+n:]
	}
	return frames, true
}

// FuzzReadFrame feeds arbitrary streams in arbitrary pieces: the frames must be those of the specification,
// parsing their headers must not panic, and memory must follow the bytes that arrived.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{}, uint64(1))
	f.Add(frame(3, 1, nil), uint64(2))
	f.Add(append(frame(0, 1, make([]byte, 300)), frame(1, 2, []byte("x"))...), uint64(3))
	f.Add(frame(0, 1, make([]byte, 5000))[:2000], uint64(4))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint64(5))
	f.Add([]byte{0, 0xf, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, 1}, uint64(6))
	f.Add([]byte{0, 0, 0, 14, 0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 1, 5, 1, 0xff}, uint64(7))
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	f.Add(kmsg.NewRequestFormatter(kmsg.FormatterClientID("fuzz")).AppendRequest(nil, req, 1), uint64(8))
	flex := newFlexible()
	const maxFrame = 1 << 20
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		var held, most, arrived int64
		src := &choppy{b: stream, rng: rand.New(rand.NewPCG(seed, 0))}
		r := frameReader{
			src: src, pool: &Pool{Poison: true}, maxFrame: maxFrame,
			reserve: func(n int, _ bool) error { held += int64(n); most = max(most, held); return nil },
			refund:  func(b *Buf) { held -= int64(b.Cap()) },
			begun:   func() {}, ended: func() {},
		}
		want, clean := cut(stream, maxFrame)
		for i := 0; ; i++ {
			buf, err := r.next()
			if err != nil {
				if i != len(want) {
					t.Fatalf("%d frames, then %v; want %d", i, err, len(want))
				}
				if clean != (err == io.EOF) || !clean && !errors.Is(err, ErrFrame) {
					t.Fatalf("the stream ends cleanly: %v, got %v", clean, err)
				}
				break
			}
			if i >= len(want) || !bytes.Equal(buf.Bytes(), want[i]) {
				t.Fatalf("frame %d differs", i)
			}
			var req Request
			if req.parse(buf.Bytes(), flex, "") == nil && len(req.Body) > len(buf.Bytes())-minFrame {
				t.Fatalf("body of %d bytes in a frame of %d", len(req.Body), len(buf.Bytes()))
			}
			buf.Release()
		}
		arrived = int64(len(stream))
		if most > firstChunk+6*arrived {
			t.Fatalf("%d bytes arrived, %d were held", arrived, most)
		}
		if held != 0 {
			t.Fatalf("%d bytes are still charged", held)
		}
	})
}

func TestRequestHeadersOfAllVersionsAreTakenApart(t *testing.T) {
	flex := newFlexible()
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil || key == 7 { // ControlledShutdown 0 has a header of its own and is for brokers
			continue
		}
		for v := int16(0); v <= req.MaxVersion(); v++ {
			req.SetVersion(v)
			b := kmsg.NewRequestFormatter(kmsg.FormatterClientID("client")).AppendRequest(nil, req, 77)
			var r Request
			if err := r.parse(b[4:], flex, ""); err != nil {
				t.Fatalf("key %d version %d: %v", key, v, err)
			}
			if r.Key != key || r.Version != v || r.CorrelationID != 77 || r.ClientID != "client" || !bytes.Equal(r.Body, req.AppendTo(nil)) {
				t.Fatalf("key %d version %d: header %+v", key, v, r)
			}
		}
	}
}

func TestApiVersionsKeepsTheOldestResponseHeader(t *testing.T) {
	flex := newFlexible()
	if n := flex.responseHeader(keyApiVersions, 3); n != 4 {
		t.Fatalf("ApiVersions 3 answers with %d header bytes, want 4", n)
	}
	if n := flex.responseHeader(3, 12); n != 5 {
		t.Fatalf("Metadata 12 answers with %d header bytes, want 5", n)
	}
	if n := flex.responseHeader(3, 8); n != 4 {
		t.Fatalf("Metadata 8 answers with %d header bytes, want 4", n)
	}
}

func TestRequestTagsAreSkipped(t *testing.T) {
	flex := newFlexible()
	b := []byte{0, 3, 0, 12, 0, 0, 0, 1, 0xff, 0xff, 2, 0, 3, 'a', 'b', 'c', 9, 0, 'B'}
	var r Request
	if err := r.parse(b, flex, "x"); err != nil || string(r.Body) != "B" || r.ClientID != "" {
		t.Fatalf("body %q, client %q, error %v", r.Body, r.ClientID, err)
	}
}
