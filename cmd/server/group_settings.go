package main

import (
	"fmt"
	"time"

	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
)

// numberSetting takes a -set whose value is a number between two.
type numberSetting func(to func(int64), least, most int64) error

// setGroup takes a -set about consumer groups, by Kafka's names; false: it is about something else.
func (s *settings) setGroup(key string, number numberSetting) (bool, error) {
	g := &s.node.groups
	millis := func(d *time.Duration, least int64) error {
		return number(func(n int64) { *d = time.Duration(n) * time.Millisecond }, least, int64((24 * time.Hour).Milliseconds()))
	}
	switch key {
	case "group.initial.rebalance.delay.ms":
		return true, millis(&g.InitialDelay, 0)
	case "group.min.session.timeout.ms":
		return true, millis(&g.MinSession, 1)
	case "group.max.session.timeout.ms":
		return true, millis(&g.MaxSession, 1)
	case "group.max.size":
		return true, number(func(n int64) { g.MaxMembers = int(n) }, 1, 1<<20)
	case "offsets.retention.minutes":
		return true, number(func(n int64) { g.Retention = time.Duration(n) * time.Minute }, 1, 1<<31-1)
	}
	return false, nil
}

func (s *settings) checkGroups() error {
	if g := s.node.groups; g.MinSession > g.MaxSession {
		return fmt.Errorf("-set group.min.session.timeout.ms is %d and group.max.session.timeout.ms %d: no session timeout lies between them",
			g.MinSession.Milliseconds(), g.MaxSession.Milliseconds())
	}
	return nil
}

func defaultNodeSettings() nodeSettings {
	return nodeSettings{groups: group.Defaults(), transactions: kafkatx.Defaults(), voted: defaultVoted()}
}
