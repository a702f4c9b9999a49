package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Control entries of a partition, big endian: kind u8 | offset i64. They are replicated like batches and take no offset.

type commandKind uint8

const (
	commandTrim   commandKind = 1 // the log starts at offset
	commandExpire commandKind = 2 // producers silent since before offset are forgotten
)

const commandSize = 1 + 8

var errCommand = errors.New("partition: malformed control entry")

func encodeCommand(kind commandKind, offset int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(kind)}, uint64(offset))
}

func decodeCommand(b []byte) (commandKind, int64, error) {
	if len(b) != commandSize {
		return 0, 0, fmt.Errorf("%w: %d bytes, want %d", errCommand, len(b), commandSize)
	}
	kind := commandKind(b[0])
	if kind != commandTrim && kind != commandExpire {
		return 0, 0, fmt.Errorf("%w: unknown kind %d", errCommand, kind)
	}
	return kind, int64(binary.BigEndian.Uint64(b[1:])), nil
}
