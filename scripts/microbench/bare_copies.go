package main

import (
	"io"
	"net"
	"os"
	"sync/atomic"
)

// lead takes chunks from left, writes each to the file and copies it to two peers, at most window of them unanswered by either.
func (p *barePart) lead(chunk []byte, window int, left *atomic.Int64) error {
	var open [2]int
	wait := func(most int) error {
		for i := range open {
			for open[i] > most {
				n, ok := <-p.acks[i]
				if !ok {
					return io.ErrUnexpectedEOF
				}
				open[i] -= n
			}
		}
		return nil
	}
	for left.Add(-1) >= 0 {
		if err := wait(window - 1); err != nil {
			return err
		}
		if _, err := p.file.WriteAt(chunk, p.pos); err != nil {
			return err
		}
		p.pos += int64(len(chunk))
		for i, c := range p.peers {
			if _, err := c.Write(chunk); err != nil {
				return err
			}
			open[i]++
		}
	}
	return wait(0)
}

// follow reads chunks into one buffer, writes them and answers each with a byte.
func follow(c net.Conn, f *os.File, size int) {
	buf := make([]byte, size)
	for pos := int64(0); ; pos += int64(size) {
		if _, err := io.ReadFull(c, buf); err != nil {
			return
		}
		if _, err := f.WriteAt(buf, pos); err != nil {
			return
		}
		if _, err := c.Write(buf[:1]); err != nil {
			return
		}
	}
}
