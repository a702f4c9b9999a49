package rpc

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
)

// Lent bytes are looked at until the socket has taken them, however long the request that carries them is over.
func TestLoanLastsUntilTheBytesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		box := newOutbox(near, &buffers{}, 0, 0)
		ended := 0
		loan := NewLoan(func() { ended++ })
		bytes := []byte("lent")
		go func() { _ = box.send([][]byte{bytes}, nil, len(bytes), loan) }()
		synctest.Wait() // it waits for the reader
		loan.Release()  // the request was given up
		if ended != 0 {
			t.Fatal("the loan ended while its bytes were being written")
		}
		second := NewLoan(func() { ended++ })
		_ = box.send([][]byte{bytes}, nil, len(bytes), second) // queued behind
		second.Release()
		if ended != 0 {
			t.Fatal("the loan ended while its bytes were queued")
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(far, got); err != nil || string(got) != "lent" {
			t.Fatalf("read %q, %v", got, err)
		}
		synctest.Wait()
		if ended != 1 {
			t.Fatalf("%d loans ended after the first write, want 1", ended)
		}
		box.close(ErrDown)
		if ended != 2 {
			t.Fatalf("%d loans ended with the connection, want 2", ended)
		}
	})
}

func TestLoanOfABrokenConnectionEnds(t *testing.T) {
	near, far := net.Pipe()
	far.Close()
	box := newOutbox(near, &buffers{}, 0, 0)
	ended := false
	loan := NewLoan(func() { ended = true })
	if err := box.send([][]byte{[]byte("x")}, nil, 1, loan); err == nil {
		t.Fatal("no error")
	}
	if loan.Release(); !ended {
		t.Fatal("a failed write keeps its loan")
	}
	loan = NewLoan(func() {})
	if err := box.send([][]byte{[]byte("x")}, nil, 1, loan); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("send on a broken connection: %v", err)
	}
	if n := loan.refs.Load(); n != 1 {
		t.Fatalf("%d references after a refused send, want the caller's", n)
	}
}

func TestLoanReleasedTooOftenPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	loan := NewLoan(func() {})
	loan.Release()
	loan.Release()
}
