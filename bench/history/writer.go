package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxQueuedBlocks = 512         // 32 MiB that may wait for the disk, over all streams; beyond it records are dropped and counted
	flushEvery      = time.Second // what a crash of the harness can lose at most
)

// A Writer writes the files of one trial from a goroutine of its own.
type Writer struct {
	dir        string
	run        uint64
	partitions []Partition

	queue chan block
	free  chan []byte
	done  chan struct{} // closed when the goroutine has ended
	ended chan struct{} // closed when every file is

	mu      sync.Mutex // guards streams, closed, err; never held together with a stream's
	streams []*Stream
	closed  bool
	err     error

	records, bytes, dropped atomic.Int64
}

// block is a stream's full buffer on its way to the disk.
type block struct {
	stream  *Stream
	payload []byte
	records uint32
}

// Create begins a history in dir, which it makes.
func Create(dir string, run uint64, partitions []Partition) (*Writer, error) {
	return create(dir, run, partitions, maxQueuedBlocks)
}

func create(dir string, run uint64, partitions []Partition, queue int) (*Writer, error) {
	if len(partitions) > MaxPartition+1 {
		return nil, fmt.Errorf("history: %d partitions, the format holds %d", len(partitions), MaxPartition+1)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	w := &Writer{dir: dir, run: run, partitions: partitions,
		queue: make(chan block, queue), free: make(chan []byte, queue), done: make(chan struct{}), ended: make(chan struct{})}
	go w.loop()
	return w, nil
}

// Stream opens a file of the given role. A stream belongs to the writer and ends with it.
func (w *Writer) Stream(role, name string) (*Stream, error) { return w.GroupStream(role, name, "") }

// GroupStream is Stream for the roles that belong to a consumer group.
func (w *Writer) GroupStream(role, name, group string) (*Stream, error) {
	head, err := encodeHeader(Header{Run: w.run, Role: role, Name: name, Group: group, Partitions: w.partitions})
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(w.dir, name+extension), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	if _, err := f.Write(head); err != nil {
		f.Close()
		return nil, fmt.Errorf("history: %w", err)
	}
	w.bytes.Add(int64(len(head)))
	s := &Stream{w: w, f: f, coder: newCoder(len(w.partitions)), buf: make([]byte, 0, blockBytes)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		f.Close()
		return nil, errors.New("history: writer is closed")
	}
	w.streams = append(w.streams, s)
	return s, nil
}

// Stats may be asked at any time.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	n := len(w.streams)
	w.mu.Unlock()
	return Stats{Files: n, Records: w.records.Load(), Bytes: w.bytes.Load(), Dropped: w.dropped.Load()}
}

// Close flushes every stream, ends each file with its footer and closes it; it returns the first write error. Records appended later are
// dropped and counted. Until then, and where a write failed, a file has no footer and is read as incomplete.
func (w *Writer) Close() error {
	w.mu.Lock()
	first, streams := !w.closed, w.streams
	w.closed = true
	w.mu.Unlock()
	if first {
		w.finish(streams)
	}
	<-w.ended
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Writer) finish(streams []*Stream) {
	defer close(w.ended)
	for _, s := range streams {
		if b, ok := s.finish(); ok {
			w.queue <- b
		}
	}
	close(w.queue)
	<-w.done
	for _, s := range streams {
		w.end(s)
	}
}

// loop is the writing goroutine. It alone writes blocks.
func (w *Writer) loop() {
	defer close(w.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case b, ok := <-w.queue:
			if !ok {
				return
			}
			w.write(b)
		case <-tick.C:
			w.flush()
		}
	}
}

// end closes a stream's file, with its footer unless a block of it is not there. Nothing writes any more.
func (w *Writer) end(s *Stream) {
	if !s.failed {
		s.mu.Lock()
		foot := s.foot.encode()
		s.mu.Unlock()
		n, err := s.f.Write(foot)
		w.bytes.Add(int64(n))
		w.fail(err)
	}
	w.fail(s.f.Close())
}

// flush queues what the streams hold. A stream's blocks go through the queue only, so that they are written in order.
func (w *Writer) flush() {
	w.mu.Lock()
	streams := w.streams
	w.mu.Unlock()
	for _, s := range streams {
		s.flush()
	}
}

func (w *Writer) write(b block) {
	var head [blockHead]byte
	binary.LittleEndian.PutUint32(head[0:], uint32(len(b.payload)))
	binary.LittleEndian.PutUint32(head[4:], b.records)
	binary.LittleEndian.PutUint32(head[8:], crc32.Checksum(b.payload, castagnoli))
	if b.stream.failed { // half a block may be there: nothing behind it could be read
		w.dropped.Add(int64(b.records))
		return
	}
	_, err := b.stream.f.Write(head[:])
	if err == nil {
		_, err = b.stream.f.Write(b.payload)
	}
	if err != nil {
		w.dropped.Add(int64(b.records))
		b.stream.failed = true
		w.fail(err)
		return
	}
	b.stream.foot.add(head[:], b.records)
	w.records.Add(int64(b.records))
	w.bytes.Add(int64(len(b.payload) + blockHead))
	select {
	case w.free <- b.payload[:0]:
	default:
	}
}

func (w *Writer) fail(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = fmt.Errorf("history: %w", err)
	}
}

// A Stream is one file being written.
type Stream struct {
	w *Writer
	f *os.File

	foot   footer // the writing goroutine's, and Close's after it; foot.dropped is mu's
	failed bool   // same

	mu      sync.Mutex // guards the rest; held for the length of an encode and of a non-blocking hand-over
	coder   *coder
	buf     []byte
	records uint32
	closed  bool
}

// Append adds a record. It never blocks: where the disk fell behind, records are counted as dropped. Safe for concurrent use.
func (s *Stream) Append(r Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.w.dropped.Add(1)
		s.foot.dropped++
		return
	}
	if len(s.buf)+MaxRecordBytes > blockBytes {
		s.handOver()
	}
	s.buf = s.coder.append(s.buf, &r)
	s.records++
}

func (s *Stream) handOver() {
	select {
	case s.w.queue <- block{stream: s, payload: s.buf, records: s.records}:
		s.buf = s.w.buffer()
	default:
		s.w.dropped.Add(int64(s.records))
		s.foot.dropped += uint64(s.records)
		s.buf = s.buf[:0]
	}
	s.records = 0
	s.coder.reset()
}

// flush hands a part-filled buffer over, or keeps it where the queue is full.
func (s *Stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records > 0 && !s.closed && len(s.w.queue) < cap(s.w.queue)/2 {
		s.handOver()
	}
}

// finish ends the stream and gives away its last buffer.
func (s *Stream) finish() (block, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return block{stream: s, payload: s.buf, records: s.records}, s.records > 0
}

func (w *Writer) buffer() []byte {
	select {
	case b := <-w.free:
		return b
	default:
		return make([]byte, 0, blockBytes)
	}
}
