package load

import "gopherlog/bench/history"

func (i *incarnation) transaction(step history.Step, class uint8, epoch int32) {
	m := i.member
	if m.txns == nil {
		return
	}
	m.txns.Append(history.Record{Kind: history.Transaction, Step: step, Producer: m.number, Session: i.session, Txn: i.number, Class: class, Epoch: epoch, At: m.groups.run.clock.Now()})
}

// note notes a step of the incarnation itself.
func (i *incarnation) note(step history.Step) {
	if m := i.member; m.log != nil {
		m.log.Append(history.Record{Kind: history.Group, Step: step, Producer: m.number, Session: i.session, At: m.groups.run.clock.Now()})
	}
}

// watch notes what becomes of the partitions.
func (i *incarnation) watch() MemberWatch {
	m, r := i.member, i.member.groups.run
	note := func(step history.Step, topic string, partition, generation int32, offset int64) {
		if flat, ok := r.flat(topic, partition); ok && m.log != nil {
			m.log.Append(history.Record{Kind: history.Group, Step: step, Producer: m.number, Session: i.session, Partition: uint32(flat), Offset: offset, Epoch: generation, At: r.clock.Now()})
		}
	}
	return MemberWatch{
		Assigned: func(t string, p, g int32) { note(history.Assigned, t, p, g, -1) },
		Revoked: func(t string, p, g int32, lost bool) {
			step := history.Revoked
			if lost {
				step = history.Lost
			}
			note(step, t, p, g, -1)
		},
		Position: func(t string, p int32, offset int64) { note(history.Position, t, p, -1, offset) },
	}
}
