package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func (p *Process) proc(name string) string {
	return fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name)
}

// Spent is the processor time of the process so far.
func (p *Process) Spent() (sum time.Duration, err error) {
	b, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		return 0, fmt.Errorf("processor time of %s: %w; it printed: %s", p.cmd.Path, err, p.Said())
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	for _, i := range []int{11, 12} { // user and system time, in hundredths of a second
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum, nil
}

// Resident is the memory of the process in bytes.
func (p *Process) Resident() (int64, error) {
	b, err := os.ReadFile(p.proc("status"))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), "\nVmRSS:")
	if f := strings.Fields(rest); ok && len(f) > 0 {
		n, err := strconv.ParseInt(f[0], 10, 64)
		return n << 10, err
	}
	return 0, errors.New("no VmRSS in /proc")
}

// Descriptors is how many files and sockets the process has open.
func (p *Process) Descriptors() (int, error) {
	all, err := os.ReadDir(p.proc("fd"))
	return len(all), err
}
