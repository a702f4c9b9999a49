//go:build !linux

package fault

import "errors"

var errNoNamespaces = errors.New("this operating system has no network namespaces")

// Enter reports that this system has no network namespaces.
func Enter() (Network, error) { return nil, errNoNamespaces }

// Probe reports the same.
func Probe() error { return errNoNamespaces }

// HandleProbe does nothing here.
func HandleProbe() {}
