package kafkatx

import "fmt"

// Code is one of Kafka's error codes.
type Code int16

const (
	OK                        Code = 0
	NotCoordinator            Code = 16
	NotEnoughReplicas         Code = 19
	InvalidProducerEpoch      Code = 47
	InvalidTxnState           Code = 48
	InvalidProducerIDMapping  Code = 49
	InvalidTransactionTimeout Code = 50
	ConcurrentTransactions    Code = 51
	ProducerFenced            Code = 90
	TransactionAbortable      Code = 120
)

var codeNames = map[Code]string{
	OK: "ok", NotCoordinator: "NOT_COORDINATOR", NotEnoughReplicas: "NOT_ENOUGH_REPLICAS", InvalidProducerEpoch: "INVALID_PRODUCER_EPOCH",
	InvalidTxnState: "INVALID_TXN_STATE", InvalidProducerIDMapping: "INVALID_PRODUCER_ID_MAPPING",
	InvalidTransactionTimeout: "INVALID_TRANSACTION_TIMEOUT", ConcurrentTransactions: "CONCURRENT_TRANSACTIONS",
	ProducerFenced: "PRODUCER_FENCED", TransactionAbortable: "TRANSACTION_ABORTABLE",
}

func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return fmt.Sprintf("code %d", int16(c))
}

// API is the request that a code goes back to; the numbers are Kafka's keys.
type API int16

const (
	APIProduce         API = 0
	APIInitProducerID  API = 22
	APIAddPartitions   API = 24
	APIAddOffsets      API = 25
	APIEndTxn          API = 26
	APITxnOffsetCommit API = 28
)

// firsts are the versions of each request from which on its clients know a code; absent: they never do.
var firsts = map[Code]map[API]int16{
	ProducerFenced:       {APIInitProducerID: 4, APIAddPartitions: 2, APIAddOffsets: 2, APIEndTxn: 2},
	TransactionAbortable: {APIProduce: 11, APIInitProducerID: 5, APIAddPartitions: 5, APIAddOffsets: 4, APIEndTxn: 4, APITxnOffsetCommit: 4},
	// Clients of Produce 12 add partitions by producing, so they know that a transaction may be ending.
	ConcurrentTransactions: {APIProduce: 12, APIInitProducerID: 0, APIAddPartitions: 0, APIAddOffsets: 0, APIEndTxn: 0, APITxnOffsetCommit: 0},
	// Nothing but a coordinator's client asks for another one.
	NotCoordinator: {APIInitProducerID: 0, APIAddPartitions: 0, APIAddOffsets: 0, APIEndTxn: 0, APITxnOffsetCommit: 0},
}

// older is what clients that do not know a code get instead.
var older = map[Code]Code{
	ProducerFenced:         InvalidProducerEpoch,
	TransactionAbortable:   InvalidTxnState,
	ConcurrentTransactions: NotEnoughReplicas,
	NotCoordinator:         NotEnoughReplicas,
}

// For is the code as a client of that request and version knows it.
func (c Code) For(api API, version int16) Code {
	known, bound := firsts[c]
	if !bound {
		return c
	}
	if first, ok := known[api]; ok && version >= first {
		return c
	}
	return older[c]
}
