package broker

import "slices"

// once returns what is named, each at its first place. What a request names again is answered once: otherwise a small request could ask
// for an answer of any size.
func once[T comparable](names []T) []T {
	if len(names) < 2 {
		return names
	}
	seen := make(map[T]struct{}, len(names))
	return slices.DeleteFunc(names, func(name T) bool {
		_, again := seen[name]
		seen[name] = struct{}{}
		return again
	})
}
