//go:build !linux

package fault

import "errors"

// Enter reports that this system has no network namespaces.
func Enter() (Network, error) {
	return nil, errors.New("this operating system has no network namespaces")
}

// HandleProbe does nothing here.
func HandleProbe() {}
