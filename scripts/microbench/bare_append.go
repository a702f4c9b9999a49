package main

import (
	"os"
	"path/filepath"
)

// bareAppend writes the chunk to a file again and again.
func bareAppend(dir string, chunk []byte, ops int) (sample, error) {
	f, err := os.Create(filepath.Join(dir, "bare"))
	if err != nil {
		return sample{}, err
	}
	defer f.Close()
	m, pos := startMeter(), int64(0)
	for range ops {
		n, err := f.WriteAt(chunk, pos)
		if err != nil {
			return sample{}, err
		}
		pos += int64(n)
	}
	return m.stop(int64(ops), pos), nil
}
