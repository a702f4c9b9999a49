package failpoint

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Name identifies a point or a sabotage switch: "package/what-happens-next", such as "log/before-sync".
type Name string

var registry = struct {
	sync.RWMutex
	what map[Name]string
}{what: map[Name]string{}}

// Register makes name known and returns it; what says in a few words what the point precedes.
// It is meant for package var blocks and panics on a name registered twice.
func Register(name Name, what string) Name {
	registry.Lock()
	defer registry.Unlock()
	if old, dup := registry.what[name]; dup {
		panic(fmt.Sprintf("failpoint: %q registered twice: %q and %q", name, old, what))
	}
	registry.what[name] = what
	return name
}

// Names returns all registered names, sorted.
func Names() []Name {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.what))
}

// What returns the description that name was registered with.
func What(name Name) string {
	registry.RLock()
	defer registry.RUnlock()
	return registry.what[name]
}

func known(name Name) bool {
	registry.RLock()
	defer registry.RUnlock()
	_, ok := registry.what[name]
	return ok
}
