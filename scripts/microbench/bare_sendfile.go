package main

import (
	"encoding/binary"
	"io"
	"net"
	"os"
)

// sendForever answers each 16-byte request (position, length) with that range of the file. io.CopyN between a file and a TCP connection
// is sendfile(2); it moves the file's own position, so every connection opens the file for itself.
func sendForever(l net.Listener, path string) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			f, err := os.Open(path)
			if err != nil {
				return
			}
			defer f.Close()
			var ask [16]byte
			for {
				if _, err := io.ReadFull(c, ask[:]); err != nil {
					return
				}
				if _, err := f.Seek(int64(binary.BigEndian.Uint64(ask[:])), io.SeekStart); err != nil {
					return
				}
				if _, err := io.CopyN(c, f, int64(binary.BigEndian.Uint64(ask[8:]))); err != nil {
					return
				}
			}
		}()
	}
}
