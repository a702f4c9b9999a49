package rpc

import "gopherlog/engine/failpoint"

// The points at which a test may delay, fail or kill a node. An error at a
// point that sends or receives breaks the connection, as a network would.
var (
	failSendAppend    = failpoint.Register("rpc/send-append", "entries leave for a follower")
	failReceiveAppend = failpoint.Register("rpc/receive-append", "received entries are handed to their group")
	failAnswerAppend  = failpoint.Register("rpc/answer-append", "a follower's answer to entries leaves")
	failAnswerVote    = failpoint.Register("rpc/answer-vote", "the answer to a vote request leaves")
	failSendSnapshot  = failpoint.Register("rpc/send-snapshot", "a snapshot leaves for a follower")
)
