package twopc

import "strings"

// Prefix begins the transactional ids that commit by vote; an empty one begins none. All nodes of a cluster have the same.
type Prefix string

// Owns decides which of the two protocols a transactional id speaks: it is the only place that does.
func (p Prefix) Owns(transactionalID string) bool {
	return p != "" && strings.HasPrefix(transactionalID, string(p))
}
