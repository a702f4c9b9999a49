package check

import "math/bits"

// view is the set of offsets of a partition that a final read found: one bit an offset from the first one found. Offsets themselves may
// have gaps, where markers and aborted messages lie; between two offsets of the view lies what a reader must not skip.
type view struct {
	base int64 // of the first bit; a multiple of 64
	any  bool
	over bool // an offset was too far from the first one to be kept: nothing is said of this partition
	set  bitset
	end  int64 // one past the greatest offset
}

// maxView bounds one partition's view: 256 MiB, two thousand million offsets.
const maxView = 1 << 31

func (v *view) add(offset int64) {
	if !v.any {
		v.any, v.base = true, offset&^63
	}
	if offset < v.base || offset-v.base >= maxView {
		v.over = true
		return
	}
	v.set.set(uint64(offset - v.base))
	v.end = max(v.end, offset+1)
}

func (v *view) has(offset int64) bool { return offset >= v.base && v.set.has(uint64(offset-v.base)) }

// count counts the offsets in [from, to) that are in the view and not in without.
func (v *view) count(from, to int64, without bitset) (n int64) {
	v.words(from, to, without, func(_ int64, word uint64) bool { n += int64(bits.OnesCount64(word)); return true })
	return n
}

// each calls fn with the same offsets in order, until it says no.
func (v *view) each(from, to int64, without bitset, fn func(offset int64) bool) {
	v.words(from, to, without, func(at int64, word uint64) bool {
		for ; word != 0; word &= word - 1 {
			if !fn(at + int64(bits.TrailingZeros64(word))) {
				return false
			}
		}
		return true
	})
}

func (v *view) words(from, to int64, without bitset, fn func(at int64, word uint64) bool) {
	from, to = max(from, v.base), min(to, v.base+int64(len(v.set))*64)
	for at := from &^ 63; at < to; at += 64 {
		i := (at - v.base) >> 6
		word := v.set[i]
		if i < int64(len(without)) {
			word &^= without[i]
		}
		if at < from {
			word &= ^uint64(0) << (from - at)
		}
		if to-at < 64 {
			word &= 1<<(to-at) - 1
		}
		if word != 0 && !fn(at, word) {
			return
		}
	}
}
