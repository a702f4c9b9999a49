package rpc

import (
	"errors"
	"fmt"
)

// code is an error as it travels. Zero is none.
type code uint16

const (
	codeOther code = iota + 1 // carries text
	codeUnknownGroup
	codeStaleServer
	codeBusy
	codeStalled
	codeSuspect
	codeForeignCluster
	codeVersion
	codeUnknownMethod
	codeClosed
	codeCorrupt
	codeWrongNode
	codeStaleTerm
	codeMayNotCampaign
	codeDown
	codeTimeout
)

var errWrongNode = errors.New("rpc: another node answers at this address")

var codeErrors = map[code]error{
	codeUnknownGroup:   ErrUnknownGroup,
	codeStaleServer:    ErrStaleServer,
	codeBusy:           ErrBusy,
	codeStalled:        ErrStalled,
	codeSuspect:        ErrSuspect,
	codeForeignCluster: ErrForeignCluster,
	codeVersion:        ErrVersion,
	codeUnknownMethod:  ErrUnknownMethod,
	codeClosed:         ErrClosed,
	codeCorrupt:        ErrCorrupt,
	codeWrongNode:      errWrongNode,
	codeStaleTerm:      ErrStaleTerm,
	codeMayNotCampaign: ErrMayNotCampaign,
	codeDown:           ErrDown,
	codeTimeout:        ErrTimeout,
}

// toCode returns how err travels; text is the part that the code does not say.
func toCode(err error) (code, string) {
	for c, e := range codeErrors {
		if errors.Is(err, e) {
			if err == e { //nolint:errorlint // exactly the sentinel needs no text
				return c, ""
			}
			return c, err.Error()
		}
	}
	return codeOther, err.Error()
}

// fromCode returns the error that c and text stand for.
func fromCode(c code, text string) error {
	if e := codeErrors[c]; e != nil {
		if text == "" {
			return e
		}
		return &remoteError{is: e, text: text}
	}
	if text == "" {
		text = fmt.Sprintf("rpc: peer answered with error code %d", c)
	}
	return errors.New(text)
}

// remoteError is a peer's sentence that still compares as our sentinel.
type remoteError struct {
	is   error
	text string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }
