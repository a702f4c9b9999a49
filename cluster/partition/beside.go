package partition

import (
	"gopherlog/cluster/replica"
	"gopherlog/txn/producer"
)

// snapshotHead is what stands before the producers in a snapshot: its version and the log start.
const snapshotHead = 1 + 8

// besideSegment makes Kafka's .snapshot and .txnindex from a group's state (see machine.Snapshot for this room's part of it) before offset to. Where no producer is
// known there is neither.
func besideSegment(state []byte, from, to int64) (snapshot, txnIndex []byte, err error) {
	if state, err = replica.FSMState(state); err != nil {
		return nil, nil, err
	}
	if len(state) < snapshotHead {
		return nil, nil, nil // of an empty log
	}
	s, _, err := producer.Decode(state[snapshotHead:])
	if err != nil {
		return nil, nil, err
	}
	for _, a := range s.AbortedEndingIn(from, to) {
		txnIndex = producer.AppendTxnIndex(txnIndex, a)
	}
	if s.Len() > 0 {
		snapshot = s.AppendSnapshot(nil)
	}
	return snapshot, txnIndex, nil
}
