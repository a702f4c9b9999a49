package fault

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	HandleProbe()
	os.Exit(m.Run())
}

// The namespace part runs in a child process: this test starts itself there.
func TestCutSilencesOnePairAndCountsItsPackets(t *testing.T) {
	if os.Getenv(insideVar) != "run" {
		if err := Probe(); err != nil {
			t.Skipf("this kernel gives no network namespace, so there is nothing to cut in: %v", err)
		}
		cmd := insideCommand("run", []string{"-test.run=^" + t.Name() + "$", "-test.v"})
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("inside the namespace: %v\n%s", err, out)
		}
		return
	}
	network, err := Enter()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.1.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	within := time.Minute
	dial := func(from string) error {
		d := net.Dialer{Timeout: within, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", l.Addr().String())
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial("127.0.1.1"); err != nil {
		t.Fatalf("before the cut: %v", err)
	}
	if err := network.Cut([]string{"127.0.1.2"}, []string{"127.0.1.1"}); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	within = 300 * time.Millisecond
	if err := dial("127.0.1.1"); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("through the cut: got %v, want a time-out", err)
	}
	within = time.Minute
	if n, err := network.Dropped(); err != nil || n == 0 {
		t.Fatalf("dropped %d packets (%v), want some", n, err)
	}
	if err := dial("127.0.1.3"); err != nil {
		t.Fatalf("an address that is not cut: %v", err)
	}
	if err := network.Mend(); err != nil {
		t.Fatal(err)
	}
	if err := dial("127.0.1.1"); err != nil {
		t.Fatalf("after mending: %v", err)
	}
}
