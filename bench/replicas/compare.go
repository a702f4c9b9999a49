// Package replicas reads what the nodes of a system have on disk of each partition, and compares it batch by batch.
// It knows directories and the record batch as Kafka documents it; it shares no code with any broker, and changes nothing.
package replicas

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits of what is kept of a comparison; counts are complete.
const (
	maxDifferences = 32
	lookEvery      = 256 // batches between two looks at the clock
)

// A Report is the evidence of whether replicas hold the same.
type Report struct {
	Partitions []Partition `json:"partitions"`
	Unread     []string    `json:"unread,omitempty"` // what was not read, and why
}

// A Partition is what was found of one.
type Partition struct {
	Topic       string       `json:"topic"`
	Partition   int32        `json:"partition"`
	Copies      []Copy       `json:"copies"`
	From        int64        `json:"from"` // offsets that were compared: those that all copies hold
	To          int64        `json:"to"`
	Batches     int64        `json:"batches"`       // compared
	Whole       int64        `json:"batches_whole"` // of these, compared byte by byte; of the others the heads: offset, epoch, length, checksum
	Different   int64        `json:"different"`     // batches that were not the same everywhere
	Differences []Difference `json:"differences,omitempty"`
	Stopped     string       `json:"stopped,omitempty"` // why it was not compared to the end
}

// A Copy is one replica's.
type Copy struct {
	Node  int    `json:"node"`
	Dir   string `json:"-"`
	Start int64  `json:"start"`
	End   int64  `json:"end"` // as far as it was read
}

// Kinds of differences.
const (
	Divergent = "divergent" // the batches are sound, and not the same
	Damaged   = "damaged"   // a batch does not match its checksum, or is none
)

// A Difference is a place at which one node does not hold what the others do.
type Difference struct {
	Node   int    `json:"node"`
	Offset int64  `json:"offset"`
	Kind   string `json:"kind"`
	What   string `json:"what"`
}

// Behind lists the copies that end before the longest.
func (p *Partition) Behind() (out []Copy) {
	if p.Stopped != "" {
		return nil // nobody knows how long they are
	}
	for _, c := range p.Copies {
		if c.End < p.end() {
			out = append(out, c)
		}
	}
	return out
}

func (p *Partition) end() (end int64) {
	for _, c := range p.Copies {
		end = max(end, c.End)
	}
	return end
}

// Bounds limit one comparison.
type Bounds struct {
	Whole int64     // bytes, over all copies, that are compared one by one; beyond these only heads are read
	Until time.Time // then it stops
}

// Compare reads all copies at once, from the first offset that all hold to the first that one lacks. An error means that a directory
// could not be read, or that ctx ended; damage within one is a difference.
func Compare(ctx context.Context, topic string, partition int32, copies []Copy, b Bounds) (Partition, error) {
	c := comparison{Partition: Partition{Topic: topic, Partition: partition, Copies: copies}, bounds: b}
	defer func() {
		for _, r := range c.readers {
			r.close()
		}
	}()
	for i := range c.Copies {
		r, err := open(c.Copies[i].Dir)
		if err != nil {
			return c.Partition, err
		}
		c.readers = append(c.readers, r)
		c.Copies[i].Start = max(0, r.start)
		c.From = max(c.From, c.Copies[i].Start)
	}
	c.To = c.From
	if err := c.run(ctx); err != nil {
		return c.Partition, err
	}
	for i, r := range c.readers {
		c.Copies[i].End = r.end
	}
	return c.Partition, nil
}

// comparison is a Partition while it is compared.
type comparison struct {
	Partition
	readers []*reader
	broken  []bool // copies that cannot be read on
	bounds  Bounds
}

func (c *comparison) run(ctx context.Context) error {
	c.broken = make([]bool, len(c.readers))
	for _, r := range c.readers {
		r.seek(c.From)
	}
	for rounds := 1; ; rounds++ {
		if err := c.advance(); err != nil {
			return err
		}
		if c.ended() {
			return c.lengths()
		}
		c.To = c.batch()
		if rounds%lookEvery == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if time.Now().After(c.bounds.Until) {
				c.Stopped = fmt.Sprintf("the time for it was over at offset %d", c.To)
				return nil
			}
		}
	}
}

// advance takes every copy to the batch that ends behind To.
func (c *comparison) advance() error {
	for i, r := range c.readers {
		for !c.broken[i] && !r.over && (!r.stands || r.head.next() <= c.To) {
			err := r.next(r.end >= c.From && c.read() < c.bounds.Whole)
			switch {
			case errors.Is(err, errDamaged):
				c.broken[i] = true
				c.Different++
				c.differ(i, r.end, Damaged, err.Error()+": the rest of this copy was not compared")
			case err != nil:
				return err
			}
		}
	}
	return nil
}

func (c *comparison) read() (n int64) {
	for _, r := range c.readers {
		n += r.bytes
	}
	return n
}

// ended says that one copy has no more.
func (c *comparison) ended() bool {
	left := 0
	for i, r := range c.readers {
		if c.broken[i] {
			continue
		}
		if r.over {
			return true
		}
		left++
	}
	return left == 0
}

// lengths goes to the end of the longer copies.
func (c *comparison) lengths() error {
	for i, r := range c.readers {
		for n := 0; !c.broken[i] && !r.over; n++ {
			if n%lookEvery == 0 && time.Now().After(c.bounds.Until) {
				c.Stopped = "the time for it was over before its end was known"
				return nil
			}
			if err := r.next(false); errors.Is(err, errDamaged) {
				break // behind what all have
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// batch compares the batch that every copy stands at, and returns the offset behind it.
func (c *comparison) batch() (next int64) {
	c.Batches++
	model := c.model()
	same, whole := true, true
	for i, r := range c.readers {
		if c.broken[i] {
			continue
		}
		next = max(next, r.head.next())
		whole = whole && r.whole
		switch {
		case r.whole && r.sum != r.head.crc():
			c.differ(i, r.head.base(), Damaged, fmt.Sprintf("the bytes have checksum %08x, the batch says %08x", r.sum, r.head.crc()))
		case r.head != c.readers[model].head:
			c.differ(i, r.head.base(), Divergent, c.apart(i, model))
		default:
			continue
		}
		same = false
	}
	if whole {
		c.Whole++
	}
	if !same {
		c.Different++
	}
	return next
}

// model is the copy whose batch most others hold too.
func (c *comparison) model() (best int) {
	most := -1
	for i, r := range c.readers {
		if c.broken[i] {
			continue
		}
		n := 0
		for j, o := range c.readers {
			if !c.broken[j] && o.head == r.head {
				n++
			}
		}
		if n > most {
			best, most = i, n
		}
	}
	return best
}

// apart says how two batches differ.
func (c *comparison) apart(i, model int) string {
	a, b := &c.readers[i].head, &c.readers[model].head
	if a.base() != b.base() {
		return fmt.Sprintf("a batch begins at offset %d, at node %d one at %d", a.base(), c.Copies[model].Node, b.base())
	}
	if a.tells() == b.tells() {
		return fmt.Sprintf("the heads of the batches are not the same as at node %d", c.Copies[model].Node)
	}
	return fmt.Sprintf("%s; at node %d %s", a.tells(), c.Copies[model].Node, b.tells())
}

func (c *comparison) differ(i int, offset int64, kind, what string) {
	if len(c.Differences) < maxDifferences {
		c.Differences = append(c.Differences, Difference{c.Copies[i].Node, offset, kind, what})
	}
}
