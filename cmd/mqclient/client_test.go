package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gopherlog/cmd/internal/cli"
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

func TestAPortAloneMeansThisMachineAndAHostAloneItsUsualPort(t *testing.T) {
	for given, want := range map[string]string{":9092": "localhost:9092", "h:1": "h:1", "h": "h:9092", "[::1]:1": "[::1]:1"} {
		if got, err := addresses([]string{given}); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, %v", given, got, err)
		}
	}
	for _, given := range []string{"", "h:", "h:x", "h:0", "h:65536", "::1", "http://h:1"} {
		if got, err := addresses([]string{"h:1", given}); cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), "HOST:PORT") {
			t.Errorf("%q: %q, %v", given, got, err)
		}
	}
	if got, err := addresses(nil); err == nil {
		t.Errorf("no address: %q", got)
	}
}

func TestPartitionsOfATopicAreNamedBehindAColon(t *testing.T) {
	all, err := parsePartitions("orders")
	if err != nil || all.topic != "orders" || !all.has(7) {
		t.Errorf("%+v, %v", all, err)
	}
	some, err := parsePartitions("orders:0,2")
	if err != nil || some.topic != "orders" || !some.has(2) || some.has(1) {
		t.Errorf("%+v, %v", some, err)
	}
	for _, text := range []string{"", ":1", "orders:", "orders:x", "orders:-1", "orders:1,"} {
		if _, err := parsePartitions(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestOffsetsAreResetToAPlaceOrByADistance(t *testing.T) {
	for text, want := range map[string]target{
		"latest": {start: start{word: "latest"}}, "7": {start: start{offset: 7}}, "+7": {start{offset: 7}, true}, "-7": {start{offset: -7}, true},
	} {
		if got, err := parseTarget(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "+", "-x", "never"} {
		if _, err := parseTarget(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestAStateIsOneThatThereIs(t *testing.T) {
	if got, err := knownStates([]string{"empty", "Stable"}, groupStates); err != nil || !slices.Equal(got, []string{"Empty", "Stable"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := knownStates([]string{"Empty", "Opne"}, txnStates); cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), `"Opne"`) || !strings.Contains(err.Error(), "Ongoing") {
		t.Errorf("%q, %v", got, err)
	}
}
