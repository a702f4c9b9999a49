package main

import "time"

// setTransaction takes a -set about transactions, by Kafka's names; false: it is about something else.
func (s *settings) setTransaction(key string, number numberSetting) (known bool, err error) {
	x := &s.node.transactions
	switch key {
	case "transaction.max.timeout.ms":
		return true, number(func(n int64) { x.MaxTimeout = time.Duration(n) * time.Millisecond }, 1, 1<<31-1)
	case "transactional.id.expiration.ms":
		return true, number(func(n int64) { x.Expiry = time.Duration(n) * time.Millisecond }, 1, 1<<31-1)
	}
	return false, nil
}
