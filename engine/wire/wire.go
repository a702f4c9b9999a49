// Package wire frames the Kafka protocol on TCP: it reads length-prefixed requests into pooled buffers and writes responses
// back in request order. It knows sizes, request headers, sockets and limits; it refuses to know what any
// request means, which errors exist, or where the bytes of a file range come from.
//
// One goroutine per connection reads frames, reads ahead while earlier requests are unanswered, and calls the
// handler. Whoever answers a request (the reader itself, a parked fetch, the goroutine that saw a commit)
// also writes the response when its turn has come and the socket takes it at once; otherwise a goroutine is
// started that may wait for the client.
package wire

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

// Limits bound what clients can make the server hold. Zero fields take the default.
type Limits struct {
	// MaxFrame is the largest request in bytes, its 4-byte length not counted. A larger announcement drops the
	// connection before anything is allocated.
	MaxFrame int
	// MaxConns is the number of connections served at once; one more is closed when it is accepted.
	MaxConns int
	// PipelinePerConn is the number of requests of one connection that may be unanswered.
	PipelinePerConn int
	// InflightPerConn bounds the bytes of request buffers in use and of responses not yet sent, per
	// connection. One request is always admitted.
	InflightPerConn int64
	// InflightNode bounds the bytes of request buffers in use by all connections, by capacity. A frame whose
	// reading has begun may finish above it, one frame at a time; frames of up to 64 KiB have an eighth of it
	// to themselves, on top.
	InflightNode int64
	// FrameDeadline is the longest time between the first and the last byte of a frame.
	FrameDeadline time.Duration
	// WriteDeadline is the longest time in which a client takes none of the bytes that are ready for it.
	WriteDeadline time.Duration
	// IdleDeadline closes connections that asked for nothing and wait for nothing.
	IdleDeadline time.Duration
}

// DefaultLimits are Kafka's own defaults where it has them.
func DefaultLimits() Limits {
	return Limits{
		MaxFrame:        100 << 20,
		MaxConns:        4096,
		PipelinePerConn: 64,
		InflightPerConn: 64 << 20,
		InflightNode:    256 << 20,
		FrameDeadline:   30 * time.Second,
		WriteDeadline:   60 * time.Second,
		IdleDeadline:    10 * time.Minute,
	}
}

// WithDefaults returns l with every zero field replaced by its default.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	setDefault(&l.MaxFrame, d.MaxFrame)
	setDefault(&l.MaxConns, d.MaxConns)
	setDefault(&l.PipelinePerConn, d.PipelinePerConn)
	setDefault(&l.InflightPerConn, d.InflightPerConn)
	setDefault(&l.InflightNode, d.InflightNode)
	setDefault(&l.FrameDeadline, d.FrameDeadline)
	setDefault(&l.WriteDeadline, d.WriteDeadline)
	setDefault(&l.IdleDeadline, d.IdleDeadline)
	return l
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Config is what a Server needs. Listener and Handler are required.
type Config struct {
	Listener net.Listener
	// Handler is called on the connection's reader goroutine, in request order, and must see to it that each
	// request is answered exactly once (Reply, ReplyFlush, ReplyNone) or its connection closed. It may answer
	// later and from another goroutine; while it runs, no further request of that connection is read.
	Handler func(*Request)
	// FrameLimit returns the largest frame accepted for an API, or 0 if the API is unknown: such a
	// connection is dropped after its first 8 bytes. nil accepts MaxFrame for all.
	FrameLimit func(key, version int16) int
	Limits     Limits
	Pool       *Pool        // nil: a pool of its own
	Logger     *slog.Logger // nil: silent
	Now        func() time.Time
}

var (
	// ErrClosed answers use of a closed connection or server.
	ErrClosed = errors.New("wire: closed")
	// ErrFrame is wrapped by whatever makes bytes no acceptable request.
	ErrFrame = errors.New("bad frame")
	// ErrDeadline closes connections that overstay one of the three deadlines.
	ErrDeadline = errors.New("deadline passed")
	// ErrFile closes a connection whose response could not be read from its file.
	ErrFile = errors.New("response file")
)
