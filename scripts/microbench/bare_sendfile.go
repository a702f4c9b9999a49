package main

import (
	"encoding/binary"
	"io"
	"net"
	"os"
)

const rangeBytes = 24 // file, position, length

func rangeOf(file int, pos int64, size int) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(file))
	b = binary.BigEndian.AppendUint64(b, uint64(pos))
	return binary.BigEndian.AppendUint64(b, uint64(size))
}

// sendForever answers each request with that range of one of the files. io.CopyN between a file and a TCP connection is sendfile(2); it
// moves the file's own position, so every connection opens the files for itself.
func sendForever(l net.Listener, paths []string) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go sendRanges(c, paths)
	}
}

func sendRanges(c net.Conn, paths []string) {
	defer c.Close()
	var files []*os.File
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return
		}
		defer f.Close()
		files = append(files, f)
	}
	var ask [rangeBytes]byte
	for {
		if _, err := io.ReadFull(c, ask[:]); err != nil {
			return
		}
		f := files[binary.BigEndian.Uint64(ask[:])]
		if _, err := f.Seek(int64(binary.BigEndian.Uint64(ask[8:])), io.SeekStart); err != nil {
			return
		}
		if _, err := io.CopyN(c, f, int64(binary.BigEndian.Uint64(ask[16:]))); err != nil {
			return
		}
	}
}
