package main

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// raw is a codec that sends bytes as they are and copies what comes into the buffer that is waiting for it.
type raw struct{}

func (raw) Name() string { return "raw" }
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	p := v.(*[]byte)
	if cap(*p) < data.Len() {
		*p = make([]byte, data.Len())
	}
	*p = (*p)[:data.Len()]
	data.CopyTo(*p)
	return nil
}

// answer sends back whatever comes.
func answer(_ any, s grpc.ServerStream) error {
	var buf []byte
	for {
		if err := s.RecvMsg(&buf); err != nil {
			return err
		}
		if err := s.SendMsg(&buf); err != nil {
			return err
		}
	}
}

// trip writes the payload to the file and has it echoed.
func (e *echo) trip(payload []byte) error {
	if _, err := e.file.WriteAt(payload, e.pos); err != nil {
		return err
	}
	e.pos += int64(len(payload))
	if err := e.stream.SendMsg(&payload); err != nil {
		return err
	}
	return e.stream.RecvMsg(&e.back)
}
