package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Kafka's files beside a segment. They are written for Kafka's tools and read by ours, never to recover from: a .snapshot holds
// one batch per producer, and a producer that has five in flight needs five.
//
//	.snapshot:  version i16 = 1 | CRC-32C of the rest u32 | count i32 | count × 46 bytes
//	.txnindex:  count × { version i16 = 0 | producer id i64 | first i64 | last i64 | last stable i64 }

const (
	snapshotVersion  = 1
	snapshotHead     = 2 + 4 + 4
	snapshotEntry    = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
	txnIndexVersion  = 0
	txnIndexEntryLen = 2 + abortedSize
)

// ErrFile is a .snapshot or .txnindex whose bytes are damaged.
var ErrFile = errors.New("malformed transaction file")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SnapshotEntry is one producer in a .snapshot file.
type SnapshotEntry struct {
	ProducerID       int64
	Epoch            int16
	LastSequence     int32 // -1: no batch
	LastOffset       int64 // of the newest batch; -1: no batch
	OffsetDelta      int32 // records in the newest batch, less one
	Timestamp        int64
	CoordinatorEpoch int32
	Transaction      int64 // first offset of the open transaction; -1: none
}

// AppendSnapshot appends the state in the format of Kafka's .snapshot, producers ascending by id.
func (s *State) AppendSnapshot(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, snapshotVersion)
	crc := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s.producers)))
	for _, id := range s.ids() {
		dst = s.producers[id].snapshot(id).encode(dst)
	}
	binary.BigEndian.PutUint32(dst[crc:], crc32.Checksum(dst[crc+4:], castagnoli))
	return dst
}

func (e *entry) snapshot(id int64) SnapshotEntry {
	x := SnapshotEntry{id, e.epoch, none, none, 0, e.stamp, e.coord, e.txn}
	if e.n > 0 {
		newest := e.batches[e.n-1]
		x.LastSequence = newest.last
		x.OffsetDelta = int32((uint32(newest.last) - uint32(newest.first)) & sequenceMask)
		x.LastOffset = newest.base + int64(x.OffsetDelta)
	}
	return x
}

func (x SnapshotEntry) encode(dst []byte) []byte {
	dst = appendInts(dst, x.ProducerID)
	dst = binary.BigEndian.AppendUint16(dst, uint16(x.Epoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(x.LastSequence))
	dst = appendInts(dst, x.LastOffset)
	dst = binary.BigEndian.AppendUint32(dst, uint32(x.OffsetDelta))
	dst = appendInts(dst, x.Timestamp)
	dst = binary.BigEndian.AppendUint32(dst, uint32(x.CoordinatorEpoch))
	return appendInts(dst, x.Transaction)
}

// ParseSnapshot reads a whole .snapshot file. An unknown version is refused as a version, everything else as ErrFile.
func ParseSnapshot(b []byte) ([]SnapshotEntry, error) {
	if len(b) < snapshotHead {
		return nil, fmt.Errorf("%w: .snapshot of %d bytes", ErrFile, len(b))
	}
	if v := binary.BigEndian.Uint16(b); v != snapshotVersion {
		return nil, fmt.Errorf(".snapshot: version %d is not supported, want %d", v, snapshotVersion)
	}
	if got, want := crc32.Checksum(b[6:], castagnoli), binary.BigEndian.Uint32(b[2:]); got != want {
		return nil, fmt.Errorf("%w: CRC-32C of the .snapshot is %08x, its head says %08x", ErrFile, got, want)
	}
	count := int64(binary.BigEndian.Uint32(b[6:]))
	b = b[snapshotHead:]
	if count*snapshotEntry != int64(len(b)) {
		return nil, fmt.Errorf("%w: %d producers in %d bytes of .snapshot", ErrFile, count, len(b))
	}
	out := make([]SnapshotEntry, 0, count)
	for ; len(b) > 0; b = b[snapshotEntry:] {
		out = append(out, decodeSnapshotEntry(b))
	}
	return out, nil
}

func decodeSnapshotEntry(b []byte) SnapshotEntry {
	i32 := func(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
	i64 := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	return SnapshotEntry{i64(0), int16(binary.BigEndian.Uint16(b[8:])), i32(10), i64(14), i32(22), i64(26), i32(34), i64(38)}
}

// AppendTxnIndex appends an entry of Kafka's .txnindex. A segment's index holds the transactions whose abort marker is in that
// segment, in the order of their markers.
func AppendTxnIndex(dst []byte, a Aborted) []byte {
	dst = binary.BigEndian.AppendUint16(dst, txnIndexVersion)
	return appendInts(dst, a.ProducerID, a.First, a.Last, a.LastStable)
}

// AbortedEndingIn lists the aborted transactions whose marker lies in [from, to): what the .txnindex of that segment holds.
func (s *State) AbortedEndingIn(from, to int64) []Aborted {
	var out []Aborted
	for _, a := range s.aborted {
		if a.Last >= from && a.Last < to {
			out = append(out, a)
		}
	}
	return out
}

// ParseTxnIndex reads a whole .txnindex file. An unknown version is refused as a version, everything else as ErrFile.
func ParseTxnIndex(b []byte) ([]Aborted, error) {
	if len(b)%txnIndexEntryLen != 0 {
		return nil, fmt.Errorf("%w: .txnindex of %d bytes, no multiple of %d", ErrFile, len(b), txnIndexEntryLen)
	}
	var out []Aborted
	for ; len(b) > 0; b = b[txnIndexEntryLen:] {
		if v := binary.BigEndian.Uint16(b); v != txnIndexVersion {
			return nil, fmt.Errorf(".txnindex: version %d is not supported, want %d", v, txnIndexVersion)
		}
		a := decodeAbortedEntry(b[2:])
		if a.First > a.Last || len(out) > 0 && a.Last <= out[len(out)-1].Last {
			return nil, fmt.Errorf("%w: .txnindex holds [%d, %d] after %d entries", ErrFile, a.First, a.Last, len(out))
		}
		out = append(out, a)
	}
	return out, nil
}
