package check

import (
	"fmt"
	"slices"
	"strings"

	"gopherlog/bench/history"
)

// circles is rule C5: a transaction must not depend, by what it read, on what was made of its own messages. Only reads make edges here:
// circles that need the order of two transactions' writes are Kafka's way, which does not isolate writes.
func circles(l *ledger, reads []readEdge, over bool) (*finding, error) {
	f := &finding{}
	switch {
	case over:
		f.missing = fmt.Sprintf("more than %d reads of one transaction from another", maxReads)
		return f, nil
	case len(reads) == 0:
		f.missing = "no transaction read from another"
		return f, nil
	}
	from, err := writers(l, reads)
	if err != nil {
		return nil, err
	}
	f.of = int64(len(reads))
	for _, ring := range strong(len(l.book.txns), from) {
		f.add("", func() Example {
			var names []string
			for _, t := range ring[:min(len(ring), 4)] {
				names = append(names, l.book.txns[t].String())
			}
			return l.book.txns[ring[0]].example(fmt.Sprintf("reads, through %d transactions, what it wrote itself: %s", len(ring), strings.Join(names, ", ")))
		})
	}
	return f, nil
}

// writers turns places that were read into the transactions that wrote there: by reader, whom it read from.
func writers(l *ledger, reads []readEdge) (map[int32][]int32, error) {
	slices.SortFunc(reads, func(a, b readEdge) int {
		if a.partition != b.partition {
			return int(a.partition) - int(b.partition)
		}
		return int(a.offset - b.offset)
	})
	from := map[int32][]int32{}
	err := l.delivered(history.RoleDrain, func(r *history.Record) {
		i, ok := slices.BinarySearchFunc(reads, r, func(e readEdge, r *history.Record) int {
			if e.partition != r.Partition {
				return int(e.partition) - int(r.Partition)
			}
			return int(e.offset - r.Offset)
		})
		a := l.find(r)
		if !ok || a == nil || r.Flags != 0 {
			return
		}
		writer := l.book.indexOf(a, r.Sequence)
		for ; writer >= 0 && i < len(reads) && reads[i].partition == r.Partition && reads[i].offset == r.Offset; i++ {
			if reader := reads[i].reader; !slices.Contains(from[reader], writer) {
				from[reader] = append(from[reader], writer)
			}
		}
	})
	return from, err
}

// strong lists the strongly connected components of more than one node, and nodes that point at themselves: Tarjan's algorithm with its
// recursion written out.
func strong(nodes int, edges map[int32][]int32) (rings [][]int32) {
	type frame struct{ node, edge int32 }
	order, low := make([]int32, nodes), make([]int32, nodes)
	onStack := make([]bool, nodes)
	var stack []int32
	var calls []frame
	next := int32(1)
	for root := range edges {
		if order[root] != 0 {
			continue
		}
		calls = append(calls[:0], frame{root, 0})
		for len(calls) > 0 {
			c := &calls[len(calls)-1]
			v := c.node
			if c.edge == 0 && order[v] == 0 {
				order[v], low[v], onStack[v] = next, next, true
				next++
				stack = append(stack, v)
			}
			if int(c.edge) < len(edges[v]) {
				w := edges[v][c.edge]
				c.edge++
				if order[w] == 0 {
					calls = append(calls, frame{w, 0})
				} else if onStack[w] {
					low[v] = min(low[v], order[w])
				}
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				u := calls[len(calls)-1].node
				low[u] = min(low[u], low[v])
			}
			if low[v] != order[v] {
				continue
			}
			i := len(stack) - 1
			for stack[i] != v {
				i--
			}
			ring := slices.Clone(stack[i:])
			stack = stack[:i]
			for _, w := range ring {
				onStack[w] = false
			}
			if len(ring) > 1 || slices.Contains(edges[v], v) {
				rings = append(rings, ring)
			}
		}
	}
	return rings
}
