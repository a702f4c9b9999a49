package twopc

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"gopherlog/txn/field"
)

func samples() []Record {
	t := Txn{Term: math.MaxUint64, Number: math.MaxUint32, Owner: Identity{math.MaxInt64, math.MaxInt16}}
	return []Record{
		Raised{Term: 3, Owner: Identity{7, 4}, Prev: Nobody, Timeout: time.Minute},
		Begun{t}, Committed{Txn: t, Next: Identity{7, 5}, Members: []Member{"orders-0", "orders-1"}}, Committed{Txn: t},
		Finished{t}, Opened{Txn: t, Timeout: time.Second}, Promised{Txn: t}, Promised{Txn: t, At: math.MaxInt64}, Skipped{t},
	}
}

func TestRecordsSurviveEncoding(t *testing.T) {
	for _, r := range samples() {
		if got, err := Decode(Encode(r)); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%v: got %v, %v", r, got, err)
		}
	}
}

func TestAnUnknownVersionIsRefusedAsAVersion(t *testing.T) {
	b := Encode(samples()[0])
	b[0] = datedVersion + 1
	if _, err := Decode(b); !errors.Is(err, ErrVersion) {
		t.Fatal(err)
	}
}

func TestAPromiseWithoutItsTimeIsReadAndSaysSo(t *testing.T) {
	x := Txn{Term: 5, Number: 2, Owner: Identity{7, 4}}
	dated := Encode(Promised{Txn: x, At: 1234567890123})
	old := append([]byte{recordVersion}, dated[1:len(dated)-8]...)
	if got, err := Decode(old); err != nil || got != (Promised{Txn: x}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := Decode(dated); err != nil || got != (Promised{Txn: x, At: 1234567890123}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := Decode(append([]byte{datedVersion}, Encode(Skipped{x})[1:]...)); !errors.Is(err, ErrVersion) {
		t.Errorf("version 2 of a record that has none: %v", err)
	}
}

func TestWhatEncodeDoesNotWriteIsMalformed(t *testing.T) {
	for _, r := range samples() {
		b := Encode(r)
		for n := range b {
			if _, err := Decode(b[:n]); !errors.Is(err, field.ErrMalformed) {
				t.Errorf("%v cut to %d bytes: %v", r, n, err)
			}
		}
		if _, err := Decode(append(b, 0)); !errors.Is(err, field.ErrMalformed) {
			t.Errorf("%v with a byte more: %v", r, err)
		}
	}
	if _, err := Decode([]byte{recordVersion, 99}); !errors.Is(err, field.ErrMalformed) {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range samples() {
		f.Add(Encode(r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		if again, err := Decode(Encode(r)); err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%v became %v, %v", r, again, err)
		}
	})
}
