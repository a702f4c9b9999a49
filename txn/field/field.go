// Package field writes and reads the fields that Kafka's coordinators make their records of: numbers, strings, byte strings, array
// lengths and tagged fields, in the older encoding and in the flexible one.
//
// It knows how one field lies in bytes. It refuses to know records, their versions and what a field means.
package field

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is a record whose bytes end too early, go on too long or hold an impossible length.
var ErrMalformed = errors.New("malformed record")

// Writer appends fields. Flexible chooses the encoding of strings, byte strings and arrays.
type Writer struct {
	Flexible bool
	Bytes    []byte
}

// Int8, Int16, Int32 and Int64 append a number, big endian.
func (w *Writer) Int8(v int8)   { w.Bytes = append(w.Bytes, byte(v)) }
func (w *Writer) Int16(v int16) { w.Bytes = binary.BigEndian.AppendUint16(w.Bytes, uint16(v)) }
func (w *Writer) Int32(v int32) { w.Bytes = binary.BigEndian.AppendUint32(w.Bytes, uint32(v)) }
func (w *Writer) Int64(v int64) { w.Bytes = binary.BigEndian.AppendUint64(w.Bytes, uint64(v)) }

// Uvarint appends an unsigned number of variable length.
func (w *Writer) Uvarint(v uint64) { w.Bytes = binary.AppendUvarint(w.Bytes, v) }

// Length appends the length of an array; -1 is a null array.
func (w *Writer) Length(n int) {
	if w.Flexible {
		w.Uvarint(uint64(n + 1))
	} else {
		w.Int32(int32(n))
	}
}

// String appends a string; nil is null.
func (w *Writer) String(s *string) {
	switch {
	case s == nil && w.Flexible:
		w.Uvarint(0)
	case s == nil:
		w.Int16(-1)
	default:
		w.Text(*s)
	}
}

// MaxText is the longest string that Kafka's records hold. Whoever takes strings from clients refuses longer ones.
const MaxText = 1<<15 - 1

// Text appends a string that is never null, and not longer than MaxText.
func (w *Writer) Text(s string) {
	if len(s) > MaxText {
		panic(fmt.Sprintf("field: string of %d bytes, at most %d fit", len(s), MaxText))
	}
	if w.Flexible {
		w.Uvarint(uint64(len(s) + 1))
	} else {
		w.Int16(int16(len(s)))
	}
	w.Bytes = append(w.Bytes, s...)
}

// Blob appends a byte string; nil is the empty one.
func (w *Writer) Blob(b []byte) {
	w.Length(len(b))
	w.Bytes = append(w.Bytes, b...)
}

// Tags appends tagged fields, which must ascend; without any it still appends their count. In the older encoding it appends nothing.
func (w *Writer) Tags(tags ...Tag) {
	if !w.Flexible {
		return
	}
	w.Uvarint(uint64(len(tags)))
	for _, t := range tags {
		w.Uvarint(uint64(t.Number))
		w.Uvarint(uint64(len(t.Value)))
		w.Bytes = append(w.Bytes, t.Value...)
	}
}

// Tag is a tagged field.
type Tag struct {
	Number uint32
	Value  []byte
}

// Int16Tag and Int64Tag are tagged numbers.
func Int16Tag(number uint32, v int16) Tag {
	return Tag{number, binary.BigEndian.AppendUint16(nil, uint16(v))}
}
func Int64Tag(number uint32, v int64) Tag {
	return Tag{number, binary.BigEndian.AppendUint64(nil, uint64(v))}
}

// Reader takes fields off the front of Bytes. After the first failure everything reads as zero, and Err says what failed; nothing is
// allocated that the bytes cannot hold.
type Reader struct {
	Flexible bool
	Bytes    []byte
	err      error
}

// Err is the first failure.
func (r *Reader) Err() error { return r.err }

// End is Err, or an error if bytes are left.
func (r *Reader) End() error {
	if r.err == nil && len(r.Bytes) > 0 {
		r.fail("%d bytes follow the last field", len(r.Bytes))
	}
	return r.err
}

func (r *Reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	r.Bytes = nil
}

func (r *Reader) take(n int) []byte {
	if n < 0 || n > len(r.Bytes) {
		r.fail("%d bytes wanted, %d left", n, len(r.Bytes))
		return nil
	}
	b := r.Bytes[:n:n]
	r.Bytes = r.Bytes[n:]
	return b
}

// Int8, Int16, Int32 and Int64 take a number.
func (r *Reader) Int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}
func (r *Reader) Int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}
func (r *Reader) Int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}
func (r *Reader) Int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// Uvarint takes an unsigned number of variable length, of 32 bits at most.
func (r *Reader) Uvarint() uint32 {
	v, n := binary.Uvarint(r.Bytes)
	if n <= 0 || v > 1<<32-1 {
		r.fail("no number of variable length")
		return 0
	}
	r.Bytes = r.Bytes[n:]
	return uint32(v)
}

// Length takes the length of an array whose elements take at least size bytes each; -1 is a null array.
func (r *Reader) Length(size int) int {
	n := int64(0)
	if r.Flexible {
		n = int64(r.Uvarint()) - 1
	} else {
		n = int64(r.Int32())
	}
	if r.err != nil {
		return 0
	}
	if n < -1 || n*int64(size) > int64(len(r.Bytes)) {
		r.fail("array of %d elements in %d bytes", n, len(r.Bytes))
		return 0
	}
	return int(n)
}

// String takes a string; nil is null.
func (r *Reader) String() *string {
	n := 0
	if r.Flexible {
		n = r.Length(1)
	} else {
		n = int(r.Int16())
	}
	if n < 0 || r.err != nil {
		return nil
	}
	if n > MaxText { // nobody could write it again
		r.fail("a string of %d bytes", n)
		return nil
	}
	s := string(r.take(n))
	return &s
}

// Text takes a string that must not be null.
func (r *Reader) Text() string {
	s := r.String()
	if s == nil {
		r.fail("a string is null")
		return ""
	}
	return *s
}

// Blob takes a byte string, within the reader's bytes; null is nil.
func (r *Reader) Blob() []byte {
	n := r.Length(1)
	if n < 0 || r.err != nil {
		return nil
	}
	return r.take(n)
}

// Tags takes the tagged fields and gives each to fn, whose reader holds that field alone and must be read to its end. fn returns false
// for a field that it does not know, which is skipped. In the older encoding there are none.
func (r *Reader) Tags(fn func(number uint32, value *Reader) bool) {
	if !r.Flexible {
		return
	}
	for range r.tagCount() {
		number, size := r.Uvarint(), r.Uvarint()
		value := &Reader{Flexible: true, Bytes: r.take(int(size))}
		if r.err != nil {
			return
		}
		if fn != nil && fn(number, value) && value.End() != nil {
			r.fail("tagged field %d: %v", number, value.err)
			return
		}
	}
}

// tagCount takes a number of tagged fields, which take at least two bytes each.
func (r *Reader) tagCount() int {
	n := r.Uvarint()
	if int64(n)*2 > int64(len(r.Bytes)) {
		r.fail("%d tagged fields in %d bytes", n, len(r.Bytes))
		return 0
	}
	return int(n)
}
