package main

import (
	"fmt"
	"time"

	"gopherlog/txn/twopc"
)

// setTransaction takes a -set about transactions, by Kafka's names; false: it is about something else.
func (s *settings) setTransaction(key, value string, number numberSetting) (known bool, err error) {
	x := &s.node.transactions
	switch key {
	case "transaction.max.timeout.ms":
		return true, number(func(n int64) { x.MaxTimeout = time.Duration(n) * time.Millisecond }, 1, 1<<31-1)
	case "transactional.id.expiration.ms":
		return true, number(func(n int64) { x.Expiry = time.Duration(n) * time.Millisecond }, 1, 1<<31-1)
	}
	v := &s.node.voted
	switch key {
	case "transaction.voted.prefix":
		if len(value) > maxPrefix {
			return true, fmt.Errorf("-set %s=%s: want at most %d characters", key, value, maxPrefix)
		}
		v.prefix = twopc.Prefix(value)
		return true, nil
	case "transaction.voted.replicas":
		if value != "1" && value != "3" {
			return true, fmt.Errorf("-set %s=%s: want 1, as in the textbooks, or 3", key, value)
		}
		v.replicas = int(value[0] - '0')
		return true, nil
	case "transaction.voted.timeout.ms":
		return true, number(func(n int64) { v.machine.VoteTimeout = time.Duration(n) * time.Millisecond }, 1, int64(maxVoteTimeout/time.Millisecond))
	}
	return false, nil
}

const (
	maxPrefix      = 100
	maxVoteTimeout = time.Hour
)

// votedSettings are about transactions that commit by vote.
type votedSettings struct {
	prefix   twopc.Prefix
	replicas int
	machine  twopc.Config
}

func defaultVoted() votedSettings {
	return votedSettings{prefix: "2pc.", replicas: 3, machine: twopc.Defaults()}
}
