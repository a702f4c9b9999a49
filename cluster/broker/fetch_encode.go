package broker

import (
	"encoding/binary"
	"slices"

	"gopherlog/cluster/partition"
	"gopherlog/engine/log"
	"gopherlog/engine/wire"
	"gopherlog/txn/producer"
)

// First versions in which a field of the Fetch response exists.
const (
	fetchHasLogStart    = 5
	fetchHasSession     = 7
	fetchHasReadReplica = 11
	fetchIsFlexible     = 12
	fetchNamesByID      = 13
	fetchHasLeaderHint  = 16
)

const noReplica int32 = -1 // no preferred read replica

// Tags of a partition, and of the whole response.
const (
	tagDivergingEpoch = 0
	tagCurrentLeader  = 1
	tagNodeEndpoints  = 0
)

// fetchEncoder writes a Fetch response by hand: in flexible versions the records lie inside their partition's struct, with
// a tag section behind them, and a generated encoder offers no place where a file's bytes could go.
type fetchEncoder struct {
	b        []byte
	flexible bool
	pieces   []wire.Piece
	from     int // start in b of the bytes that are in no piece yet
}

// reset makes room for another answer; what a large one needed is left to the garbage collector.
func (e *fetchEncoder) reset(version int16) {
	if cap(e.b) > maxKeptAnswer || cap(e.pieces) > 2*maxKeptParts {
		*e = fetchEncoder{}
	}
	clear(e.pieces[:cap(e.pieces)])
	e.b, e.pieces, e.from, e.flexible = e.b[:0], e.pieces[:0], 0, version >= fetchIsFlexible
}

// maxKeptAnswer is the largest answer, without its records, whose memory is kept for the next one.
const maxKeptAnswer = 16 << 10

// encodeFetch turns what a fetch has read into pieces, which lie in f until the response's Release.
func encodeFetch(f *fetchCall) wire.Response {
	version := f.req.Version
	e := &f.out
	e.reset(version)
	e.b = slices.Grow(e.b, 64+80*len(f.parts)+32*len(f.msg.Topics))
	e.int32(0) // throttle
	if version >= fetchHasSession {
		e.int16(codeNone)
		e.int32(0) // session
	}
	k := 0
	e.count(len(f.msg.Topics))
	for i := range f.msg.Topics {
		t := &f.msg.Topics[i]
		if version >= fetchNamesByID {
			e.b = append(e.b, t.TopicID[:]...)
		} else {
			e.string(t.Topic)
		}
		e.count(len(t.Partitions))
		for range t.Partitions {
			e.partition(&f.parts[k], version, f.msg.IsolationLevel)
			k++
		}
		e.tags()
	}
	e.endpoints(f)
	e.cut()
	return wire.Response{Pieces: e.pieces, Release: f.done}
}

func (e *fetchEncoder) partition(p *fetchPart, version int16, isolation int8) {
	hw, stable, start := int64(-1), int64(-1), int64(-1)
	if p.code == codeNone {
		hw, stable, start = p.res.HighWatermark, p.res.LastStable, p.res.LogStart
	}
	e.int32(p.in.Partition)
	e.int16(p.code)
	e.int64(hw)
	e.int64(stable)
	if version >= fetchHasLogStart {
		e.int64(start)
	}
	if isolation == partition.ReadUncommitted {
		e.nullArray() // aborted transactions are for read_committed only: some clients drop records by them
	} else {
		e.aborted(p.res.Aborted)
	}
	if version >= fetchHasReadReplica {
		e.int32(noReplica)
	}
	e.records(p.res.Slice)
	if !e.flexible {
		return
	}
	switch {
	case p.hint != nil:
		e.b = append(e.b, 1, tagCurrentLeader, 4+4+1)
		e.int32(int32(p.hint.node))
		e.int32(p.hint.epoch)
	case p.code == codeNone && p.res.DivergingEpoch >= 0:
		e.b = append(e.b, 1, tagDivergingEpoch, 4+8+1)
		e.int32(p.res.DivergingEpoch)
		e.int64(p.res.DivergingEnd)
	}
	e.tags()
}

// endpoints ends the response with where the leaders are that its partitions name.
func (e *fetchEncoder) endpoints(f *fetchCall) {
	if len(f.hints.brokers) == 0 {
		e.tags()
		return
	}
	var list fetchEncoder // its length stands before it
	list.flexible = true
	list.count(len(f.hints.brokers))
	for _, br := range f.hints.brokers {
		host, port := f.b.endpoint(f.req.Conn, br)
		list.int32(int32(br.ID))
		list.string(host)
		list.int32(port)
		if br.Rack == "" {
			list.nullArray()
		} else {
			list.string(br.Rack)
		}
		list.tags()
	}
	e.b = append(e.b, 1, tagNodeEndpoints)
	e.uvarint(len(list.b))
	e.b = append(e.b, list.b...)
}

// aborted lists what read_committed clients skip; they want it ascending per producer.
func (e *fetchEncoder) aborted(list []producer.Aborted) {
	e.count(len(list))
	for i := range list {
		e.int64(list[i].ProducerID)
		e.int64(list[i].First)
		e.tags()
	}
}

// records writes the length of the records and leaves a place for them. None are an empty field, never null: old clients
// take null for damage.
func (e *fetchEncoder) records(s *log.Slice) {
	n := 0
	if s != nil {
		n = s.Bytes
	}
	if e.flexible {
		e.uvarint(n + 1)
	} else {
		e.int32(int32(n))
	}
	if n == 0 {
		return
	}
	e.cut()
	for _, r := range s.Ranges {
		e.pieces = append(e.pieces, wire.Piece{File: r.File, Pos: r.Pos, Len: r.Len})
	}
}

// cut makes a piece of the bytes written since the last one. Bytes are never moved after that: growing b copies it, and a
// piece keeps the old array.
func (e *fetchEncoder) cut() {
	if len(e.b) > e.from {
		e.pieces = append(e.pieces, wire.Piece{Bytes: e.b[e.from:len(e.b):len(e.b)]})
		e.from = len(e.b)
	}
}

func (e *fetchEncoder) int16(v int16) { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *fetchEncoder) uvarint(n int) { e.b = binary.AppendUvarint(e.b, uint64(n)) }

func (e *fetchEncoder) count(n int) {
	if e.flexible {
		e.uvarint(n + 1)
		return
	}
	e.int32(int32(n))
}

func (e *fetchEncoder) nullArray() {
	if e.flexible {
		e.uvarint(0)
		return
	}
	e.int32(-1)
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.uvarint(len(s) + 1)
	} else {
		e.int16(int16(len(s)))
	}
	e.b = append(e.b, s...)
}

// tags writes an empty tag section.
func (e *fetchEncoder) tags() {
	if e.flexible {
		e.b = append(e.b, 0)
	}
}
