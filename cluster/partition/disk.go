package partition

import (
	"fmt"
	"sync/atomic"

	"gopherlog/engine/vfs"
)

const (
	// DiskReserve is what produce leaves free, or a twentieth of a smaller disk: the store that all replicas share must be
	// able to write for ever, since a vote that cannot be written ends the process.
	DiskReserve = 1 << 30
	// lowFactor times the reserve is where retention stops waiting for followers that lag.
	lowFactor = 2
)

// errDiskFull is answered to producers; clients try again.
var errDiskFull = fmt.Errorf("%w: the disk is full but for its reserve", ErrStorage)

// disk remembers how full the disk is. The housekeeper looks, the append path reads.
type disk struct {
	full, low atomic.Bool
}

// look asks the file system; what does not know its size is never full.
func (d *disk) look(fs vfs.FS, dir string) {
	usage, err := fs.GetDiskUsage(dir)
	if err != nil || usage.TotalBytes == 0 {
		return
	}
	reserve := min(uint64(DiskReserve), usage.TotalBytes/20)
	d.full.Store(usage.AvailBytes < reserve)
	d.low.Store(usage.AvailBytes < lowFactor*reserve)
}
