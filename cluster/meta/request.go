package meta

import (
	"fmt"

	"gopherlog/cluster/meta/metapb"
)

// request pairs the topics of an admin request, some of which are refused before anybody is asked, with the outcomes for the rest.
type request struct {
	results []TopicResult
	asked   []int // positions in results that the command names, in its order
}

func newRequest(n int) *request { return &request{results: make([]TopicResult, 0, n)} }

// check notes the next topic and says whether it goes into the command.
func (r *request) check(name string, err error) bool {
	if err == nil {
		r.asked = append(r.asked, len(r.results))
	}
	r.results = append(r.results, TopicResult{Name: name, Err: err})
	return err == nil
}

func (r *request) run(submit func() (*metapb.Result, error)) ([]TopicResult, error) {
	if len(r.asked) == 0 {
		return r.results, nil
	}
	res, err := submit()
	if err != nil {
		return nil, err
	}
	if len(res.Outcomes) != len(r.asked) {
		return nil, fmt.Errorf("control group answered for %d topics, asked for %d", len(res.Outcomes), len(r.asked))
	}
	for k, o := range res.Outcomes {
		t := &r.results[r.asked[k]]
		t.Err, t.Partitions, t.ReplicationFactor = outcomeError(o), o.Partitions, o.ReplicationFactor
		if o.Name != "" {
			t.Name = o.Name
		}
		if len(o.Id) == 16 {
			t.ID = TopicID(o.Id)
		}
	}
	return r.results, nil
}

func listsToPB(lists [][]NodeID) []*metapb.NodeList {
	return mapSlice(lists, func(l []NodeID) *metapb.NodeList { return &metapb.NodeList{Nodes: nodesToPB(l)} })
}
