package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gopherlog/scripts/internal/child"
)

// What a bare loop runs in processes of its own is this program again, told its part by the environment.
const (
	childRole  = "MICROBENCH_CHILD"
	roleLoop   = "produce loop"
	roleFile   = "sendfile"
	childNode  = "MICROBENCH_NODE"
	childPeers = "MICROBENCH_PEERS" // of the produce loop: clients' addresses, then peers', by node
	childDir   = "MICROBENCH_DIR"   // or the files to send
)

// runChild does the part of a child until its parent ends, and says whether this process is one.
func runChild() bool {
	role := os.Getenv(childRole)
	if role == "" {
		return false
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, serveChild(role))
	os.Exit(1)
	return true
}

// serveChild returns only why it could not go on.
func serveChild(role string) error {
	clients, err := net.FileListener(os.NewFile(3, "clients"))
	if err != nil {
		return err
	}
	switch role {
	case roleFile:
		return sendForever(clients, filepath.SplitList(os.Getenv(childDir)))
	case roleLoop:
		peers, err := net.FileListener(os.NewFile(4, "peers"))
		if err != nil {
			return err
		}
		id, err := strconv.Atoi(os.Getenv(childNode))
		if err != nil {
			return err
		}
		addrs := strings.Split(os.Getenv(childPeers), ",")
		return newLoopNode(id, addrs[:3], addrs[3:], os.Getenv(childDir)).serve(clients, peers)
	}
	return fmt.Errorf("unknown part %q", role)
}

// startChild runs this program in a part. Its listeners are made here, so that their addresses are known to all before any runs.
func startChild(role string, env []string, listeners ...net.Listener) (*child.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, l := range listeners {
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		files = append(files, f)
	}
	return child.Start(self, append(env, childRole+"="+role), files)
}
