package main

import (
	"testing"
	"time"
)

// TestKeysAreRoutedByFNV1a pins the routing with the hash's published test vectors: a change would move keys.
func TestKeysAreRoutedByFNV1a(t *testing.T) {
	for key, hash := range map[string]uint32{"": 0x811c9dc5, "a": 0xe40c292c, "foobar": 0xbf9cf968} {
		for _, n := range []int{1, 3, 7, 64} {
			if got, want := fnv1a([]byte(key), n), int(hash%uint32(n)); got != want {
				t.Errorf("key %q goes to %d of %d, want %d", key, got, n, want)
			}
		}
	}
}

func TestStartIsAWordAnOffsetOrATime(t *testing.T) {
	for text, want := range map[string]start{
		"earliest": {word: "earliest"}, "latest": {word: "latest"}, "0": {}, "42": {offset: 42},
		"2026-01-02T03:04:05Z": {time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
	} {
		got, err := parseStart(text)
		if err != nil || got.word != want.word || got.offset != want.offset || !got.time.Equal(want.time) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "soon", "2026-13-01"} {
		if _, err := parseStart(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestAPortAloneMeansThisMachine(t *testing.T) {
	if got := addresses([]string{":9092", "h:1"}); got[0] != "localhost:9092" || got[1] != "h:1" {
		t.Errorf("got %q", got)
	}
}
