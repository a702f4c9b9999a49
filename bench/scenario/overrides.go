package scenario

// OverrideKeys are the producer settings that a scenario may set against its guarantee.
func OverrideKeys() []string {
	return []string{"acks", "delivery_timeout", "max_in_flight", "request_timeout", "retries"}
}
