package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// holding is a batch with these bytes for its records, under a valid CRC.
func holding(codec Codec, count int32, payload []byte) Batch {
	return newBatch(int16(codec), payload, count, 0, 0, Producer{NoProducerID, NoProducerEpoch, NoSequence})
}

// plainRecord is a record with a length in front of the given fields.
func plainRecord(fields ...byte) []byte {
	return append(binary.AppendVarint(nil, int64(len(fields))), fields...)
}

func TestRecordsThatNoConsumerCouldDecodeAreRefused(t *testing.T) {
	sound := plainRecord(0, 0, 0, 1, 2, 'v', 0) // attributes, timestamp delta, offset delta, null key, value of one byte, no headers
	random := make([]byte, 200)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(random)
	for name, c := range map[string]struct {
		count   int32
		payload []byte
		refused bool
	}{
		"sound":                           {1, sound, false},
		"nothing":                         {1, nil, true},
		"random bytes":                    {3, random, true},
		"text":                            {1, []byte("these are no records"), true},
		"fewer records than stated":       {2, sound, true},
		"more records than stated":        {1, append(bytes.Clone(sound), plainRecord(0, 0, 2, 1, 1, 0)...), true},
		"two records":                     {2, append(bytes.Clone(sound), plainRecord(0, 0, 2, 1, 1, 0)...), false},
		"two records with one number":     {2, append(bytes.Clone(sound), sound...), true},
		"number does not begin with 0":    {1, plainRecord(0, 0, 2, 1, 1, 0), true},
		"a byte behind the last record":   {1, append(bytes.Clone(sound), 0), true},
		"a byte missing":                  {1, sound[:len(sound)-1], true},
		"length negative":                 {1, append([]byte{1}, sound[1:]...), true},
		"length beyond the batch":         {1, append([]byte{0x7e}, sound[1:]...), true},
		"length one too small":            {1, append([]byte{sound[0] - 2}, sound[1:]...), true},
		"key length -2":                   {1, plainRecord(0, 0, 0, 3, 1, 0), true},
		"key beyond the record":           {1, plainRecord(0, 0, 0, 0x7e, 1, 0), true},
		"value length -2":                 {1, plainRecord(0, 0, 0, 1, 3, 0), true},
		"value beyond the record":         {2, append(plainRecord(0, 0, 0, 1, 6, 0), plainRecord(0, 0, 2, 1, 1, 0)...), true},
		"header":                          {1, plainRecord(0, 0, 0, 1, 1, 2, 2, 'k', 1), false},
		"negative number of headers":      {1, plainRecord(0, 0, 0, 1, 1, 1), true},
		"two billion headers":             {1, plainRecord(0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f), true},
		"header without a name":           {1, plainRecord(0, 0, 0, 1, 1, 2, 1, 1), true},
		"header value length -2":          {1, plainRecord(0, 0, 0, 1, 1, 2, 2, 'k', 3), true},
		"header beyond the record":        {1, plainRecord(0, 0, 0, 1, 1, 2, 2, 'k', 4, 'x'), true},
		"number without end":              {1, bytes.Repeat([]byte{0xff}, 40), true},
		"length in six bytes":             {1, append([]byte{0x8e, 0x80, 0x80, 0x80, 0x80, 0}, sound[1:]...), true},
		"length beyond 32 bits":           {1, append([]byte{0x8e, 0x80, 0x80, 0x80, 0x10}, sound[1:]...), true},
		"timestamp delta of ten bytes":    {1, plainRecord(0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 1, 0), false},
		"timestamp delta of eleven bytes": {1, plainRecord(0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 1, 0), true},
	} {
		b := holding(None, c.count, c.payload)
		err := b.ValidateProduce()
		if c.refused != errors.Is(err, ErrInvalid) || !c.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b.Validate() != nil {
			t.Errorf("%s: a batch that is stored already is judged by its header and CRC alone", name)
		}
	}
}

func TestRefusalNamesTheRecordAndItsByte(t *testing.T) {
	b, _ := sample(None)
	b[len(b)-1]++ // the last record's last field
	b.setCRC()
	err := b.ValidateProduce()
	if err == nil || !strings.Contains(err.Error(), "record 2 of 3, at byte ") {
		t.Errorf("%v", err)
	}
}

func TestCompressedRecordsAreOnlyCountedAgainstWhatTheirBytesCanHold(t *testing.T) {
	for codec := Gzip; codec <= Zstd; codec++ {
		var builder Builder
		for range 20_000 {
			builder.Append(Record{}) // the densest that there is
		}
		builder.Codec = codec
		if err := builder.Finish().ValidateProduce(); err != nil {
			t.Errorf("%s: %v", codec, err)
		}
		if err := holding(codec, 1, []byte("no such stream")).ValidateProduce(); err != nil {
			t.Errorf("%s: the bytes are not looked into, got %v", codec, err)
		}
		if err := holding(codec, 1<<30, []byte("no such stream")).ValidateProduce(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: a billion records in fourteen bytes: %v", codec, err)
		}
		if err := holding(codec, 1, nil).ValidateProduce(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: a record in no bytes: %v", codec, err)
		}
	}
}

// decodes says whether a consumer would get the batch's records, numbered from 0 on.
func decodes(b Batch) bool {
	i := int32(0)
	for rec, err := range Records(b) {
		if err != nil || rec.OffsetDelta != i {
			return false
		}
		i++
	}
	return i == b.Count()
}

func TestTheWalkAgreesWithTheDecoder(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	passed := 0
	for range 20_000 {
		var builder Builder // little but structure
		builder.Append(Record{Value: []byte("ab")})
		builder.Append(Record{TimestampDelta: 70, Key: []byte("k"), Headers: []RecordHeader{{Key: "h"}, {Key: "i", Value: []byte("v")}}})
		builder.Append(Record{Value: make([]byte, 70)[:r.IntN(70)]})
		b := builder.Finish()
		for range r.IntN(3) {
			b[HeaderSize+r.IntN(len(b)-HeaderSize)] ^= 1 << r.IntN(8)
		}
		want := decodes(b)
		if got := b.CheckRecords() == nil; got != want {
			t.Fatalf("seed %d: the walk says %t, the decoder %t: %x", seed, got, want, []byte(b))
		}
		if want {
			passed++
		}
	}
	if passed < 1000 || passed > 18_000 {
		t.Errorf("seed %d: %d of 20000 batches pass: the test tells nothing", seed, passed)
	}
}

func BenchmarkCheckRecords(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			var builder Builder
			for builder.Size() < 16<<10 {
				builder.Append(Record{TimestampDelta: 3, Value: make([]byte, size)})
			}
			batch := builder.Finish()
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if err := batch.CheckRecords(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch.Count()), "ns/record")
		})
	}
}
