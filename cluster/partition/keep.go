package partition

import "gopherlog/engine/record"

// Keeper keeps what the records of internal topics mean, and is told which of their partitions are led here.
type Keeper interface {
	// Open gives what keeps the state of a replica that is being opened, before anything is restored or applied; nil keeps nothing. Of p
	// only the names may be used until Led.
	Open(p *Partition) Kept
	// Led says that a replica with a Kept is open, or that its leadership began or ended; calls may overlap and come late, so the receiver
	// looks at p.Leader. It must not block.
	Led(p *Partition)
	// Heard says that a replica, of whatever topic, heard something of who leads it; the receiver looks at p.Leader. It must not block.
	Heard(p *Partition)
}

// Kept is a state that is made of a partition's committed records alone, equal on every replica, and part of its snapshots. The methods are
// called in the order of the log, one at a time, and must not wait for anything.
type Kept interface {
	// Apply takes a committed batch, whole; its bytes belong to the log.
	Apply(b record.Batch)
	// Snapshot appends the state after the last applied batch to dst.
	Snapshot(dst []byte) []byte
	// Restore replaces the state; nil is that of an empty log.
	Restore(state []byte) error
}

// Confirm calls done once, with nil when this replica leads in that epoch for certain: it replicates an entry that changes nothing. Who was
// deposed and does not know it yet gets ErrNotLeader. It does not block, nor may done.
func (p *Partition) Confirm(epoch int32, done func(error)) {
	l := p.lead.Load()
	if l == nil || l.epoch != epoch {
		done(ErrNotLeader)
		return
	}
	l.proposeControl(encodeCommand(commandExpire, 0), false, done)
}
