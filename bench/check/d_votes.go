package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Votes is what coordinators and participants of voted commits wrote down, gathered from all nodes.
type Votes struct {
	facts   map[factKey]Fact
	nodes   map[int]bool
	missing []string // why what is not there may have been
}

// A Fact is one record that a node applied: of the coordinator (committed) or of a participant (opened, promised, skipped, commit-marker,
// abort-marker). Every replica tells it, so that facts of a node that is gone are found at the others.
type Fact struct {
	ID        string   `json:"id"`  // transactional id
	Txn       string   `json:"txn"` // producer id, epoch and number, as the broker writes them
	What      string   `json:"what"`
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Index     uint64   `json:"index"`
	Members   []string `json:"members"`
}

type factKey struct {
	topic     string
	partition int32
	index     uint64
	id, txn   string
	what      string
}

// maxFacts bounds what is kept.
const maxFacts = 1 << 22

// Add takes a node's answer to GET /voted.
func (v *Votes) Add(body []byte) error {
	var told struct {
		Node    int    `json:"node"`
		Dropped int64  `json:"dropped"`
		Facts   []Fact `json:"facts"`
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return fmt.Errorf("check: votes: %w", err)
	}
	if v.facts == nil {
		v.facts, v.nodes = map[factKey]Fact{}, map[int]bool{}
	}
	v.nodes[told.Node] = true
	if told.Dropped > 0 {
		v.missing = append(v.missing, fmt.Sprintf("node %d dropped %d facts", told.Node, told.Dropped))
	}
	for _, f := range told.Facts {
		if len(v.facts) >= maxFacts {
			v.missing = append(v.missing, fmt.Sprintf("more than %d facts", maxFacts))
			break
		}
		v.facts[factKey{f.Topic, f.Partition, f.Index, f.ID, f.Txn, f.What}] = f
	}
	return nil
}

// Silent says that a node did not answer.
func (v *Votes) Silent(node int) {
	v.missing = append(v.missing, fmt.Sprintf("node %d did not answer", node))
}

// voted is one transaction as it is written down.
type voted struct {
	id, txn           string
	decided, begun    bool
	promised          map[place]bool
	commits, aborts   map[place]int
	skipped           map[place]bool
	finished, aborted bool
}

type place struct {
	topic     string
	partition int32
}

func (p place) String() string { return fmt.Sprintf("%s/%d", p.topic, p.partition) }

// judgeVotes is rules D1 to D6. What is seen is seen whatever is missing; that something is absent is only believed of a whole record.
func judgeVotes(found map[string]*finding, v *Votes) {
	f := map[string]*finding{}
	for _, id := range []string{"D1", "D2", "D3", "D4", "D5", "D6"} {
		f[id] = &finding{}
		found[id] = f[id]
	}
	why := ""
	switch {
	case v == nil:
		why = "the brokers' record of votes and decisions was not read"
	case len(v.facts) == 0:
		why = "no broker wrote a vote or a decision down"
	case len(v.missing) > 0:
		why = "the record of votes and decisions is not whole: " + v.missing[0]
	}
	for _, x := range f {
		x.missing = why
	}
	if v == nil {
		return
	}
	for _, t := range v.transactions() {
		t.judge(f, why != "")
	}
}

func (v *Votes) transactions() []*voted {
	all := map[[2]string]*voted{}
	for _, f := range v.facts {
		t := all[[2]string{f.ID, f.Txn}]
		if t == nil {
			t = &voted{id: f.ID, txn: f.Txn, promised: map[place]bool{}, commits: map[place]int{}, aborts: map[place]int{}, skipped: map[place]bool{}}
			all[[2]string{f.ID, f.Txn}] = t
		}
		p := place{f.Topic, f.Partition}
		switch f.What {
		case "committed":
			t.decided = true
		case "promised":
			t.promised[p] = true
		case "skipped":
			t.skipped[p] = true
		case "commit-marker":
			t.commits[p]++
		case "abort-marker":
			t.aborts[p]++
		}
	}
	list := slices.Collect(maps.Values(all))
	slices.SortFunc(list, func(a, b *voted) int {
		if a.id != b.id {
			return compareText(a.id, b.id)
		}
		return compareText(a.txn, b.txn)
	})
	return list
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// judge counts one transaction; partial says that facts may be missing.
func (t *voted) judge(f map[string]*finding, partial bool) {
	tell := func(id string, p place, what string) {
		f[id].add("", func() Example {
			return Example{Topic: p.topic, Partition: p.partition, Offset: -1, Producer: -1, What: fmt.Sprintf("%s, transaction %s: %s", t.id, t.txn, what), Seconds: -1}
		})
	}
	if len(t.commits)+len(t.aborts) > 0 || t.decided {
		f["D1"].of++
		f["D4"].of++
	}
	t.outcomes(f, tell)
	for p := range t.promised {
		f["D2"].of++
		if t.commits[p]+t.aborts[p] == 0 && !t.skipped[p] && !partial {
			tell("D2", p, "promised, and no outcome came")
		}
	}
	for p := range t.commits {
		f["D5"].of++
		f["D6"].of++
		if !t.promised[p] && !partial {
			tell("D5", p, "committed without a promise")
		}
		if !t.decided && !partial {
			tell("D6", p, "committed, and no coordinator decided it")
		}
	}
}

// outcomes is rules D1, D3 and D4.
func (t *voted) outcomes(f map[string]*finding, tell func(string, place, string)) {
	both := false
	for _, m := range []map[place]int{t.commits, t.aborts} {
		for p, n := range m {
			f["D3"].of++
			if n > 1 {
				tell("D3", p, fmt.Sprintf("its outcome was applied %d times", n))
			}
		}
	}
	for p := range t.commits {
		if t.aborts[p] > 0 {
			both = true
			tell("D4", p, "committed and aborted here")
		}
	}
	if both {
		return
	}
	for p := range t.aborts {
		switch {
		case len(t.commits) > 0:
			tell("D1", p, "aborted here, and committed elsewhere")
			return
		case t.decided:
			tell("D4", p, "decided to be committed, and aborted here")
			return
		}
	}
}
