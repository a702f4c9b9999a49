package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"gopherlog/scripts/internal/child"
)

// Profiles say where the time of a row goes. They cost a little and are taken only when asked for; the newest of a row stays.

// profiled runs a side of this process under the processor and allocation profilers. Without a directory it only runs it.
func profiled(dir, name string, f func() (sample, error)) (sample, error) {
	if dir == "" {
		return f()
	}
	file := filepath.Join(dir, strings.Map(func(r rune) rune {
		if r == ' ' || r == ',' {
			return '-'
		}
		return r
	}, name))
	cpu, err := os.Create(file + ".cpu")
	if err != nil {
		return sample{}, err
	}
	defer cpu.Close()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return sample{}, err
	}
	s, err := f()
	pprof.StopCPUProfile()
	if err != nil {
		return s, err
	}
	allocs, err := os.Create(file + ".allocs")
	if err != nil {
		return s, err
	}
	defer allocs.Close()
	return s, pprof.Lookup("allocs").WriteTo(allocs, 0)
}

// profileNodes asks every node for a profile of what it does meanwhile. The returned function waits for them.
func (s *servers) profileNodes(ctx context.Context, dir, name string, during time.Duration) (wait func() error) {
	done := make(chan error, 2*len(s.admins))
	for i, addr := range s.admins {
		for kind, path := range map[string]string{
			"cpu":    fmt.Sprintf("profile?seconds=%d", max(1, int(during/time.Second))),
			"allocs": fmt.Sprintf("allocs?seconds=%d", max(1, int(during/time.Second))),
		} {
			go func() {
				text, err := child.Get(ctx, "http://"+addr+"/debug/pprof/"+path)
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-node%d.%s", name, i+1, kind)), text, 0o644)
				}
				done <- err
			}()
		}
	}
	return func() (err error) {
		for range cap(done) {
			if e := <-done; e != nil {
				err = e
			}
		}
		http.DefaultClient.CloseIdleConnections()
		return err
	}
}
