package partition

import (
	"errors"
	"fmt"
)

// Recover lets all replicas of this node vote again that may have lost their tail in a power loss. What was lost is
// accepted as lost: it is an operator's decision, for when too few of the other nodes will ever come back to decide by
// themselves. It returns how many replicas it changed.
func (m *Manager) Recover() (replicas int, err error) {
	var errs []error
	for _, p := range m.All() {
		if !p.Status().Suspect {
			continue
		}
		if err := p.group.Recover(); err != nil {
			errs = append(errs, fmt.Errorf("recover %s: %w", p.label, err))
			continue
		}
		replicas++
	}
	return replicas, errors.Join(errs...)
}
