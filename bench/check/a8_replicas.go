package check

import (
	"fmt"

	"gopherlog/bench/replicas"
)

// judgeReplicas is rules A8 and A12. Below the first offset that one of them lacks, replicas hold the same bytes; one that has less is
// behind, which is no divergence. A lone copy is compared with its own checksums only, and counts as no comparison.
func judgeReplicas(found map[string]*finding, r *replicas.Report) {
	a8, a12 := &finding{}, &finding{}
	found["A8"], found["A12"] = a8, a12
	if r == nil {
		a8.missing = "what the replicas have on disk was not read"
		a12.missing = a8.missing
		return
	}
	for _, p := range r.Partitions {
		if len(p.Copies) > 1 {
			a8.of += p.Batches
		}
		a8.count += p.Different
		for _, d := range p.Differences {
			a8.shape(d.Kind)
			if len(a8.examples) < MaxExamples {
				a8.examples = append(a8.examples, atNode(p, d.Node, d.Offset, d.What))
			}
		}
		if p.Stopped == "" && len(p.Copies) > 1 {
			a12.of += int64(len(p.Copies))
		}
		for _, c := range p.Behind() {
			a12.add("", func() Example { return atNode(p, c.Node, c.End, "has nothing from here on, others have") })
		}
	}
	for _, f := range []*finding{a8, a12} {
		if f.of == 0 {
			f.missing = "of no partition two replicas were read"
			if len(r.Unread) > 0 {
				f.missing += ": " + r.Unread[0]
			}
		}
	}
}

func atNode(p replicas.Partition, node int, offset int64, what string) Example {
	return Example{Topic: p.Topic, Partition: p.Partition, Offset: offset, Producer: -1, What: fmt.Sprintf("node %d: %s", node, what), Seconds: -1}
}
