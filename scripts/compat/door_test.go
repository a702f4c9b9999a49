package main

import (
	"io"
	"net"
	"testing"
)

func TestADoorLeadsToANodeThatIsUp(t *testing.T) {
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	down, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nodes := []string{down.Addr().String(), up.Addr().String(), down.Addr().String()}
	down.Close()
	go func() {
		for {
			c, err := up.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("up"))
			_ = c.Close()
		}
	}()
	d, err := openDoor(nodes)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	for range 5 {
		c, err := net.Dial("tcp", d.addr())
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); string(b) != "up" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
		_ = c.Close()
	}
}
