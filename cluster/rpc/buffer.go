package rpc

import "sync"

// bufferClasses are the capacities that the pool keeps. Larger buffers belong
// to the garbage collector.
var bufferClasses = [...]int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20}

// buffers is a node's pool of byte slices, for frame heads that wait to be
// written and, for groups that copy what they keep, for received bodies.
type buffers struct {
	poison bool
	pools  [len(bufferClasses)]sync.Pool
}

// get returns a slice of length n whose content is arbitrary.
func (p *buffers) get(n int) []byte {
	for i, size := range bufferClasses {
		if n <= size {
			if b, _ := p.pools[i].Get().(*[]byte); b != nil {
				return (*b)[:n]
			}
			return make([]byte, n, size)
		}
	}
	return make([]byte, n)
}

// put takes back a slice that get returned. Nobody may touch it afterwards.
func (p *buffers) put(b []byte) {
	c := cap(b)
	b = b[:c]
	if p.poison {
		for i := range b {
			b[i] = 0xDB
		}
	}
	for i, size := range bufferClasses {
		if c == size {
			p.pools[i].Put(&b)
			return
		}
	}
}
