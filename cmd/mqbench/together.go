package main

import (
	"fmt"

	"gopherlog/cmd/internal/cli"
)

// canRunTogether refuses scenarios of which one parts the network and another measures a system that somebody else runs: all of a call
// happens in one network namespace of its own, from which nothing outside can be reached, this machine's own addresses included.
func canRunTogether(list []parsed) error {
	var parting, external string
	for _, p := range list {
		for _, cell := range p.scenario.Expand() {
			if cell.Target.System == "external" {
				external = p.file
			}
			for _, f := range cell.Faults {
				if f.Kind == "partition" {
					parting = p.file
				}
			}
		}
	}
	if parting == "" || external == "" {
		return nil
	}
	return cli.Usage(fmt.Errorf("%s parts the network, for which everything runs in a network namespace of its own, and from there the external system of %s cannot be reached: run them in two calls", parting, external))
}
