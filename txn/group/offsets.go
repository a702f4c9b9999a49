package group

import "time"

// Expired says whether an offset of the group is to be forgotten: never while the group has members or awaits some, so a rebalance that takes
// long, or a topic that is quiet, costs nobody his place; else when retention has passed since the last member left, or since the commit
// of an offset that came later or that no member ever committed.
func (c Config) Expired(s State, o Offset, now time.Time) bool {
	switch {
	case s.Silent || s.Status != Empty || len(s.Promised) > 0 || !s.settled():
		return false
	case o.Expires >= 0:
		return now.UnixMilli() >= o.Expires
	}
	since := o.Committed
	if s.Known && s.ProtocolType != "" {
		since = max(since, s.Since)
	}
	return now.UnixMilli()-since >= c.Retention.Milliseconds()
}

func (s State) settled() bool { return len(s.Pending) == 0 }

// MayDeleteOffsets says whether OffsetDelete may take offsets of the group: of any topic when it has no members, else of topics that no
// member subscribes to, which only somebody who reads subscriptions can tell (Kafka's GROUP_SUBSCRIBED_TO_TOPIC).
func (s State) MayDeleteOffsets() (anyTopic bool, code Code) {
	switch {
	case s.Silent:
		return false, NotCoordinator
	case s.Status == Empty:
		return true, OK
	case s.ProtocolType == consumerProtocol:
		return false, OK
	}
	return false, NonEmptyGroup
}

// consumerProtocol is the protocol type of consumers, whose subscriptions name topics.
const consumerProtocol = "consumer"
