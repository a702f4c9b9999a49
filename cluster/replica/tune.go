package replica

// Tune changes the log's segment length and tier without reopening, from the next append on. The run record says before the first
// append that is not synced that appends are not, and ceases to say so when all of them are: so a power loss at any moment finds a
// replica suspect that may have forgotten something. It waits for the disk. An error means that the replica or the store is failing.
func (g *Group) Tune(segmentBytes int64, syncEach bool) error {
	if !syncEach {
		if err := g.changeRun(func(r *run) { r.flags |= runVolatile }); err != nil {
			return err
		}
	}
	if err := g.log.Tune(segmentBytes, syncEach); err != nil {
		return err
	}
	if syncEach {
		return g.changeRun(func(r *run) { r.flags &^= runVolatile })
	}
	return nil
}

// changeRun changes the run record, durably; changes happen one after the other. The token is not a lock: it is held across the write.
func (g *Group) changeRun(change func(*run)) error {
	b := &g.boot
	<-b.saving
	defer func() { b.saving <- struct{}{} }()
	b.mu.Lock()
	r := b.last
	b.mu.Unlock()
	was := r
	if change(&r); r == was {
		return nil
	}
	if err := saveRun(g.cfg.KV, g.id, r); err != nil {
		return err
	}
	b.mu.Lock()
	b.last = r
	b.mu.Unlock()
	return nil
}
