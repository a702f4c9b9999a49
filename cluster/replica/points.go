package replica

import "gopherlog/engine/failpoint"

// Points of a replica where a test may stop, fail or kill.
var (
	failStore      = failpoint.Register("replica/before-store", "raft's entries are appended")
	failStored     = failpoint.Register("replica/after-store", "raft is told that its entries are appended")
	failVote       = failpoint.Register("replica/before-vote", "a vote becomes durable")
	failApply      = failpoint.Register("replica/before-apply", "committed entries are applied")
	failAdopt      = failpoint.Register("replica/before-adopt", "the log is wiped for an installed snapshot")
	failReopen     = failpoint.Register("replica/before-reopen", "raft is replaced after an installed snapshot")
	failSnap       = failpoint.Register("replica/before-snap", "the state at a segment's end is written")
	failCheckpoint = failpoint.Register("replica/before-restart-copy", "a restart copy is written behind the synced log")
)
