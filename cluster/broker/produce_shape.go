package broker

import (
	"encoding/binary"
	"fmt"

	"gopherlog/cluster/meta"
	"gopherlog/engine/wire"
)

const (
	firstTransactionalProduce = 3
	firstFlexibleProduce      = 9
)

// checkProduceShape walks a produce request without allocating and refuses one that claims more topics or partitions than
// maxProducePartitions, or lengths that its bytes do not bear out. It runs before the decoder, which makes
// structs of claims.
func checkProduceShape(body []byte, version int16) error {
	w := walker{b: body, flexible: version >= firstFlexibleProduce}
	if version >= firstTransactionalProduce {
		w.skipString()
	}
	w.skip(2 + 4) // acks, timeout
	total := 0
	for topics := w.count(); topics > 0 && !w.bad; topics-- {
		if version >= firstProduceByID {
			w.skip(len(meta.TopicID{}))
		} else {
			w.skipString()
		}
		n := w.count()
		if total += n + 1; total > maxProducePartitions {
			return fmt.Errorf("%w: more than %d partitions in one request", wire.ErrFrame, maxProducePartitions)
		}
		for ; n > 0 && !w.bad; n-- {
			w.skip(4)
			w.skipBytes()
			w.skipTags()
		}
		w.skipTags()
	}
	if w.bad {
		return fmt.Errorf("%w: lengths in the body do not fit its %d bytes", wire.ErrFrame, len(body))
	}
	return nil
}

// walker steps over encoded values; bad is set once something does not fit.
type walker struct {
	b        []byte
	flexible bool
	bad      bool
}

func (w *walker) skip(n int) {
	if n < 0 || n > len(w.b) {
		w.bad, w.b = true, nil
		return
	}
	w.b = w.b[n:]
}

func (w *walker) uvarint() int {
	v, n := binary.Uvarint(w.b)
	if n <= 0 || v > 1<<31 {
		w.bad, w.b = true, nil
		return 0
	}
	w.b = w.b[n:]
	return int(v)
}

// length of a value whose old form has a prefix of size bytes; -1 and compact 0 are null, that is 0.
func (w *walker) length(size int) int {
	if w.flexible {
		return max(w.uvarint()-1, 0)
	}
	b := w.b
	w.skip(size)
	switch {
	case w.bad:
		return 0
	case size == 2:
		return max(int(int16(binary.BigEndian.Uint16(b))), 0)
	}
	return max(int(int32(binary.BigEndian.Uint32(b))), 0)
}

func (w *walker) count() int  { return w.length(4) }
func (w *walker) skipString() { w.skip(w.length(2)) }
func (w *walker) skipBytes()  { w.skip(w.length(4)) }

func (w *walker) skipTags() {
	if !w.flexible {
		return
	}
	for n := w.uvarint(); n > 0 && !w.bad; n-- {
		w.uvarint()
		w.skip(w.uvarint())
	}
}
