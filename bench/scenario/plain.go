package scenario

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Plain is a configuration value as a system reads it: where the key counts bytes or milliseconds by its name, a value may be written with
// a unit (segment.bytes: 64MiB, retention.ms: 10m), and becomes a whole number. Other values stay as they are.
func Plain(key, value string) (string, error) {
	switch {
	case wholeNumber(value):
		return value, nil
	case strings.HasSuffix(key, ".bytes"):
		s, err := parseSize(value)
		return strconv.FormatInt(int64(s), 10), err
	case strings.HasSuffix(key, ".ms"):
		d, err := parseDuration(value)
		return strconv.FormatInt(int64(d/time.Millisecond), 10), err
	}
	return value, nil
}

func wholeNumber(s string) bool {
	_, err := strconv.ParseInt(s, 10, 64)
	return err == nil
}

// plain checks the values of a mapping that goes to a system.
func (d *decoder) plain(path string, config map[string]string) {
	for key, value := range config {
		if _, err := Plain(key, value); err != nil {
			d.bad(join(path, key), "%v", fmt.Errorf("%w, nor a whole number", err))
		}
	}
}
