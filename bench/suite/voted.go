package suite

import (
	"context"
	"errors"
	"fmt"

	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
)

// errAbsent says that a system cannot do what a cell asks: the cell has no trials, and that is no fault of the run.
var errAbsent = errors.New("not applicable")

// cannot says what is known of a cell before anything is started.
func cannot(c scenario.Cell) error {
	if c.Guarantee == scenario.TwoPhaseCommit && c.Target.System == "kafka" {
		return fmt.Errorf("%w: Apache Kafka has no voted two-phase commit: its coordinator decides alone", errAbsent)
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
	case prefix == "" && c.Target.System == "external":
		return fmt.Errorf("%w: these brokers have no voted two-phase commit", errAbsent)
	case prefix == "":
		return fmt.Errorf("%w: voted transactions are not served yet by these brokers", ErrEnvironment)
	}
	return nil
}
