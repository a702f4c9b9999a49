package log

import (
	"errors"
	"testing"
)

// A power cut can leave zeros behind a file's first bytes; only what says that it is of another version may be left alone.
func TestZerosWhereTheVersionWasAreDamageAndNoOtherVersion(t *testing.T) {
	decoders := map[string]struct {
		file   []byte
		decode func([]byte) error
	}{
		"ridx":         {(&ridxHead{first: 1}).encode(), func(b []byte) error { _, err := decodeRidxHead("x.ridx", b); return err }},
		"side journal": {sidesHead(7), func(b []byte) error { _, _, err := decodeSides(b); return err }},
		"envelope":     {seal(magicPoint, []byte("payload")), func(b []byte) error { _, err := unseal(magicPoint, "x", b); return err }},
	}
	for name, d := range decoders {
		if err := d.decode(d.file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d.file[5] = 0
		var damage *CorruptionError
		if err := d.decode(d.file); !errors.As(err, &damage) {
			t.Errorf("%s without a version: %v", name, err)
		}
		d.file[5] = formatVersion + 1
		if err := d.decode(d.file); !errors.Is(err, ErrVersion) {
			t.Errorf("%s of the next version: %v", name, err)
		}
	}
}
