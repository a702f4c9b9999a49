//go:build !linux

package wire

// Elsewhere than on Linux file ranges are copied.
const haveSendfile = false

type sendfileState struct{}

func (s *sendfileState) init(*outbox) {}

type leadState struct{}

func (s *leadState) init(*outbox) {}

func (o *outbox) flushLead(bool) error { return o.flushVec() }

func (o *outbox) sendfile(p *Piece) error { return o.copyFile(p) }

func (o *outbox) cork(bool) {}
