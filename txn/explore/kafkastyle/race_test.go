//go:build race

package kafkastyle

// The search has one goroutine: under the race detector it only gets slower, so the largest worlds are left to `make explore-quick`.
func init() { quick = true }
