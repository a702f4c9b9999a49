package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Votes is what coordinators and participants of voted commits wrote down, gathered from all nodes. A node tells what it applied since it
// started, in order, and may have dropped the oldest: what it does not tell is only taken for absent where it tells what came before.
type Votes struct {
	txns   map[[2]string]*voted // by transactional id and transaction
	shards map[string]place     // the shard of a transactional id, where its coordinator's log was read
	heads  map[place]bool       // shards whose log was read from its first record on
	told   int                  // answers
	facts  int
	over   bool
	silent []int
}

// A Fact is one record that a node applied: of the coordinator (raised, begun, committed, finished) or of a participant (opened, promised,
// skipped, commit-marker, abort-marker). Every replica tells it, so that facts of a node that is gone are found at the others.
type Fact struct {
	ID        string `json:"id"`  // transactional id
	Txn       string `json:"txn"` // producer id, epoch and number, as the broker writes them
	What      string `json:"what"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Index     int64  `json:"index"`
}

// maxFacts bounds what is read.
const maxFacts = 1 << 22

// Add takes a node's answer to GET /voted.
func (v *Votes) Add(body []byte) error {
	var answer struct {
		Facts []Fact `json:"facts"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("check: votes: %w", err)
	}
	if v.txns == nil {
		v.txns, v.shards = map[[2]string]*voted{}, map[string]place{}
		v.heads = map[place]bool{}
	}
	v.told++
	for _, f := range answer.Facts {
		if v.facts++; v.facts > maxFacts {
			v.over = true
			break
		}
		v.add(f)
	}
	return nil
}

func (v *Votes) add(f Fact) {
	switch f.What {
	case "raised", "begun", "committed", "finished":
		shard := place{f.Topic, f.Partition}
		v.shards[f.ID] = shard
		v.heads[shard] = v.heads[shard] || f.Index == 0
		if f.What == "raised" {
			return
		}
	}
	key := [2]string{f.ID, f.Txn}
	t := v.txns[key]
	if t == nil {
		t = &voted{id: f.ID, txn: f.Txn, places: map[place]*ended{}}
		v.txns[key] = t
	}
	if f.What == "committed" {
		t.decided = true
	}
	t.at(place{f.Topic, f.Partition}).add(f, v.told)
}

// Silent says that a node did not answer.
func (v *Votes) Silent(node int) { v.silent = append(v.silent, node) }

// voted is one transaction as it is written down.
type voted struct {
	id, txn string
	decided bool
	places  map[place]*ended
}

func (t *voted) at(p place) *ended {
	e := t.places[p]
	if e == nil {
		e = &ended{commits: map[int64]bool{}, aborts: map[int64]bool{}}
		t.places[p] = e
	}
	return e
}

// ended is what became of a transaction at one participant.
type ended struct {
	promised, skipped bool
	commits, aborts   map[int64]bool // markers, by their place in the Raft log
	opener            int            // the answer that last told of its first batch
	whole             bool           // one answer tells of its first batch and of its commit: what it does not tell of in between was not there
}

func (e *ended) add(f Fact, answer int) {
	switch f.What {
	case "opened":
		e.opener = answer
	case "promised":
		e.promised = true
	case "skipped":
		e.skipped = true
	case "commit-marker":
		e.commits[f.Index] = true
		e.whole = e.whole || e.opener == answer
	case "abort-marker":
		e.aborts[f.Index] = true
	}
}

type place struct {
	topic     string
	partition int32
}

func (p place) String() string { return fmt.Sprintf("%s/%d", p.topic, p.partition) }

// judgeVotes is rules D1 to D6.
func judgeVotes(found map[string]*finding, v *Votes) {
	why := ""
	switch {
	case v == nil:
		why = "the brokers' record of votes and decisions was not read"
	case len(v.txns) == 0 && len(v.silent) > 0:
		why = fmt.Sprintf("of the nodes, %d did not tell of votes and decisions", len(v.silent))
	case len(v.txns) == 0:
		why = "no broker wrote a vote or a decision down"
	case v.over:
		why = fmt.Sprintf("the brokers told of more than %d votes and decisions", maxFacts)
	}
	f := map[string]*finding{}
	for _, id := range []string{"D1", "D2", "D3", "D4", "D5", "D6"} {
		f[id] = &finding{missing: why}
		found[id] = f[id]
	}
	if v == nil {
		return
	}
	silent := ""
	if len(v.silent) > 0 {
		silent = fmt.Sprintf("a promise has no outcome in what was read, and node %d did not tell of votes and decisions", v.silent[0])
	}
	for _, key := range slices.SortedFunc(maps.Keys(v.txns), compareKeys) {
		shard, known := v.shards[key[0]]
		v.txns[key].judge(f, known && v.heads[shard], silent)
	}
}

func compareKeys(a, b [2]string) int {
	return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1]))
}

// judge counts one transaction; known says that its coordinator's log was read whole: the head of a long one is trimmed. A node that is
// silent may be the only one that has applied an outcome: then nothing is said of promises without one.
func (t *voted) judge(f map[string]*finding, known bool, silent string) {
	tell := func(id string, p place, what string) {
		f[id].add("", func() Example {
			return Example{Topic: p.topic, Partition: p.partition, Offset: -1, Producer: -1, What: fmt.Sprintf("%s, transaction %s: %s", t.id, t.txn, what), Seconds: -1}
		})
	}
	places := slices.SortedFunc(maps.Keys(t.places), func(a, b place) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), int(a.partition-b.partition))
	})
	var committed, aborted, both []place
	for _, p := range places {
		e := t.places[p]
		switch {
		case len(e.commits) > 0 && len(e.aborts) > 0:
			both = append(both, p)
		case len(e.commits) > 0:
			committed = append(committed, p)
		case len(e.aborts) > 0:
			aborted = append(aborted, p)
		}
		t.participant(f, tell, p, e, known, silent)
	}
	if t.decided || len(committed)+len(aborted)+len(both) > 0 {
		f["D1"].of++
		f["D4"].of++
	}
	switch {
	case len(both) > 0:
		tell("D4", both[0], "committed and aborted here")
	case len(aborted) > 0 && len(committed) > 0:
		tell("D1", aborted[0], "aborted here, and committed at "+committed[0].String())
	case len(aborted) > 0 && t.decided:
		tell("D4", aborted[0], "decided to be committed, and aborted here")
	}
}

// participant is rules D2, D3, D5 and D6.
func (t *voted) participant(f map[string]*finding, tell func(string, place, string), p place, e *ended, known bool, silent string) {
	redeemed := len(e.commits)+len(e.aborts) > 0 || e.skipped
	switch {
	case e.promised && !redeemed && silent != "":
		f["D2"].missing = silent
	case e.promised:
		f["D2"].of++
		if !redeemed {
			tell("D2", p, "promised, and no outcome came")
		}
	}
	if n := len(e.commits) + len(e.aborts); n > 0 {
		f["D3"].of++
		if len(e.commits) > 1 || len(e.aborts) > 1 {
			tell("D3", p, fmt.Sprintf("its outcome was applied %d times", n))
		}
	}
	if len(e.commits) == 0 {
		return
	}
	if e.promised || e.whole {
		f["D5"].of++
		if !e.promised {
			tell("D5", p, "committed without a promise")
		}
	}
	if t.decided || known {
		f["D6"].of++
		if !t.decided {
			tell("D6", p, "committed, and no coordinator decided it")
		}
	}
}
