package twopc

// Tagged fields of a transactional id in the answer to DescribeTransactions, and elsewhere where it says so, beside those of Kafka's protocol:
// clients that do not know them pass over them.
const (
	// TagPhase is the name of the coordinator's Phase. Kafka's protocol has no id with it.
	TagPhase uint32 = 10_000
	// TagInDoubt is when participants were asked for the promise by which some of them may be in doubt: milliseconds since 1970, i64.
	TagInDoubt uint32 = 10_001
	// TagTransactionalID is, of a producer in the answer to DescribeProducers that is in doubt there (TagInDoubt: since its promise), the
	// transactional id; and of a marker in WriteTxnMarkers, that the marker is an operator's decision about it: see Decree.
	TagTransactionalID uint32 = 10_002
)
