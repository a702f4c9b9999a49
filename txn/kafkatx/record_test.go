package kafkatx

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/field"
)

func sampleMetas() []*Meta {
	full := meta(PrepareCommit, 6, Version2, 1, 2, 9)
	full.Partitions = append([]Partition{{"a", 0}}, full.Partitions...)
	full.Next = 44
	resumed := meta(Empty, 3, Version0)
	resumed.LastEpoch, resumed.Previous = 2, None
	owing := meta(Ongoing, 7, Version2, 1)
	owing.Owed = &Owed{true, clock.UnixMilli() - 5, append([]Partition{{"a", 0}, {"a", 2}}, parts(3)...)}
	return []*Meta{owing, full, resumed, meta(Ongoing, 0, Version0, 4), meta(CompleteAbort, 1, Version2)}
}

// TestRecordsAreKafkas compares bytes with an independent client's codec, our own tags apart.
func TestRecordsAreKafkas(t *testing.T) {
	for _, m := range sampleMetas() {
		v := kmsg.NewTxnMetadataValue()
		v.Version, v.ProducerID, v.ProducerEpoch, v.State = 1, m.ProducerID, m.Epoch, kmsg.TransactionState(m.Status)
		v.TimeoutMillis, v.LastUpdateTimestamp, v.StartTimestamp = int32(m.Timeout.Milliseconds()), m.Update, m.Start
		v.PreviousProducerID, v.NextProducerID, v.ClientTransactionVersion = m.Previous, m.Next, int16(m.Version)
		if m.Status != Empty {
			v.Topics = []kmsg.TxnMetadataValueTopic{}
		}
		for _, p := range m.Partitions {
			if n := len(v.Topics); n == 0 || v.Topics[n-1].Topic != p.Topic {
				v.Topics = append(v.Topics, kmsg.TxnMetadataValueTopic{Topic: p.Topic})
			}
			last := &v.Topics[len(v.Topics)-1]
			last.Partitions = append(last.Partitions, p.Number)
		}
		plain := *m
		plain.LastEpoch, plain.Owed = None, nil
		if got, want := plain.EncodeValue(), v.AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("%v:\ngot  %x\nwant %x", m, got, want)
		}
		var back kmsg.TxnMetadataValue
		if err := back.ReadFrom(m.EncodeValue()); err != nil {
			t.Errorf("%v: an independent reader stumbles: %v", m, err)
		}
		v.Version = 0
		old, err := DecodeValue(v.AppendTo(nil))
		if err != nil || old.ProducerID != m.ProducerID || len(old.Partitions) != len(m.Partitions) || old.Previous != None {
			t.Errorf("version 0 of %v: %v %v", m, old, err)
		}
	}
	k := kmsg.NewTxnMetadataKey()
	k.TransactionalID = "orders"
	if got, want := EncodeKey("orders"), k.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("key:\ngot  %x\nwant %x", got, want)
	}
}

func TestWhatIsWrittenIsReadAndNoPartOfItIs(t *testing.T) {
	for _, m := range sampleMetas() {
		b := m.EncodeValue()
		got, err := DecodeValue(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, m)
		}
		for n := range b {
			if _, err := DecodeValue(b[:n]); err == nil {
				t.Fatalf("%v: %d of %d bytes were accepted", m, n, len(b))
			}
		}
	}
	if m, err := DecodeValue(nil); m != nil || err != nil {
		t.Fatalf("tombstone: %v %v", m, err)
	}
	if id, err := DecodeKey(EncodeKey("x")); id != "x" || err != nil {
		t.Fatalf("key: %q %v", id, err)
	}
}

func TestUnknownVersionsAreRefusedAsVersions(t *testing.T) {
	b := meta(Empty, 0, Version0).EncodeValue()
	b[1] = 2
	if _, err := DecodeValue(b); !errors.Is(err, ErrVersion) {
		t.Errorf("value: %v", err)
	}
	k := EncodeKey("x")
	k[1] = 1
	if _, err := DecodeKey(k); !errors.Is(err, ErrVersion) {
		t.Errorf("key: %v", err)
	}
}

func TestOnlyAnOpenTransactionOwesAndThenSomething(t *testing.T) {
	for _, s := range []Status{Empty, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort} {
		m := meta(s, 3, Version2, 1)
		m.Owed = &Owed{Partitions: parts(1)}
		if _, err := DecodeValue(m.EncodeValue()); !errors.Is(err, field.ErrMalformed) {
			t.Errorf("%v: %v", s, err)
		}
	}
	m := meta(Ongoing, 3, Version2, 1)
	m.Owed = &Owed{}
	if _, err := DecodeValue(m.EncodeValue()); !errors.Is(err, field.ErrMalformed) {
		t.Errorf("nothing is owed: %v", err)
	}
}

func TestStatesThatAreNeverWrittenAreDamage(t *testing.T) {
	for _, s := range []Status{Dead, PrepareEpochFence, 8, -1} {
		m := meta(Ongoing, 0, Version0, 1)
		m.Status = s
		if _, err := DecodeValue(m.EncodeValue()); !errors.Is(err, field.ErrMalformed) {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// FuzzDecodeValue: no input panics, and what decodes is written back to something equal.
func FuzzDecodeValue(f *testing.F) {
	for _, m := range sampleMetas() {
		f.Add(m.EncodeValue())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeValue(b)
		if err != nil || m == nil {
			return
		}
		back, err := DecodeValue(m.EncodeValue())
		if err != nil {
			t.Fatal(err)
		}
		if m.Status == Empty {
			m.Partitions = nil
		}
		if m.Timeout = m.Timeout.Truncate(time.Millisecond); !reflect.DeepEqual(m, back) {
			t.Fatalf("%+v came back as %+v", m, back)
		}
	})
}
