package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"

	"gopherlog/engine/vfs"
)

const (
	controlDir     = "control"
	controlSuffix  = ".control"
	controlMagic   = "GLCT"
	controlVersion = 1
	// Positions in a snapshot of the control group: docs/FORMATS.md.
	controlAtCRC   = 6
	controlAtBody  = 10
	controlAtTerm  = 18
	controlAtConf  = 34
	controlAtState = 38
)

// control checks the control group's snapshots: each frame, not what the state in it means. A server may remove or replace files
// meanwhile; each is written whole.
func (s *summary) control(dir string) error {
	if there, err := vfs.Exists(vfs.OS(), dir); err == nil && !there {
		return nil // none was ever taken
	}
	names, err := listDir(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, controlSuffix) {
			continue
		}
		path := filepath.Join(dir, name)
		b, err := os.ReadFile(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			s.add(problem{path, -1, -1, err.Error()})
		case len(b) >= controlAtCRC && string(b[:4]) == controlMagic && binary.BigEndian.Uint16(b[4:]) != controlVersion:
			s.Notes = append(s.Notes, fmt.Sprintf("%s has format version %d, this program knows %d", path, binary.BigEndian.Uint16(b[4:]), controlVersion))
		default:
			if at, what := checkControl(name, b); what != "" {
				s.add(problem{path, -1, at, what})
			}
		}
	}
	return nil
}

// checkControl returns what is wrong with a snapshot and at which byte; "" when nothing is.
func checkControl(name string, b []byte) (at int64, what string) {
	switch {
	case len(b) < controlAtState:
		return int64(len(b)), fmt.Sprintf("%d bytes, a snapshot of the control group has at least %d", len(b), controlAtState)
	case string(b[:4]) != controlMagic:
		return 0, "is no snapshot of the control group"
	}
	if got, want := crc32.Checksum(b[controlAtBody:], crc32.MakeTable(crc32.Castagnoli)), binary.BigEndian.Uint32(b[controlAtCRC:]); got != want {
		return controlAtCRC, fmt.Sprintf("checksum of the bytes is %08x, the file says %08x", got, want)
	}
	if n := int64(binary.BigEndian.Uint32(b[controlAtConf:])); n > int64(len(b)-controlAtState) {
		return controlAtConf, fmt.Sprintf("configuration of %d bytes in a file of %d", n, len(b))
	}
	index, term := binary.BigEndian.Uint64(b[controlAtBody:]), binary.BigEndian.Uint64(b[controlAtTerm:])
	if want := fmt.Sprintf("%020d-%020d%s", index, term, controlSuffix); name != want {
		return controlAtBody, fmt.Sprintf("holds index %d and term %d, its name would be %s", index, term, want)
	}
	return 0, ""
}
