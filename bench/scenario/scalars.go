package scenario

import "time"

// Size is a number of bytes, written with a unit: 512B, 64KiB, 1MiB.
type Size int64

// Count is a plain number that may be written 100k or 2M.
type Count int64

// Rate is messages per second, written 5k/s.
type Rate float64

// SizeDist is a size or a distribution of sizes.
type SizeDist struct {
	Fixed  Size // 0 unless every value has this size
	Median Size // of the log-normal distribution
	P99    Size
}

// At is a moment of the timeline: a phase and a distance from its start.
type At struct {
	Phase  string
	Offset time.Duration
}

// FaultTarget names what a fault strikes.
type FaultTarget struct {
	Role      string // leader, follower, node, all
	Topic     string // of leader and follower
	Partition int32
	Node      int // of node, counted from 1
}
