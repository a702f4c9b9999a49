package rpc

import (
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// encodePart writes one part of args into a pooled buffer and returns the
// pieces to send: small bodies are copied, large ones go as they are. bufs is
// appended to and returned.
func encodePart(pool *buffers, bufs [][]byte, h partHead, from, to string, entries []*raft.Log, bodies int) (out [][]byte, head []byte, size int) {
	h.fromLen, h.toLen, h.entries, h.bodies = len(from), len(to), len(entries), bodies
	inline := 0
	for _, l := range entries {
		if n := entryBytes(l); n <= inlineBytes {
			inline += n
		}
	}
	head = pool.get(partHeadSize + h.restSize() + inline)[:partHeadSize+h.restSize()]
	at := partHeadSize + copy(head[partHeadSize:], from)
	at += copy(head[at:], to)
	for _, l := range entries {
		r := row{term: l.Term, appendedAt: unixNano(l.AppendedAt), data: len(l.Data), ext: len(l.Extensions), kind: l.Type}
		if h.sums || !isData(l) {
			r.sum = entrySum(l)
		}
		r.encode(head[at:])
		at += partRowSize
	}
	h.restSum = crc32.Checksum(head[partHeadSize:], castagnoli)
	h.encode(head)

	from0 := 0 // start of what is in head and not in bufs yet
	for _, l := range entries {
		if entryBytes(l) <= inlineBytes {
			head = append(append(head, l.Data...), l.Extensions...)
			continue
		}
		bufs = append(bufs, head[from0:], l.Data)
		from0 = len(head)
		if len(l.Extensions) > 0 {
			bufs = append(bufs, l.Extensions)
		}
	}
	if from0 < len(head) {
		bufs = append(bufs, head[from0:])
	}
	return bufs, head, partHeadSize + h.restSize() + bodies
}

// entryOf fills l from a row of the table and the bytes that follow the
// previous entry's, and returns the rest.
func (r row) entryOf(l *raft.Log, index uint64, body []byte) []byte {
	l.Index, l.Term, l.Type = index, r.term, r.kind
	l.AppendedAt = fromUnixNano(r.appendedAt)
	if r.data > 0 {
		l.Data = body[:r.data:r.data]
	}
	if r.ext > 0 {
		l.Extensions = body[r.data : r.data+r.ext : r.data+r.ext]
	}
	return body[r.data+r.ext:]
}
