package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is the compression of a batch's records.
type Codec int8

const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String returns Kafka's name of the codec.
func (c Codec) String() string {
	names := [...]string{"none", "gzip", "snappy", "lz4", "zstd"}
	if c >= 0 && int(c) < len(names) {
		return names[c]
	}
	return "codec(" + strconv.Itoa(int(c)) + ")"
}

// MaxDecompressed bounds what Decompress returns, against small batches that unfold without end.
const MaxDecompressed = 256 << 20

// Decompress returns the records of a batch without compression; for None it is the payload itself.
// The broker never calls it: stored bytes are the client's bytes. It is for tools and tests.
func Decompress(c Codec, payload []byte) ([]byte, error) {
	switch c {
	case None:
		return payload, nil
	case Gzip:
		r, err := gzip.NewReader(bytes.NewReader(payload))
		if err != nil {
			return nil, fmt.Errorf("%w: gzip: %w", ErrCorrupt, err)
		}
		return readBounded("gzip", r)
	case Snappy:
		return unsnappy(payload)
	case LZ4:
		return readBounded("lz4", lz4.NewReader(bytes.NewReader(payload)))
	case Zstd:
		return unzstd(payload)
	}
	return nil, fmt.Errorf("%w: codec %d", ErrCodec, c)
}

func readBounded(name string, r io.Reader) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(r, MaxDecompressed+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	}
	if len(out) > MaxDecompressed {
		return nil, fmt.Errorf("%w: %s: more than %d bytes", ErrTooLarge, name, MaxDecompressed)
	}
	return out, nil
}

func unzstd(payload []byte) ([]byte, error) {
	d, err := zstd.NewReader(bytes.NewReader(payload), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxDecompressed))
	if err != nil {
		return nil, fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
	}
	defer d.Close()
	return readBounded("zstd", d)
}

// xerialMagic starts the framing that Java clients put around snappy blocks: magic, version and lowest
// compatible version (4 bytes each), then blocks with a 4-byte length.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

func unsnappy(payload []byte) ([]byte, error) {
	if !bytes.HasPrefix(payload, xerialMagic) {
		return appendSnappy(nil, payload)
	}
	if len(payload) < xerialHeader {
		return nil, fmt.Errorf("%w: snappy: framing header has %d of %d bytes", ErrCorrupt, len(payload), xerialHeader)
	}
	var out []byte
	for rest := payload[xerialHeader:]; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, fmt.Errorf("%w: snappy: block length cut off", ErrCorrupt)
		}
		n := int64(be.Uint32(rest))
		if rest = rest[4:]; n > int64(len(rest)) {
			return nil, fmt.Errorf("%w: snappy: block of %d bytes with %d left", ErrCorrupt, n, len(rest))
		}
		var err error
		if out, err = appendSnappy(out, rest[:n]); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return out, nil
}

// maxSnappyRatio is above what snappy can unfold one byte into: a block that claims more is damaged,
// and no memory is given to it.
const maxSnappyRatio = 64

func appendSnappy(out, block []byte) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	case n > maxSnappyRatio*len(block):
		return nil, fmt.Errorf("%w: snappy: block of %d bytes claims to unfold to %d", ErrCorrupt, len(block), n)
	case len(out)+n > MaxDecompressed:
		return nil, fmt.Errorf("%w: snappy: more than %d bytes", ErrTooLarge, MaxDecompressed)
	}
	plain, err := s2.Decode(nil, block)
	if err != nil {
		return nil, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	}
	return append(out, plain...), nil
}

// Compress returns the records compressed, for the Builder.
func Compress(c Codec, plain []byte) ([]byte, error) {
	var buf bytes.Buffer
	switch c {
	case None:
		return plain, nil
	case Gzip:
		w := gzip.NewWriter(&buf)
		_, err := w.Write(plain)
		err = errors.Join(err, w.Close())
		return buf.Bytes(), err
	case Snappy:
		return s2.EncodeSnappy(nil, plain), nil
	case LZ4:
		w := lz4.NewWriter(&buf)
		_, err := w.Write(plain)
		err = errors.Join(err, w.Close())
		return buf.Bytes(), err
	case Zstd:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		out := w.EncodeAll(plain, nil)
		return out, w.Close()
	}
	return nil, fmt.Errorf("%w: codec %d", ErrCodec, c)
}
