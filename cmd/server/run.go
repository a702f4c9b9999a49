package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"gopherlog/cmd/internal/cli"
	"gopherlog/engine/vfs"
)

// version is the program's, computed once.
var version = cli.Version()

// Run runs one node until the context ends or the node cannot go on.
func (f *nodeFlags) Run(s streams, stop context.Context) error {
	cfg, err := f.check()
	if err != nil {
		return err
	}
	n, err := startNode(cfg, newLogger(f, s), vfs.OS())
	if err != nil {
		return err
	}
	n.announce(s)
	var cause error
	select {
	case <-stop.Done():
		n.log.Info("stopping")
		n.drain(context.Background())
	case cause = <-n.fatal:
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := n.close(ctx); err != nil {
		n.log.Warn("not everything stopped in order", "error", err)
	}
	if cause != nil {
		return cli.Environment(cause)
	}
	return nil
}

// announce says where the node is, and warns when other machines can reach it.
func (n *node) announce(s streams) {
	fmt.Fprintf(s.out, "GopherLog node %d: clients at %s, data in %s\n", n.cfg.flags.ID, n.clients.Addr(), n.data.path)
	var open []string
	for _, l := range []struct {
		flag string
		on   bool
		addr string
	}{
		{"-addr", public(n.clients.Addr()), n.cfg.flags.Addr},
		{"-rpc", n.rpcListener != nil && public(n.rpcListener.Addr()), n.cfg.rpc},
		{"-admin", n.adminListener != nil && public(n.adminListener.Addr()), n.cfg.flags.Admin},
	} {
		if l.on {
			open = append(open, l.flag+" "+l.addr)
		}
	}
	if len(open) > 0 {
		fmt.Fprintf(s.err, "warning: %s can be reached from other machines, and whoever reaches it may read and write everything; use 127.0.0.1 to keep it on this one\n", strings.Join(open, ", "))
	}
}

// exitOnDisk ends the process at the first failed write or sync of the store, which all replicas share: what it
// promised may not be on disk, and a second try may lie. Nothing is flushed on the way out.
func (n *node) exitOnDisk(err error) {
	fmt.Fprintf(os.Stderr, "%s: cannot write to the store in %s: %v; stopping at once so that nothing is promised that is not on disk: check the disk and start again\n", name, n.data.path, innermost(err))
	os.Exit(cli.ExitEnvironment)
}

func newLogger(f *nodeFlags, s streams) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
		panic(fmt.Sprintf("log level %q passed the check: %v", f.LogLevel, err))
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: legible}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(s.err, opts))
	}
	return slog.New(slog.NewTextHandler(s.err, opts))
}

// maxLogged is how many bytes a log line shows of one value: clients choose names of up to 32 KB, and errors repeat them.
const maxLogged = 1 << 10

// legible shortens times to milliseconds, errors to one line, and everything to maxLogged bytes, whoever logs it under whatever key.
func legible(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case time.Time:
		if a.Key == slog.TimeKey { // raft logs durations under the same key
			return slog.String(slog.TimeKey, v.UTC().Format("2006-01-02T15:04:05.000Z"))
		}
	case time.Duration:
		return slog.String(a.Key, v.Round(time.Microsecond).String())
	case string:
		return slog.String(a.Key, bounded(v))
	case error:
		text := fmt.Sprint(v)
		if errors.Unwrap(v) == nil {
			text = strings.ReplaceAll(text, "\n", "; ")
		}
		return slog.String(a.Key, bounded(text))
	case fmt.Stringer:
		return slog.String(a.Key, bounded(fmt.Sprint(v)))
	default:
		if text := fmt.Sprintf("%+v", v); len(text) > maxLogged {
			return slog.String(a.Key, bounded(text))
		}
	}
	return a
}

// bounded is a text, or its beginning and how long it is.
func bounded(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	end := maxLogged
	for end > maxLogged-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:end], len(text))
}
