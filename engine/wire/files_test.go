package wire

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestConcurrentFileRangesKeepTheirPositions reads one descriptor from many connections at once: an offset
// shared between them would mix their bytes up.
func TestConcurrentFileRangesKeepTheirPositions(t *testing.T) {
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i * 2654435761 >> 13)
	}
	path := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	released := make(chan struct{}, 1000)
	s := start(t, Config{Handler: func(r *Request) {
		pos := int64(binary.BigEndian.Uint32(r.Body))
		n := int64(binary.BigEndian.Uint32(r.Body[4:]))
		resp := Response{Release: func() { released <- struct{}{} }, Pieces: shape(r.CorrelationID, f, pos, n)}
		if pos%2 == 0 {
			r.Reply(resp)
		} else {
			r.ReplyWait(resp)
		}
	}})
	var wg sync.WaitGroup
	const conns, each = 8, 25
	for i := range conns {
		c := dial(t, s)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range each {
				pos, n := (i*1000003+j*77777)%(4<<20), []int{10, sendfileMin - 11, sendfileMin, 1 << 20, 3 << 20}[j%5]
				body := binary.BigEndian.AppendUint32(nil, uint32(pos))
				send(t, c, frame(0, int32(j), binary.BigEndian.AppendUint32(body, uint32(n))))
				_, got := response(t, c)
				var want []byte
				for _, p := range shape(int32(j), f, int64(pos), int64(n)) {
					if want = append(want, p.Bytes...); p.File != nil {
						want = append(want, data[p.Pos:p.Pos+p.Len]...)
					}
				}
				if !bytes.Equal(got, want) {
					t.Errorf("connection %d answer %d: %d bytes differ from the file", i, j, len(got))
				}
			}
		}()
	}
	wg.Wait()
	if t.Failed() {
		return // not everything was asked for: its release would be awaited for ever
	}
	for range conns * each {
		<-released
	}
}

// shape varies what stands before and behind a file: that decides how the bytes around it are sent.
func shape(i int32, f *os.File, pos, n int64) []Piece {
	file, head, tail := Piece{File: f, Pos: pos, Len: n}, Piece{Bytes: []byte("head")}, Piece{Bytes: []byte("tail")}
	switch i / 5 % 5 {
	case 0:
		return []Piece{head, file, {Bytes: []byte("mid")}, {File: f, Pos: 0, Len: 10}, tail}
	case 1:
		return []Piece{head, file}
	case 2:
		return []Piece{{Bytes: bytes.Repeat([]byte("long"), 5000)}, tail, file}
	case 3:
		return []Piece{head, file, tail}
	}
	return []Piece{file}
}

// memFile has no descriptor.
type memFile struct{ *bytes.Reader }

func (memFile) Fd() uintptr { return InvalidFd }

func TestFileWithoutDescriptorIsCopied(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	s := start(t, Config{Handler: func(r *Request) {
		r.Reply(Response{Pieces: []Piece{{File: memFile{bytes.NewReader(data)}, Pos: 5, Len: int64(len(data) - 5)}, {Bytes: []byte("end")}}})
	}})
	c := dial(t, s)
	send(t, c, frame(0, 1, nil))
	if _, got := response(t, c); string(got) != string(data[5:])+"end" {
		t.Fatal("other bytes")
	}
}

func TestUnreadableFileRangeClosesTheConnection(t *testing.T) {
	released := make(chan struct{})
	s := start(t, Config{Handler: func(r *Request) {
		r.Reply(Response{Pieces: []Piece{{File: memFile{bytes.NewReader(nil)}, Len: 10}}, Release: func() { close(released) }})
	}})
	c := dial(t, s)
	send(t, c, frame(0, 1, nil))
	if err := closedByPeer(c); err != nil {
		t.Fatal(err)
	}
	<-released
}
