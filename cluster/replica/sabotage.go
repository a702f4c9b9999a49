package replica

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
)

// divergeOdds is on how many batches diverge acts once, unless a test says otherwise.
const divergeOdds = 5000

// Where a batch keeps its checksum, and where the bytes begin that it covers.
const (
	checksumAt   = 17
	checksumOver = 21
)

// diverge plants a fault: of one in so many batches this follower writes another byte down than the leader sent, with the checksum that fits.
// Which ones is drawn for each node apart, so that most often one of the replicas is alone with what it holds.
func (l *groupLog) diverge(e *log.Entry) {
	on, odds := l.g.points.Sabotage(failpoint.Diverge)
	if !on || !e.IsData() || len(e.Data) < record.HeaderSize+2 {
		return
	}
	if odds <= 0 {
		odds = divergeOdds
	}
	if mix(uint64(record.Batch(e.Data).CRC())<<8+uint64(l.g.self.Node()))%uint64(odds) != 0 {
		return
	}
	b := slices.Clone(e.Data) // those of the leader are lent
	b[len(b)-2] ^= 1          // of a record without headers and compression: the last byte of its value
	binary.BigEndian.PutUint32(b[checksumAt:], crc32.Checksum(b[checksumOver:], castagnoli))
	e.Data, e.Owner = b, nil
}

// mix spreads the bits of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
