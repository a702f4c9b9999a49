package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// drive runs one of our small programs that use a foreign client. It prints a line for each of its checks, in the order that they end:
// PASS NAME, SKIP NAME WHY or FAIL NAME WHY; everything else it prints goes to driver.log. A program that ends with an error has failed
// the check "itself".
func drive(ctx context.Context, e *env, cmd *exec.Cmd) ([]result, error) {
	log, err := os.OpenFile(filepath.Join(e.dir, "driver.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Args, cmd.Stderr = append(cmd.Args, e.checks...), log
	cmd.Env = append(cmd.Environ(), e.vars...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	cmd.WaitDelay = 10 * time.Second
	results := readChecks(out, log)
	if err := cmd.Wait(); err != nil {
		results = append(results, result{"itself", fail, err.Error()})
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("the program reported nothing: see %s", log.Name())
	}
	return results, ctx.Err()
}

func readChecks(out io.Reader, log io.Writer) (results []result) {
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		fmt.Fprintln(log, s.Text())
		word, rest, _ := strings.Cut(s.Text(), " ")
		name, why, _ := strings.Cut(rest, " ")
		switch o := outcome(strings.ToLower(word)); {
		case name == "" || word != strings.ToUpper(word):
		case o == pass, o == fail, o == skip:
			results = append(results, result{name, o, cut(why, 200)})
		}
	}
	return results
}
