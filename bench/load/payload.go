package load

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"time"

	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

// HeaderBytes is the header of every value: the shortest value.
const HeaderBytes = 48

// The header, little endian, drawn in docs/FORMATS.md:
//
//	0 "GL"  2 version  3 flags  4 CRC-32C of all other bytes  8 run  16 producer  18 session
//	20 partition  24 lane sequence  32 intended time  40 value length  44 transaction
//	with flag 2 then: 48 input partition  52 zero  56 input offset
const (
	payloadVersion = 2
	flagProbe      = 1 // a prober's message: no lane, not judged
	flagDerived    = 2 // made from another message: its origin follows the header
	originBytes    = scenario.OriginBytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A header identifies one message. A lane is (producer, session, partition); sequences count up in it from 0 without gaps.
type header struct {
	Flags     uint8
	Run       uint64
	Producer  uint16
	Session   uint16
	Partition uint32 // index into the trial's partitions
	Sequence  uint64
	Intended  time.Duration // on the trial's clock; of a derived message: that of its input
	Txn       uint32        // number in its session; 0 none

	FromPartition uint32 // of a derived message: its input, as Partition counts
	FromOffset    int64
}

// seal writes the header into value, whose body is in place already, and the checksum over both.
func (h *header) seal(value []byte) {
	_ = value[HeaderBytes-1]
	value[0], value[1], value[2], value[3] = 'G', 'L', payloadVersion, h.Flags
	le := binary.LittleEndian
	le.PutUint64(value[8:], h.Run)
	le.PutUint16(value[16:], h.Producer)
	le.PutUint16(value[18:], h.Session)
	le.PutUint32(value[20:], h.Partition)
	le.PutUint64(value[24:], h.Sequence)
	le.PutUint64(value[32:], uint64(h.Intended))
	le.PutUint32(value[40:], uint32(len(value)))
	le.PutUint32(value[44:], h.Txn)
	if h.Flags&flagDerived != 0 {
		le.PutUint32(value[HeaderBytes:], h.FromPartition)
		le.PutUint32(value[HeaderBytes+4:], 0)
		le.PutUint64(value[HeaderBytes+8:], uint64(h.FromOffset))
	}
	le.PutUint32(value[4:], checksum(value))
}

// checksum covers everything but itself: a flipped flag must not hide a message.
func checksum(value []byte) uint32 {
	return crc32.Update(crc32.Checksum(value[:4], castagnoli), castagnoli, value[8:])
}

// open reads a sealed value. ours is false where it does not look like a message of this harness, sound where its checksum fails.
func (h *header) open(value []byte) (ours, sound bool) {
	if len(value) < HeaderBytes || value[0] != 'G' || value[1] != 'L' || value[2] != payloadVersion {
		return false, false
	}
	le := binary.LittleEndian
	*h = header{Flags: value[3], Run: le.Uint64(value[8:]), Producer: le.Uint16(value[16:]), Session: le.Uint16(value[18:]),
		Partition: le.Uint32(value[20:]), Sequence: le.Uint64(value[24:]), Intended: time.Duration(le.Uint64(value[32:])), Txn: le.Uint32(value[44:])}
	if h.Flags&flagDerived != 0 {
		if len(value) < HeaderBytes+originBytes {
			return true, false
		}
		h.FromPartition, h.FromOffset = le.Uint32(value[HeaderBytes:]), int64(le.Uint64(value[HeaderBytes+8:]))
	}
	sound = le.Uint32(value[40:]) == uint32(len(value)) && le.Uint32(value[4:]) == checksum(value)
	return true, sound
}

// fits says whether a sound header is of a run and within what the history can hold.
func (h *header) fits(run uint64) bool {
	return h.Run == run && h.Producer <= history.MaxProducer && h.Session <= history.MaxSession && h.Sequence <= history.MaxSequence && h.Txn <= history.MaxTxn
}

// derived says whether a header names an origin, and one that can be.
func (h *header) derived(places int) bool {
	return h.Flags&flagDerived != 0 && int(h.FromPartition) < places && h.FromOffset >= 0 && h.FromOffset <= history.MaxOffset
}

// bodies makes values of the wanted sizes and entropy. Where a codec will look at them every body is drawn anew: bodies that repeat
// within a batch compress better than they claim. One goroutine at a time.
type bodies struct {
	fresh     bool // draw every body anew, also where the memory holds one of this size
	fixed     int
	mu, sigma float64 // of the log-normal
	noise     int     // random bytes of a grain; the rest is zero
	state     uint64
	rnd       *rand.Rand
}

const (
	grainBytes = 64 // entropy is mixed in grains, so that every value has its share
	p99Sigmas  = 2.3263478740408408
	maxValue   = 1 << 20 // what brokers accept by default is about that much
)

func newBodies(v scenario.Value, compression string, seed int64, producer int) *bodies {
	rnd := rand.New(rand.NewPCG(uint64(seed), 0x76616c<<16|uint64(producer)))
	b := &bodies{fresh: compression != "none", fixed: int(v.Size.Fixed), noise: int(math.Round(v.Entropy * grainBytes)), state: rnd.Uint64(), rnd: rnd}
	if b.fixed == 0 {
		b.mu = math.Log(float64(v.Size.Median))
		b.sigma = (math.Log(float64(v.Size.P99)) - b.mu) / p99Sigmas
	}
	return b
}

// next fills value, growing it where needed, with a body of the next size; the header's place is left as it is. What value holds
// already must come from next.
func (b *bodies) next(value []byte) []byte {
	n := b.fixed
	if n == 0 {
		n = min(max(int(math.Exp(b.mu+b.sigma*b.rnd.NormFloat64())), HeaderBytes), maxValue)
	}
	if !b.fresh && len(value) == n {
		return value
	}
	if cap(value) < n {
		value = make([]byte, n)
	}
	value = value[:n]
	for body := value[HeaderBytes:]; len(body) > 0; {
		grain := body[:min(grainBytes, len(body))]
		noise := min(b.noise, len(grain))
		b.fill(grain[:noise])
		clear(grain[noise:])
		body = body[len(grain):]
	}
	return value
}

// fill writes the output of a SplitMix64 generator: a nanosecond for eight bytes.
func (b *bodies) fill(p []byte) {
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(p, b.draw())
		p = p[8:]
	}
	if len(p) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], b.draw())
		copy(p, last[:])
	}
}

func (b *bodies) draw() uint64 {
	b.state += 0x9e3779b97f4a7c15
	z := b.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
