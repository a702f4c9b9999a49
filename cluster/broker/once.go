package broker

import "slices"

// once returns what is named, each at its first place. What a request names again is answered once: otherwise a small request could ask
// for an answer of any size.
func once[T comparable](names []T) []T {
	return onceBy(names, func(name *T) T { return *name })
}

// onceBy is once for things whose name is a part of them.
func onceBy[T any, K comparable](things []T, name func(*T) K) []T {
	if len(things) < 2 {
		return things
	}
	seen := make(map[K]struct{}, len(things))
	return slices.DeleteFunc(things, func(thing T) bool {
		key := name(&thing)
		_, again := seen[key]
		seen[key] = struct{}{}
		return again
	})
}
