package record

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/snappy"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func sample(codec Codec) (Batch, []Record) {
	b := Builder{Codec: codec, BaseTimestamp: 1000, Producer: &Producer{ID: 7, Epoch: 2, Sequence: 40}}
	recs := []Record{
		{Key: []byte("user-1"), Value: []byte("hello")},
		{TimestampDelta: 5, Value: bytes.Repeat([]byte("long "), 300)},
		{TimestampDelta: 3, Key: []byte{}, Headers: []RecordHeader{{"h", []byte("v")}, {"null", nil}}},
	}
	for i := range recs {
		b.Append(recs[i])
		recs[i].OffsetDelta = int32(i)
	}
	return b.Finish(), recs
}

func collect(b Batch) (out []Record, err error) {
	for rec, e := range Records(b) {
		if e != nil {
			return out, e
		}
		out = append(out, rec)
	}
	return out, nil
}

func TestRecordsComeBackFromEveryCodec(t *testing.T) {
	for codec := None; codec <= Zstd; codec++ {
		t.Run(codec.String(), func(t *testing.T) {
			b, want := sample(codec)
			if err := b.ValidateProduce(); err != nil {
				t.Fatal(err)
			}
			got, err := collect(b)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestXerialFramedSnappyIsRead(t *testing.T) {
	plain := bytes.Repeat([]byte("0123456789"), 100)
	framed := append([]byte(nil), xerialMagic...)
	framed = append(framed, 0, 0, 0, 1, 0, 0, 0, 1)
	for _, part := range [][]byte{plain[:700], plain[700:]} {
		block := snappy.Encode(nil, part)
		framed = be.AppendUint32(framed, uint32(len(block)))
		framed = append(framed, block...)
	}
	got, err := Decompress(Snappy, framed)
	if err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	for cut := range framed {
		_, _ = Decompress(Snappy, framed[:cut]) // must not panic
	}
}

func TestHeaderFieldsAgreeWithKmsg(t *testing.T) {
	b, _ := sample(Gzip)
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(9)
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	h, err := PeekHeader(b[:HeaderSize])
	if err != nil {
		t.Fatal(err)
	}
	want := Header{
		BaseOffset: k.FirstOffset, Length: int(k.Length) + 12, LeaderEpoch: k.PartitionLeaderEpoch, Magic: k.Magic,
		CRC: uint32(k.CRC), Attributes: k.Attributes, LastOffsetDelta: k.LastOffsetDelta, BaseTimestamp: k.FirstTimestamp,
		MaxTimestamp: k.MaxTimestamp, ProducerID: k.ProducerID, ProducerEpoch: k.ProducerEpoch,
		BaseSequence: k.FirstSequence, Count: k.NumRecords,
	}
	if d := cmp.Diff(want, h); d != "" {
		t.Fatal(d)
	}
	if b.LastOffset() != 1<<40+2 || b.NextOffset() != 1<<40+3 || h.LastOffset() != b.LastOffset() || b.MaxTimestamp() != 1005 {
		t.Fatalf("%v, max timestamp %d", b, b.MaxTimestamp())
	}
}

func TestStampingOffsetAndEpochKeepsTheCRC(t *testing.T) {
	b, _ := sample(None)
	before := b.CRC()
	b.SetBaseOffset(123456789)
	b.SetLeaderEpoch(42)
	if err := b.CheckCRC(); err != nil || b.CRC() != before {
		t.Fatalf("crc %08x, was %08x: %v", b.CRC(), before, err)
	}
	if n := testing.AllocsPerRun(100, func() { b.SetBaseOffset(b.NextOffset()); _ = b.CheckCRC() }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestAnyFlippedBitUnderTheCRCIsFound(t *testing.T) {
	b, _ := sample(LZ4)
	for i := posCRC; i < len(b); i++ {
		c := Batch(bytes.Clone(b))
		c[i] ^= 0x10
		if err := c.Validate(); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
	}
}

func TestParseSplitsBatchesAndAsksForMore(t *testing.T) {
	one, _ := sample(None)
	two, _ := sample(Zstd)
	all := append(bytes.Clone(one), two...)
	first, rest, err := Parse(all)
	if err != nil || !bytes.Equal(first, one) || !bytes.Equal(rest, two) {
		t.Fatalf("%d and %d bytes: %v", len(first), len(rest), err)
	}
	for cut := range len(one) {
		if _, _, err := Parse(one[:cut]); !errors.Is(err, ErrShort) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

// patch changes one header field and, unless the field lies outside it, the CRC.
func patch(f func(Batch)) Batch {
	b, _ := sample(None)
	f(b)
	b.setCRC()
	return b
}

func TestProduceRules(t *testing.T) {
	bits := func(bit int16) func(Batch) {
		return func(b Batch) { be.PutUint16(b[posAttributes:], uint16(b.Attributes()|bit)) }
	}
	noProducer := func(b Batch) { be.PutUint64(b[posProducerID:], math.MaxUint64) }
	for name, c := range map[string]struct {
		batch Batch
		want  error
	}{
		"sound":                          {patch(func(Batch) {}), nil},
		"magic 1":                        {patch(func(b Batch) { b[posMagic] = 1 }), ErrMagic},
		"codec 5":                        {patch(bits(5)), ErrCodec},
		"base offset 3":                  {patch(func(b Batch) { b.SetBaseOffset(3) }), ErrInvalid},
		"control bit":                    {patch(bits(attrControl)), ErrInvalid},
		"log append time":                {patch(bits(attrLogAppendTime)), ErrTimestamp},
		"delta is not count-1":           {patch(func(b Batch) { be.PutUint32(b[posLastOffsetDelta:], 7) }), ErrInvalid},
		"no records":                     {patch(func(b Batch) { be.PutUint32(b[posCount:], 0); be.PutUint32(b[posLastOffsetDelta:], math.MaxUint32) }), ErrInvalid},
		"negative count":                 {patch(func(b Batch) { be.PutUint32(b[posCount:], math.MaxUint32) }), ErrInvalid},
		"transactional, no producer":     {patch(func(b Batch) { noProducer(b); bits(attrTransactional)(b) }), ErrInvalid},
		"producer without sequence":      {patch(func(b Batch) { be.PutUint32(b[posBaseSequence:], math.MaxUint32) }), ErrInvalid},
		"producer without epoch":         {patch(func(b Batch) { be.PutUint16(b[posProducerEpoch:], math.MaxUint16) }), ErrInvalid},
		"producer id -2":                 {patch(func(b Batch) { be.PutUint64(b[posProducerID:], math.MaxUint64-1) }), ErrInvalid},
		"no producer, no sequence":       {patch(func(b Batch) { noProducer(b); be.PutUint32(b[posBaseSequence:], math.MaxUint32) }), nil},
		"length below a header":          {patch(func(b Batch) { be.PutUint32(b[posLength:], 10) }), ErrCorrupt},
		"length negative":                {patch(func(b Batch) { be.PutUint32(b[posLength:], math.MaxUint32) }), ErrCorrupt},
		"length of a byte less":          {patch(func(b Batch) { be.PutUint32(b[posLength:], uint32(len(b)-13)) }), ErrInvalid},
		"two batches in one produce set": {append(patch(func(Batch) {}), patch(func(Batch) {})...), ErrInvalid},
	} {
		if err := c.batch.ValidateProduce(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestProduceOfMoreOrLessThanOneBatchIsRefused(t *testing.T) {
	b, _ := sample(None)
	if got, err := ParseProduce(b); err != nil || len(got) != len(b) {
		t.Fatal(err)
	}
	if _, err := ParseProduce(append(bytes.Clone(b), b...)); !errors.Is(err, ErrInvalid) {
		t.Errorf("two batches: %v", err)
	}
	if _, err := ParseProduce(b[:len(b)-1]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("cut batch: %v", err)
	}
	if _, err := ParseProduce(nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("nothing: %v", err)
	}
}

func TestSequenceWrapsAfterMaxInt32(t *testing.T) {
	b := Builder{Producer: &Producer{ID: 1, Sequence: math.MaxInt32}}
	b.Append(Record{})
	b.Append(Record{})
	if got := b.Finish().LastSequence(); got != 0 {
		t.Fatalf("sequence after 2^31-1 is %d", got)
	}
	none := Builder{}
	none.Append(Record{})
	if got := none.Finish().LastSequence(); got != NoSequence {
		t.Fatalf("without a producer: %d", got)
	}
}

func TestMarkerHasTheFourByteKeyThatClientsUnderstand(t *testing.T) {
	for _, typ := range []ControlType{Abort, Commit} {
		b := BuildControl(typ, 9, 3, 77, 5000)
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		if b.Attributes() != 0x30 || b.BaseSequence() != NoSequence || b.Count() != 1 || b.ProducerID() != 9 || b.ProducerEpoch() != 3 {
			t.Fatalf("%v attributes %#x", b, b.Attributes())
		}
		got, err := collect(b)
		if err != nil || !bytes.Equal(got[0].Key, []byte{0, 0, 0, byte(typ)}) || !bytes.Equal(got[0].Value, []byte{0, 0, 0, 0, 0, 77}) {
			t.Fatalf("%+v, %v", got, err)
		}
		gotType, epoch, err := ParseControl(b)
		if err != nil || gotType != typ || epoch != 77 {
			t.Fatalf("%v, %d, %v", gotType, epoch, err)
		}
	}
	data, _ := sample(None)
	if _, _, err := ParseControl(data); !errors.Is(err, ErrInvalid) {
		t.Fatalf("data batch: %v", err)
	}
}

func TestDamagedRecordsAreReportedWithTheirNumber(t *testing.T) {
	b, _ := sample(None)
	b = append(b, 0xff)
	be.PutUint32(b[posLength:], uint32(len(b)-lengthOverhead))
	if _, err := collect(b); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("trailing byte: %v", err)
	}
	c, _ := sample(None)
	c[HeaderSize] = 0x7e
	if _, err := collect(c); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "record 0 of 3") {
		t.Fatalf("damaged length: %v", err)
	}
}

func TestASmallBatchCannotUnfoldWithoutEnd(t *testing.T) {
	huge := be.AppendUint32(nil, 0)[:0]
	huge = append(huge, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0) // snappy block that claims 4 GiB
	if _, err := Decompress(Snappy, huge); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
	if _, err := Decompress(9, nil); !errors.Is(err, ErrCodec) {
		t.Fatalf("codec 9: %v", err)
	}
}

// FuzzDecodeMessage feeds bytes to everything that reads a batch: nothing may panic, and what passes
// validation must be one batch of the stated length.
func FuzzDecodeMessage(f *testing.F) {
	for codec := None; codec <= Zstd; codec++ {
		b, _ := sample(codec)
		f.Add([]byte(b))
	}
	f.Add([]byte(BuildControl(Commit, 1, 0, 0, 0)))
	f.Add([]byte(holding(None, 2, append(plainRecord(0, 0, 0, 1, 1, 2, 2, 'k', 1), plainRecord(0, 0, 2, 1, 1, 0)...))))
	f.Add([]byte(holding(None, 1, []byte("these are no records"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = PeekHeader(data)
		_, _, _ = DecodeMessage(data)
		for codec := None; codec <= Zstd; codec++ {
			if len(data) < 1<<10 {
				_, _ = Decompress(codec, data)
			}
		}
		b, rest, err := Parse(data)
		if err != nil {
			return
		}
		if len(b)+len(rest) != len(data) || b.Length() != len(b) {
			t.Fatalf("%d + %d bytes out of %d", len(b), len(rest), len(data))
		}
		if err := b.Validate(); err == nil && b.NextOffset()-b.BaseOffset() != int64(b.Count()) {
			t.Fatalf("%v passed validation", b)
		}
		_, _, _ = ParseControl(b)
		if b.Codec() == None && b.Count() > 0 && (b.CheckRecords() == nil) != decodes(b) {
			t.Fatalf("the walk over the records and the decoder disagree: %v", b.CheckRecords())
		}
		n := int32(0)
		for _, err := range Records(b) {
			if err != nil {
				return
			}
			n++
		}
		if n != b.Count() {
			t.Fatalf("%d records out of a batch of %d", n, b.Count())
		}
	})
}

func BenchmarkValidateProduce16KiB(b *testing.B) {
	var builder Builder
	for range 16 {
		builder.Append(Record{Value: make([]byte, 1010)})
	}
	batch := builder.Finish()
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if err := batch.ValidateProduce(); err != nil {
			b.Fatal(err)
		}
	}
}
