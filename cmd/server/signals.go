package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// exitForced is the status after a second signal.
const exitForced = 130

type signals struct{ ctx context.Context }

// watchSignals returns a context that ends with the first SIGINT or SIGTERM. The second ends the process.
func watchSignals() signals {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-ch
		cancel()
		<-ch
		fmt.Fprintln(os.Stderr, "server: second signal: stopping at once")
		os.Exit(exitForced)
	}()
	return signals{ctx}
}
