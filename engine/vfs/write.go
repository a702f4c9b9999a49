package vfs

import "io"

// writeEach is WriteVAt for files without a vectored write.
func writeEach(f io.WriterAt, bufs [][]byte, off int64) (int, error) {
	total := 0
	for _, b := range bufs {
		n, err := f.WriteAt(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
