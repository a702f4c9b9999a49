package target

import "context"

// External is a system that somebody else runs: it is only measured. Faults on
// it are refused with ErrUnsupported.
type External struct{ bootstrap []string }

// NewExternal names a running system by its bootstrap addresses.
func NewExternal(bootstrap []string) *External { return &External{bootstrap: bootstrap} }

// System returns "external".
func (e *External) System() string { return "external" }

// Version is not known: the Kafka protocol carries none.
func (e *External) Version() string { return "unknown" }

// Start does nothing; the load driver finds out whether the system answers.
func (e *External) Start(context.Context) error { return nil }

// Stop does nothing.
func (e *External) Stop(context.Context) error { return nil }

// Bootstrap returns the addresses as given.
func (e *External) Bootstrap() []string { return append([]string(nil), e.bootstrap...) }

// Nodes returns one entry per bootstrap address, in the state Unknown.
func (e *External) Nodes() []Node {
	var out []Node
	for i, a := range e.bootstrap {
		out = append(out, Node{ID: i + 1, Client: a, State: Unknown})
	}
	return out
}

// Deaths is empty: nobody watches these processes.
func (e *External) Deaths() []string { return nil }

// Kill is refused.
func (e *External) Kill(context.Context, int) error { return ErrUnsupported }

// Restart is refused.
func (e *External) Restart(context.Context, int) error { return ErrUnsupported }

// Pause is refused.
func (e *External) Pause(int) error { return ErrUnsupported }

// Resume is refused.
func (e *External) Resume(int) error { return ErrUnsupported }

// Control is refused.
func (e *External) Control(context.Context, int, string, any) error { return ErrUnsupported }
