package log

import (
	"bufio"
	"fmt"
	"io"

	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// DumpFile writes a readable listing of one file of a partition's directory, chosen by its name, to w. It
// ends with the first damage, which it returns after what came before is written.
func DumpFile(w io.Writer, fs vfs.FS, path string) error {
	name := fs.PathBase(path)
	base, ext, isSegment := parseSegmentName(name)
	out := bufio.NewWriter(w)
	var err error
	switch {
	case isSegment && ext == extLog:
		err = dumpLog(out, fs, path, name)
	case isSegment || name == filePoint || name == fileReset || name == fileSides || name == fileEpochs || name == fileMetadata:
		var data []byte
		if data, err = vfs.ReadFile(fs, path); err == nil {
			err = dumpData(out, name, ext, base, data)
		}
	default:
		err = fmt.Errorf("log: %s is no file of a partition's directory", name)
	}
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	return err
}

func dumpLog(w io.Writer, fs vfs.FS, path, name string) error {
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	in := &batchReader{f: f, name: name, size: info.Size()}
	for in.pos < in.size {
		b, err := in.next()
		if err == nil {
			dumpBatch(w, b, in.pos)
			err = b.CheckCRC()
		}
		if err != nil {
			return &CorruptionError{name, in.pos, err.Error()}
		}
		in.pos += int64(len(b))
	}
	return nil
}

func dumpBatch(w io.Writer, b record.Batch, pos int64) {
	fmt.Fprintf(w, "offsets [%d, %d) position %d bytes %d epoch %d codec %v timestamps [%d, %d] crc %08x",
		b.BaseOffset(), b.NextOffset(), pos, len(b), b.LeaderEpoch(), b.Codec(), b.BaseTimestamp(), b.MaxTimestamp(), b.CRC())
	if b.HasProducerID() {
		fmt.Fprintf(w, " producer %d epoch %d sequence [%d, %d]", b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence())
	}
	if b.IsTransactional() {
		fmt.Fprint(w, " transactional")
	}
	if b.IsControl() {
		if t, epoch, err := record.ParseControl(b); err == nil {
			fmt.Fprintf(w, " control %v coordinator epoch %d", t, epoch)
		}
	}
	fmt.Fprintln(w)
}

func dumpData(w io.Writer, name, ext string, base int64, data []byte) error {
	switch ext {
	case extRidx:
		return dumpRidx(w, name, data)
	case extIndex:
		return dumpFixed(data, indexEntry, func(e []byte) {
			fmt.Fprintf(w, "offset %d position %d\n", base+int64(be.Uint32(e)), be.Uint32(e[4:]))
		})
	case extTimeIndex:
		return dumpFixed(data, timeIndexEntry, func(e []byte) {
			fmt.Fprintf(w, "timestamp %d offset %d\n", int64(be.Uint64(e)), base+int64(be.Uint32(e[8:])))
		})
	case extTxnIndex:
		return dumpFixed(data, txnIndexEntry, func(e []byte) {
			fmt.Fprintf(w, "producer %d offsets [%d, %d] last stable offset %d\n",
				int64(be.Uint64(e[2:])), int64(be.Uint64(e[10:])), int64(be.Uint64(e[18:])), int64(be.Uint64(e[26:])))
		})
	case extSnapshot:
		return dumpSnapshot(w, name, data)
	case extSnap:
		return dumpBase(w, magicSnap, name, data)
	case "":
	default:
		return fmt.Errorf("log: no listing for %s", name)
	}
	switch name {
	case fileReset:
		return dumpBase(w, magicReset, name, data)
	case fileSides:
		return dumpSides(w, data)
	case filePoint:
		p, err := decodePoint(name, data)
		if err == nil {
			fmt.Fprintf(w, "index %d term %d next offset %d segment %d position %d log start %d\n",
				p.index, p.term, p.nextOffset, p.segment, p.position, p.logStart)
		}
		return err
	}
	_, err := w.Write(data)
	return err
}

func dumpBase(w io.Writer, magic, name string, data []byte) error {
	b, err := decodeBase(magic, name, data)
	if err == nil {
		fmt.Fprintf(w, "index %d term %d next offset %d log start %d state of %d bytes\n", b.Index, b.Term, b.NextOffset, b.LogStart, len(b.State))
	}
	return err
}

func dumpSides(w io.Writer, data []byte) error {
	floor, kept, err := decodeSides(data)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "none missing up to index %d\n", floor)
	for _, e := range kept {
		fmt.Fprintf(w, "index %d term %d type %d extension %x data of %d bytes\n", e.Index, e.Term, e.Type, e.Ext, len(e.Data))
	}
	return nil
}

func dumpRidx(w io.Writer, name string, data []byte) error {
	h, err := decodeRidxHead(name, data)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "first index %d base offset %d previous term %d\n", h.first, h.base, h.prevTerm)
	index := h.first
	return dumpFixed(data[ridxHeader:], ridxSize, func(b []byte) {
		e := decodeRidx(b)
		kind := fmt.Sprintf("position %d bytes %d", e.pos, e.length)
		if e.length == 0 {
			kind = "side entry"
		}
		fmt.Fprintf(w, "index %d term %d offset %d %s\n", index, e.term, h.base+int64(e.rel), kind)
		index++
	})
}

// dumpFixed calls fn for every entry; what follows the last whole one is damage.
func dumpFixed(data []byte, size int, fn func([]byte)) error {
	for ; len(data) >= size; data = data[size:] {
		fn(data[:size])
	}
	if len(data) > 0 {
		return fmt.Errorf("log: %d bytes follow the last whole entry of %d", len(data), size)
	}
	return nil
}
