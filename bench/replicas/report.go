package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Node is where a broker keeps its data.
type Node struct {
	ID   int
	Data string
}

// Limits of reading all that some nodes have.
type Limits struct {
	Whole    int64         // bytes that are compared one by one, over all copies; beyond these only heads
	Time     time.Duration // of reading everything once
	Patience time.Duration // how long what differs or lacks something is looked at again: it may be on its way
}

// between two looks at what differs or lacks something.
const again = 250 * time.Millisecond

// topicsDir is where a node keeps its partitions, each in a directory NAME-NUMBER.
const topicsDir = "topics"

// candidate is one partition to be compared.
type candidate struct {
	topic     string
	partition int32
	copies    []Copy
	bytes     int64
}

// Read compares all partitions of the topics that are wanted, smallest first, and repeats what is not the same or not all there until it
// is, or patience ends: a replica that comes back drops what was never committed and takes what it lacks. Beyond limits it stops, and says
// so. An error means that a directory could not be read, or that ctx ended.
func Read(ctx context.Context, nodes []Node, want func(topic string) bool, l Limits) (*Report, error) {
	out := &Report{}
	list, err := list(nodes, want)
	if err != nil {
		return out, err
	}
	until, left := time.Now().Add(l.Time), l.Whole
	out.Partitions = make([]Partition, len(list))
	var open []int // not the same, or not all there
	for i := range list {
		c := &list[i]
		b := Bounds{Whole: left / int64(len(list)-i), Until: until}
		left = max(0, left-min(c.bytes, b.Whole))
		if out.Partitions[i], err = c.compare(ctx, b); err != nil {
			return &Report{Partitions: out.Partitions[:i]}, err
		}
		if !out.Partitions[i].settled() {
			open = append(open, i)
		}
	}
	for until = time.Now().Add(l.Patience); len(open) > 0 && time.Now().Before(until); {
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return out, ctx.Err()
		}
		round := open
		open = nil
		for _, i := range round {
			if out.Partitions[i], err = list[i].compare(ctx, Bounds{Whole: l.Whole, Until: until.Add(l.Time)}); err != nil {
				return out, err
			}
			if !out.Partitions[i].settled() {
				open = append(open, i)
			}
		}
	}
	for _, p := range out.Partitions {
		if p.Stopped != "" {
			out.Unread = append(out.Unread, fmt.Sprintf("%s/%d: %s", p.Topic, p.Partition, p.Stopped))
		}
	}
	return out, nil
}

// removed is why a partition was not compared: a file of it went while it was read.
const removed = "a file was removed while it was read"

// compare compares a partition once.
func (c *candidate) compare(ctx context.Context, b Bounds) (Partition, error) {
	p, err := Compare(ctx, c.topic, c.partition, slices.Clone(c.copies), b)
	if errors.Is(err, fs.ErrNotExist) {
		p.Stopped = removed
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("replicas: %s/%d: %w", c.topic, c.partition, err)
	}
	return p, nil
}

// settled says that another look would find no more.
func (p *Partition) settled() bool {
	return p.Different == 0 && len(p.Behind()) == 0 && p.Stopped != removed
}

// list finds the copies of every partition.
func list(nodes []Node, want func(topic string) bool) ([]candidate, error) {
	at := map[string]*candidate{}
	for _, n := range nodes {
		dirs, err := os.ReadDir(filepath.Join(n.Data, topicsDir))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has no partitions
		} else if err != nil {
			return nil, err
		}
		for _, d := range dirs {
			topic, number, ok := split(d.Name())
			if !ok || !want(topic) {
				continue
			}
			c := at[d.Name()]
			if c == nil {
				c = &candidate{topic: topic, partition: number}
				at[d.Name()] = c
			}
			dir := filepath.Join(n.Data, topicsDir, d.Name())
			c.copies = append(c.copies, Copy{Node: n.ID, Dir: dir})
			c.bytes += sizeOf(dir)
		}
	}
	var out []candidate
	for _, c := range at {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), strings.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	return out, nil
}

// split takes a partition's directory apart.
func split(dir string) (topic string, partition int32, ok bool) {
	i := strings.LastIndexByte(dir, '-')
	if i <= 0 {
		return "", 0, false
	}
	n, err := strconv.ParseInt(dir[i+1:], 10, 32)
	return dir[:i], int32(n), err == nil && n >= 0
}

// sizeOf a partition's segments; what cannot be told now counts nothing.
func sizeOf(dir string) (n int64) {
	names, _ := os.ReadDir(dir)
	for _, f := range names {
		if info, err := f.Info(); err == nil && strings.HasSuffix(f.Name(), segmentSuffix) {
			n += info.Size()
		}
	}
	return n
}
