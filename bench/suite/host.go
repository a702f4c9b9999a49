package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"

	"gopherlog/bench/result"
)

// fsyncProbes is how many synced writes are timed before a run.
const fsyncProbes = 20

// describeHost reads what the report says about the machine. dir is where the
// target will keep its data; storage that cannot fail is named as such.
func describeHost(dir string) (result.Host, error) {
	h := result.Host{OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), CPU: field("/proc/cpuinfo", "model name"), MemoryBytes: memory(), Filesystem: filesystem(dir)}
	if h.CPU == "" {
		h.CPU = runtime.GOARCH
	}
	var err error
	h.FsyncP50, err = fsyncCost(dir)
	return h, err
}

func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// field returns the value after "name :" in a file of such lines.
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func memory() (bytes int64) {
	var kib int64
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d kB", &kib); err != nil {
		return 0
	}
	return kib << 10
}

// filesystem finds the type of the mount that holds dir.
func filesystem(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "unknown"
	}
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "unknown"
	}
	best, kind := "", "unknown"
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		at := strings.TrimSuffix(f[1], "/") + "/"
		if strings.HasPrefix(abs+"/", at) && len(at) > len(best) {
			best, kind = at, f[2]
		}
	}
	if kind == "tmpfs" || kind == "overlay" {
		kind += " (memory or layered: no durability claim holds on it)"
	}
	return kind
}

// fsyncCost is the median time of a 4 KiB write with fsync, in milliseconds.
func fsyncCost(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "fsync-*")
	if err != nil {
		return 0, fmt.Errorf("the run directory cannot be written: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4096)
	var took []float64
	for i := range fsyncProbes {
		began := time.Now()
		if _, err := f.WriteAt(block, int64(i)*4096); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, ms(time.Since(began)))
	}
	sort.Float64s(took)
	return took[len(took)/2], nil
}
