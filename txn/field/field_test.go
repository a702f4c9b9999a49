package field

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
)

// TestFieldsLieAsKafkasCodecWritesThem compares with the codec of an independent client, in both encodings.
func TestFieldsLieAsKafkasCodecWritesThem(t *testing.T) {
	text := "grüße"
	for _, flexible := range []bool{false, true} {
		w := Writer{Flexible: flexible}
		w.Int8(-2)
		w.Int16(-3)
		w.Int32(-4)
		w.Int64(-5)
		w.Text(text)
		w.String(nil)
		w.Blob([]byte{1, 2})
		w.Length(-1)
		w.Length(300)
		var want []byte
		want = kbin.AppendInt8(want, -2)
		want = kbin.AppendInt16(want, -3)
		want = kbin.AppendInt32(want, -4)
		want = kbin.AppendInt64(want, -5)
		if flexible {
			want = kbin.AppendCompactString(want, text)
			want = kbin.AppendCompactNullableString(want, nil)
			want = kbin.AppendCompactBytes(want, []byte{1, 2})
			want = kbin.AppendCompactArrayLen(want, -1)
			want = kbin.AppendCompactArrayLen(want, 300)
		} else {
			want = kbin.AppendString(want, text)
			want = kbin.AppendNullableString(want, nil)
			want = kbin.AppendBytes(want, []byte{1, 2})
			want = kbin.AppendArrayLen(want, -1)
			want = kbin.AppendArrayLen(want, 300)
		}
		if !bytes.Equal(w.Bytes, want) {
			t.Fatalf("flexible %v:\ngot  %x\nwant %x", flexible, w.Bytes, want)
		}
	}
}

// TestWhatIsWrittenIsRead, and every prefix of it is refused.
func TestWhatIsWrittenIsRead(t *testing.T) {
	s := "name"
	for _, flexible := range []bool{false, true} {
		w := Writer{Flexible: flexible}
		w.Text("a")
		w.String(&s)
		w.String(nil)
		w.Blob([]byte{7})
		w.Length(-1)
		w.Int64(1 << 40)
		w.Tags(Int16Tag(1, -1), Int64Tag(300, 9))
		read := func(r *Reader) (got []any) {
			a, b, c, d, e, f := r.Text(), r.String(), r.String(), r.Blob(), r.Length(4), r.Int64()
			tag := int64(0)
			r.Tags(func(number uint32, v *Reader) bool {
				if number == 300 {
					tag = v.Int64()
				}
				return number == 300
			})
			if r.End() == nil && (a != "a" || *b != s || c != nil || d[0] != 7 || e != -1 || f != 1<<40 || flexible && tag != 9) {
				t.Fatalf("flexible %v: %v %v %v %v %v %v %v", flexible, a, b, c, d, e, f, tag)
			}
			return nil
		}
		r := &Reader{Flexible: flexible, Bytes: w.Bytes}
		read(r)
		if err := r.End(); err != nil {
			t.Fatal(err)
		}
		for n := range w.Bytes {
			r := &Reader{Flexible: flexible, Bytes: w.Bytes[:n]}
			read(r)
			if err := r.End(); !errors.Is(err, ErrMalformed) {
				t.Fatalf("flexible %v, %d of %d bytes: %v", flexible, n, len(w.Bytes), err)
			}
		}
	}
}

// TestLengthsBeyondTheBytesAreRefusedBeforeAnythingIsAllocated.
func TestLengthsBeyondTheBytesAreRefusedBeforeAnythingIsAllocated(t *testing.T) {
	for name, r := range map[string]*Reader{
		"array":         {Bytes: []byte{0x7f, 0xff, 0xff, 0xff, 0}},
		"compact array": {Flexible: true, Bytes: []byte{0xff, 0xff, 0xff, 0xff, 0x0f}},
		"negative":      {Bytes: []byte{0x80, 0, 0, 0, 0}},
		"endless":       {Flexible: true, Bytes: bytes.Repeat([]byte{0xff}, 20)},
	} {
		if n := r.Length(4); n != 0 || !errors.Is(r.Err(), ErrMalformed) {
			t.Errorf("%s: %d, %v", name, n, r.Err())
		}
	}
	r := &Reader{Flexible: true, Bytes: []byte{200, 1, 0, 0}}
	r.Tags(nil)
	if r.Err() == nil {
		t.Error("200 tagged fields in two bytes were accepted")
	}
}
