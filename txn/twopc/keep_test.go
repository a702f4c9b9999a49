package twopc

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"gopherlog/txn/field"
)

func randomTxn(r *rand.Rand) Txn {
	return Txn{Term: r.Uint64N(9), Number: r.Uint32N(9), Owner: Identity{r.Int64N(9) - 1, int16(r.IntN(9) - 1)}}
}

func TestALedgerAndAStandingSurviveASnapshot(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 500 {
		l := NewLedger()
		var s Standing
		for range r.IntN(8) {
			for _, rec := range []Record{
				Raised{Term: r.Uint64N(9), Owner: Identity{7, 4}, Prev: Nobody, Timeout: time.Minute}, Begun{randomTxn(r)},
				Committed{Txn: randomTxn(r), Next: Identity{7, 5}, Members: []Member{"orders-0", "orders-1"}}, Finished{randomTxn(r)},
			}[r.IntN(4):] {
				l = l.Apply(rec)
			}
			for _, rec := range []Record{
				Opened{Txn: randomTxn(r), Timeout: time.Second}, Promised{Txn: randomTxn(r), At: r.Int64N(3)}, Marked{Txn: randomTxn(r)}, Skipped{randomTxn(r)},
			}[r.IntN(4):] {
				s = s.Apply(rec)
			}
		}
		w := field.Writer{Flexible: true}
		l.Write(&w)
		s.Write(&w)
		rd := &field.Reader{Flexible: true, Bytes: w.Bytes}
		gotL, err := ReadLedger(rd)
		gotS := ReadStanding(rd, 2)
		if err != nil || rd.End() != nil || !reflect.DeepEqual(gotL, l) || gotS != s {
			t.Fatalf("got %+v, %+v, %v, %v; want %+v, %+v", gotL, gotS, err, rd.Err(), l, s)
		}
	}
}

func TestMessagesSurviveTheWire(t *testing.T) {
	x := Txn{Term: 5, Number: 2, Owner: Identity{7, 4}}
	for _, m := range []Message{
		Prepare{x}, Vote{x, "orders-0", true}, Vote{Txn: x, From: "orders-0"}, Outcome{x, true, 5}, Outcome{Txn: x}, Ended{x, "orders-0"}, Query{x, "orders-0"},
	} {
		w := field.Writer{Flexible: true}
		WriteMessage(&w, m)
		got, err := ReadMessage(&field.Reader{Flexible: true, Bytes: w.Bytes})
		if err != nil || got != m {
			t.Errorf("%v: got %v, %v", m, got, err)
		}
		for n := range w.Bytes {
			if _, err := ReadMessage(&field.Reader{Flexible: true, Bytes: w.Bytes[:n]}); !errors.Is(err, field.ErrMalformed) {
				t.Errorf("%v cut to %d bytes: %v", m, n, err)
			}
		}
	}
}

func TestOnePlaceDecidesByThePrefix(t *testing.T) {
	for _, c := range []struct {
		prefix Prefix
		id     string
		want   bool
	}{{"2pc.", "2pc.orders", true}, {"2pc.", "2pc.", true}, {"2pc.", "orders", false}, {"2pc.", "2pc", false}, {"", "2pc.orders", false}} {
		if got := c.prefix.Owns(c.id); got != c.want {
			t.Errorf("prefix %q, id %q: %v", c.prefix, c.id, got)
		}
	}
}
