package replica

import (
	"encoding/binary"
	"fmt"

	"gopherlog/engine/log"
)

// The state in a snapshot, opaque to the log:
//
//	| version u8 = 1 | configuration index u64 | its length u32 | configuration | FSM state, the rest |
//
// A base on the wire and as a restart copy:
//
//	| version u8 = 1 | index u64 | term u64 | next offset i64 | log start i64 | state, the rest |
const (
	stateVersion = 1
	stateHeader  = 1 + 8 + 4
	baseHeader   = 1 + 4*8
)

var be = binary.BigEndian

type groupState struct {
	conf      []byte
	confIndex uint64
	fsm       []byte
}

func encodeState(conf []byte, confIndex uint64, fsm []byte) []byte {
	b := append(make([]byte, 0, stateHeader+len(conf)+len(fsm)), stateVersion)
	b = be.AppendUint64(b, confIndex)
	b = be.AppendUint32(b, uint32(len(conf)))
	b = append(b, conf...)
	return append(b, fsm...)
}

func decodeState(b []byte) (s groupState, err error) {
	if len(b) < 1 || b[0] != stateVersion {
		return s, fmt.Errorf("snapshot state: format version %d, this program reads %d", first(b), stateVersion)
	}
	if len(b) < stateHeader {
		return s, fmt.Errorf("snapshot state: %d bytes, want at least %d", len(b), stateHeader)
	}
	n := uint64(be.Uint32(b[9:]))
	if n > uint64(len(b)-stateHeader) {
		return s, fmt.Errorf("snapshot state: configuration of %d bytes in %d", n, len(b))
	}
	return groupState{confIndex: be.Uint64(b[1:]), conf: b[stateHeader : stateHeader+n], fsm: b[stateHeader+n:]}, nil
}

// FSMState returns the part of a log.Base's state that the FSM wrote; it aliases state.
func FSMState(state []byte) ([]byte, error) {
	s, err := decodeState(state)
	return s.fsm, err
}

func encodeBase(b log.Base) []byte {
	out := append(make([]byte, 0, baseHeader+len(b.State)), stateVersion)
	out = be.AppendUint64(out, b.Index)
	out = be.AppendUint64(out, b.Term)
	out = be.AppendUint64(out, uint64(b.NextOffset))
	out = be.AppendUint64(out, uint64(b.LogStart))
	return append(out, b.State...)
}

func decodeBase(v []byte) (b log.Base, err error) {
	if len(v) < 1 || v[0] != stateVersion {
		return b, fmt.Errorf("snapshot: format version %d, this program reads %d", first(v), stateVersion)
	}
	if len(v) < baseHeader {
		return b, fmt.Errorf("snapshot: %d bytes, want at least %d", len(v), baseHeader)
	}
	return log.Base{
		Index: be.Uint64(v[1:]), Term: be.Uint64(v[9:]),
		NextOffset: int64(be.Uint64(v[17:])), LogStart: int64(be.Uint64(v[25:])),
		State: v[baseHeader:],
	}, nil
}

func first(b []byte) int {
	if len(b) == 0 {
		return -1
	}
	return int(b[0])
}
