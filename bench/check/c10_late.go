package check

// lateEnds is rule C10, a label: an anomaly behind an end in doubt looks like a marker that came late and ended the next transaction,
// which the protocol before its second transaction version allows.
func lateEnds(c *txnReads) *finding {
	f := &finding{of: int64(len(c.torn)), missing: "no transaction is under C1, C2 or C3"}
	if f.of > 0 {
		f.missing = ""
	}
	for t := range c.late {
		f.add("", func() Example { return t.example("the end of the transaction before it was in doubt") })
	}
	return f
}
