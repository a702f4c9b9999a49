package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"gopherlog/engine/vfs"
)

// formatVersion is the version of every binary file of ours.
const formatVersion = 1

const envelopeHeader = 16

var (
	be         = binary.BigEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Magics of the files in the envelope.
const (
	magicSnap  = "GLSN"
	magicReset = "GLRS"
	magicPoint = "GLRP"
)

// seal wraps payload in the envelope.
func seal(magic string, payload []byte) []byte {
	b := make([]byte, envelopeHeader, envelopeHeader+len(payload))
	copy(b, magic)
	be.PutUint16(b[4:], formatVersion)
	be.PutUint32(b[8:], uint32(len(payload)))
	crc := crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, payload)
	be.PutUint32(b[12:], crc)
	return append(b, payload...)
}

// checkVersion tells a file of another version from one that a power cut left with zeros where its version was: that is
// a *CorruptionError.
func checkVersion(file string, v uint16) error {
	switch v {
	case formatVersion:
		return nil
	case 0:
		return &CorruptionError{file, 4, "no version"}
	}
	return fmt.Errorf("%w: %s has version %d, this program reads %d", ErrVersion, file, v, formatVersion)
}

// unseal checks the envelope and returns the payload within b. file names it in errors: ErrVersion for
// a version we do not know, else *CorruptionError.
func unseal(magic, file string, b []byte) ([]byte, error) {
	if len(b) < envelopeHeader {
		return nil, &CorruptionError{file, 0, fmt.Sprintf("%d bytes, want at least %d", len(b), envelopeHeader)}
	}
	if string(b[:4]) != magic {
		return nil, &CorruptionError{file, 0, fmt.Sprintf("magic %q, want %q", b[:4], magic)}
	}
	if err := checkVersion(file, be.Uint16(b[4:])); err != nil {
		return nil, err
	}
	payload := b[envelopeHeader:]
	if n := be.Uint32(b[8:]); int64(n) != int64(len(payload)) {
		return nil, &CorruptionError{file, 8, fmt.Sprintf("length %d, file holds %d", n, len(payload))}
	}
	crc := crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, payload)
	if want := be.Uint32(b[12:]); crc != want {
		return nil, &CorruptionError{file, 12, fmt.Sprintf("checksum %08x, want %08x", crc, want)}
	}
	return payload, nil
}

// Base is stored in .snap and reset files: four numbers, then the state.
const baseFixed = 32

func encodeBase(magic string, b Base) []byte {
	p := make([]byte, 0, baseFixed+len(b.State))
	p = be.AppendUint64(p, b.Index)
	p = be.AppendUint64(p, b.Term)
	p = be.AppendUint64(p, uint64(b.NextOffset))
	p = be.AppendUint64(p, uint64(b.LogStart))
	return seal(magic, append(p, b.State...))
}

func decodeBase(magic, file string, data []byte) (Base, error) {
	p, err := unseal(magic, file, data)
	if err != nil {
		return Base{}, err
	}
	if len(p) < baseFixed {
		return Base{}, &CorruptionError{file, envelopeHeader, fmt.Sprintf("payload of %d bytes, want at least %d", len(p), baseFixed)}
	}
	b := Base{
		Index: be.Uint64(p), Term: be.Uint64(p[8:]),
		NextOffset: int64(be.Uint64(p[16:])), LogStart: int64(be.Uint64(p[24:])),
		State: p[baseFixed:],
	}
	if b.NextOffset < 0 || b.LogStart < 0 || b.LogStart > b.NextOffset {
		return Base{}, &CorruptionError{file, envelopeHeader, fmt.Sprintf("log start %d, next offset %d", b.LogStart, b.NextOffset)}
	}
	return b, nil
}

// point is the content of recovery-point: everything up to index was synced.
type point struct {
	logStart   int64
	index      uint64
	term       uint64
	nextOffset int64
	segment    int64 // base offset of the segment that position is in
	position   int64 // of the first byte after index
}

func encodePoint(p point) []byte {
	b := make([]byte, 0, 48)
	b = be.AppendUint64(b, uint64(p.logStart))
	b = be.AppendUint64(b, p.index)
	b = be.AppendUint64(b, p.term)
	b = be.AppendUint64(b, uint64(p.nextOffset))
	b = be.AppendUint64(b, uint64(p.segment))
	b = be.AppendUint64(b, uint64(p.position))
	return seal(magicPoint, b)
}

func decodePoint(file string, data []byte) (point, error) {
	b, err := unseal(magicPoint, file, data)
	if err != nil {
		return point{}, err
	}
	if len(b) != 48 {
		return point{}, &CorruptionError{file, envelopeHeader, fmt.Sprintf("payload of %d bytes, want 48", len(b))}
	}
	return point{
		logStart: int64(be.Uint64(b)), index: be.Uint64(b[8:]), term: be.Uint64(b[16:]),
		nextOffset: int64(be.Uint64(b[24:])), segment: int64(be.Uint64(b[32:])), position: int64(be.Uint64(b[40:])),
	}, nil
}

// readIfThere returns a small file's content; ok is false when it does not exist.
func readIfThere(fs vfs.FS, path string) (data []byte, ok bool, err error) {
	data, err = vfs.ReadFile(fs, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	return data, err == nil, err
}

func removeIfThere(fs vfs.FS, path string) error {
	if err := fs.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
