package wire

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

const (
	benchFile   = 64 << 20
	benchAnswer = 1 << 20
)

func benchSegment(b *testing.B) *os.File {
	b.Helper()
	path := filepath.Join(b.TempDir(), "segment")
	if err := os.WriteFile(path, make([]byte, benchFile), 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

// drain asks again and again and reads the answers, of n bytes with their length.
func drain(b *testing.B, c net.Conn, n int) {
	b.Helper()
	ask, buf := frame(0, 1, nil), make([]byte, 256<<10)
	b.SetBytes(int64(n))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(ask); err != nil {
			b.Fatal(err)
		}
		for left := n; left > 0; {
			m, err := c.Read(buf[:min(left, len(buf))])
			if err != nil {
				b.Fatal(err)
			}
			left -= m
		}
	}
}

// BenchmarkFileAnswers compares answers of 1 MiB from a file with the same bytes by a bare sendfile loop over the same kind
// of socket.
func BenchmarkFileAnswers(b *testing.B) {
	b.Run("wire", func(b *testing.B) {
		f := benchSegment(b)
		pos := int64(0)
		s := start(b, Config{Pool: NewPool(), Handler: func(r *Request) {
			r.ReplyWait(Response{Pieces: []Piece{{Bytes: make([]byte, 60)}, {File: f, Pos: pos, Len: benchAnswer}, {Bytes: make([]byte, 3)}}})
			pos = (pos + benchAnswer) % benchFile
		}})
		drain(b, dial(b, s), 8+60+benchAnswer+3)
	})
	b.Run("bare", func(b *testing.B) {
		f := benchSegment(b)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer ln.Close()
		go bareSendfile(ln, f)
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		drain(b, c, 71+benchAnswer)
	})
}

// bareSendfile answers every frame with 68 bytes, the next MiB of f, and 3 bytes.
func bareSendfile(ln net.Listener, f *os.File) {
	c, err := ln.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	raw, _ := c.(*net.TCPConn).SyscallConn()
	head, ask, pos := make([]byte, 71), make([]byte, len(frame(0, 1, nil))), int64(0)
	for {
		if _, err := io.ReadFull(c, ask); err != nil {
			return
		}
		if _, err := c.Write(head[:68]); err != nil {
			return
		}
		left := benchAnswer
		raw.Write(func(fd uintptr) bool {
			for left > 0 {
				n, err := syscall.Sendfile(int(fd), int(f.Fd()), &pos, left)
				if n > 0 {
					left -= n
				}
				if err == syscall.EAGAIN {
					return false
				}
				if err != nil && err != syscall.EINTR {
					return true
				}
			}
			return true
		})
		if _, err := c.Write(head[68:]); err != nil {
			return
		}
		pos %= benchFile
	}
}

// BenchmarkSmallRoundTrip is one request in flight with an answer of a few bytes.
func BenchmarkSmallRoundTrip(b *testing.B) {
	s := start(b, Config{Pool: NewPool(), Handler: func(r *Request) { r.Reply(Response{Pieces: []Piece{{Bytes: r.Body[:4:4]}}}) }})
	c := dial(b, s)
	ask, buf := frame(0, 1, binary.BigEndian.AppendUint32(nil, 7)), make([]byte, 12)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(ask); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}
