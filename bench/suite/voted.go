package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
)

// errAbsent says that a system cannot do what a cell asks: the cell has no trials, and that is no fault of the run.
var errAbsent = errors.New("not applicable")

// cannot says what is known of a cell before anything is started.
func cannot(c scenario.Cell) error {
	if why := c.Absent(); why != "" {
		return fmt.Errorf("%w: %s", errAbsent, why)
	}
	return nil
}

// absent leaves a cell out, and says so once.
func (s *run) absent(cell int, why error) {
	s.manifest.Cells[cell].Absent = why.Error()
	s.Progress.Note(fmt.Sprintf("%s is left out: %v", cellName(s.manifest.Cells[cell]), why))
}

// votes asks the brokers whether they serve what the cell's guarantee needs.
func votes(ctx context.Context, c scenario.Cell, d load.Driver) error {
	if c.Guarantee != scenario.TwoPhaseCommit {
		return nil
	}
	teller, ok := d.(interface {
		VotedPrefix(ctx context.Context) (string, error)
	})
	if !ok {
		return fmt.Errorf("%w: this driver has no transactions", errAbsent)
	}
	prefix, err := teller.VotedPrefix(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: ask whether voted transactions are served: %w", ErrEnvironment, err)
	case load.VotesOn(prefix):
		return nil
	}
	kind, why := ErrEnvironment, "voted transactions are not served by these brokers"
	if c.Target.System == "external" {
		kind, why = errAbsent, "these brokers have no voted two-phase commit"
	}
	if prefix != "" { // what we would send, they would end in Kafka's way
		why = fmt.Sprintf("these brokers vote on transactional ids that begin with %q, and those of two_phase_commit do not", prefix)
	}
	return fmt.Errorf("%w: %s", kind, why)
}

// coordinator names the node that coordinates the transactions of the first worker, or else of the first producer; or the first group.
func (t *oneTrial) coordinator(ctx context.Context, plan load.Plan, of string) (int32, error) {
	d, ok := t.driver.(interface {
		TxnCoordinator(ctx context.Context, id string) (int32, error)
		GroupCoordinator(ctx context.Context, group string) (int32, error)
	})
	switch {
	case !ok:
		return -1, errors.New("this driver knows no coordinators")
	case of == "group" && len(plan.Consumers.Groups) > 0:
		return d.GroupCoordinator(ctx, plan.Consumers.Groups[0].Name)
	case of == "txn" && plan.Guarantee.Transacts():
		first := 0
		if plan.CommitPoint == "in_transaction" {
			first = plan.Producers.Count
		}
		return d.TxnCoordinator(ctx, load.TransactionalID(plan.Guarantee, plan.Prefix, plan.RunID, first))
	}
	return -1, fmt.Errorf("the trial has nothing that a %s coordinator would be for", of)
}

// sources places clients on both sides of a network that a cell parts in halves; nil where none is.
func sources(c scenario.Cell) func(clientID string) string {
	for _, f := range c.Faults {
		if f.Shape == "halves" {
			return side
		}
	}
	return nil
}

// side is by the client's name: producers and members alternate, who asks and who reads sees everything.
func side(id string) string {
	if id == "mqbench-admin" || id == "mqbench-reader" {
		return ""
	}
	h := fnv.New32a()
	h.Write([]byte(id))
	return fault.ClientHosts[h.Sum32()%2]
}

const votesPatience = 2 * time.Minute // of reading what one node wrote down: tens of megabytes after ten minutes, on a busy machine

// votesOf reads what the brokers wrote down of votes and decisions; nil where they were not to.
func (t *oneTrial) votesOf(plan load.Plan) *check.Votes {
	ask, ok := t.target.(interface {
		Ask(ctx context.Context, id int, path string) ([]byte, error)
	})
	if !ok || t.cell.Guarantee != scenario.TwoPhaseCommit {
		return nil
	}
	v := &check.Votes{}
	for _, n := range t.target.Nodes() {
		ctx, cancel := context.WithTimeout(context.Background(), votesPatience)
		b, err := ask.Ask(ctx, n.ID, "/voted")
		cancel()
		if err == nil {
			b, err = factsOf(b, plan)
		}
		if err == nil {
			err = errors.Join(v.Add(b), os.WriteFile(filepath.Join(t.dir.History(t.out.ID), fmt.Sprintf("voted-%d.json", n.ID)), b, 0o644))
		}
		if err != nil {
			v.Silent(n.ID)
			t.Progress.Note(fmt.Sprintf("what node %d wrote down of votes could not be read: %v", n.ID, err))
		}
	}
	return v
}

// factsOf leaves of a node's answer what is about a trial: a cluster that is kept remembers those before it, too.
func factsOf(answer []byte, plan load.Plan) ([]byte, error) {
	var told map[string]json.RawMessage
	if err := json.Unmarshal(answer, &told); err != nil {
		return nil, err
	}
	var all, own []json.RawMessage
	if err := json.Unmarshal(told["facts"], &all); err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	members := plan.Producers.Count
	for _, g := range plan.Consumers.Groups {
		members += g.Members
	}
	for i := range members {
		ids[load.TransactionalID(plan.Guarantee, plan.Prefix, plan.RunID, i)] = true
	}
	for _, f := range all {
		var fact struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(f, &fact); err != nil {
			return nil, err
		}
		if ids[fact.ID] {
			own = append(own, f)
		}
	}
	var err error
	if told["facts"], err = json.Marshal(own); err != nil {
		return nil, err
	}
	return json.Marshal(told)
}

// voting says whether a cell needs the control port of its brokers for what they write down or for where they stop.
func voting(c scenario.Cell) bool {
	if c.Guarantee == scenario.TwoPhaseCommit {
		return true
	}
	for _, f := range c.Faults {
		if f.At.Failpoint != "" {
			return true
		}
	}
	return false
}

// voting says it of any cell: those that share a cluster share its control port.
func (s *run) voting() bool {
	for _, c := range s.cells {
		if voting(c) {
			return true
		}
	}
	return false
}
