package producer

// Sequence numbers count 0 … 2^31-1 and start again at 0; they are never negative, and a batch may span the wrap.

const sequenceMask = 1<<31 - 1

// NextSequence is the sequence that follows s.
func NextSequence(s int32) int32 { return int32((uint32(s) + 1) & sequenceMask) }

// LastSequence is the sequence of the last record of a batch that starts at first and has delta+1 records.
func LastSequence(first, delta int32) int32 {
	return int32((uint32(first) + uint32(delta)) & sequenceMask)
}
