package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Some tests of sarama stop and start brokers by `docker compose stop kafka-2`. They find this programme under the name docker before the
// real one: it hands the command line over a socket to the run that owns the nodes.

// dockerVar names the socket.
const dockerVar = "COMPAT_DOCKER"

// actAsDocker passes the command line on and returns the exit code.
func actAsDocker(args []string) int {
	conn, err := net.Dial("unix", os.Getenv(dockerVar))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer conn.Close()
	fmt.Fprintln(conn, strings.Join(args, " "))
	answer, err := io.ReadAll(conn)
	if err != nil || len(answer) > 0 {
		fmt.Fprintln(os.Stderr, err, string(answer))
		return 1
	}
	return 0
}

// serveDocker lets tests of this run command its nodes; vars are what they need in their environment.
func (c *cluster) serveDocker() (vars []string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	bin := filepath.Join(c.dir, "docker-bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, nil, err
	}
	name := filepath.Join(bin, "docker")
	if err := errors.Join(os.RemoveAll(name), os.Symlink(self, name)); err != nil {
		return nil, nil, err
	}
	home, err := os.MkdirTemp("", "compat-") // names of sockets must be short
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("unix", filepath.Join(home, "docker"))
	if err != nil {
		return nil, nil, err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if err := c.obey(conn); err != nil {
				fmt.Fprint(conn, err)
			}
			_ = conn.Close()
		}
	}()
	return []string{dockerVar + "=" + l.Addr().String(), "PATH=" + bin + ":" + os.Getenv("PATH")},
		func() { _ = l.Close(); <-over; _ = os.RemoveAll(home) }, nil
}

// obey carries out one command: compose start|stop|logs … kafka-N. The logs are empty: what a test looks for in them is never there.
func (c *cluster) obey(conn net.Conn) error {
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "compose" {
		return fmt.Errorf("no such command here: %s", line)
	}
	id, err := strconv.Atoi(strings.TrimPrefix(words[len(words)-1], "kafka-"))
	if err != nil || id < 1 || id > len(c.nodes) {
		return fmt.Errorf("no such node: %s", line)
	}
	switch i := id - 1; words[1] {
	case "logs":
		return nil
	case "stop":
		return c.end(i)
	case "start":
		if c.nodes[i] != nil {
			return nil
		}
		return c.start(i)
	}
	return fmt.Errorf("no such command here: %s", line)
}

// end stops node i as docker does: it is asked to, and killed after ten seconds.
func (c *cluster) end(i int) error {
	n := c.nodes[i]
	if n == nil {
		return nil
	}
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.AfterFunc(10*time.Second, func() { _ = n.Process.Kill() })
	defer timer.Stop()
	_ = n.Wait()
	c.nodes[i] = nil
	return nil
}
