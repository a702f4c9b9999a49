package coordinator

import (
	"errors"

	"gopherlog/cluster/partition"
	"gopherlog/txn/group"
)

// codeOf is what a client is told whose offsets were not appended.
func codeOf(err error) group.Code {
	switch {
	case err == nil:
		return group.OK
	case errors.Is(err, partition.ErrNotLeader), errors.Is(err, partition.ErrStorage), errors.Is(err, partition.ErrClosed):
		return group.NotCoordinator
	case errors.Is(err, partition.ErrTooLarge):
		return CommitTooLarge
	case errors.Is(err, partition.ErrNotEnoughReplicas), errors.Is(err, partition.ErrNotEnoughReplicasAfterAppend), errors.Is(err, partition.ErrTimeout):
		return NotAvailable
	}
	return UnknownServerError
}

// commit lets the machine decide and appends the offsets. They are in the table, and answered, when they are committed.
func (t *groupTerm) commit(id string, e group.Commit, offsets []pair, done func(group.Code)) {
	l := t.live(id)
	t.request(l, func(effect group.Effect) {
		if code := effect.(group.Answer).Code; code != group.OK || len(offsets) == 0 {
			done(code)
			return
		}
		t.appendOf(l, func(err error) { done(codeOf(err)) }, func() { done(group.NotCoordinator) }, offsets...)
	}, func(r group.Request) group.Event {
		e.Request = r
		return e
	})
}

// remove deletes a group without members, and its offsets.
func (t *groupTerm) remove(id string, done func(group.Code)) {
	l := t.live(id)
	_, known := t.table.record(id)
	if l.state.Blank() && !known && l.flying == 0 {
		done(group.GroupIDNotFound)
		t.settle(l)
		return
	}
	recorded := l.state.Known || len(l.state.Pending) > 0
	t.request(l, func(effect group.Effect) {
		code := effect.(group.Answer).Code
		if code != group.OK || recorded {
			done(code) // the machine's own tombstone is durable
			return
		}
		t.appendOf(l, func(err error) { done(codeOf(err)) }, func() { done(group.NotCoordinator) }, pair{key: group.Key{Group: id}})
	}, func(r group.Request) group.Event { return group.Remove{Request: r} })
}

// removeOffsets deletes offsets of a group, and answers a code for each.
func (t *groupTerm) removeOffsets(id string, keys []group.Key, done func(group.Code, []group.Code)) {
	l := t.live(id)
	defer t.settle(l)
	if _, known := t.table.record(id); !known && l.state.Blank() && l.flying == 0 {
		done(group.GroupIDNotFound, nil)
		return
	}
	anyTopic, code := l.state.MayDeleteOffsets()
	if code != group.OK {
		done(code, nil)
		return
	}
	var used map[string]bool
	if !anyTopic {
		used = subscribed(l.state)
	}
	codes := make([]group.Code, len(keys))
	var gone []pair
	for i, k := range keys {
		if codes[i] = group.OK; used[k.Topic] {
			codes[i] = SubscribedToTopic
			continue
		}
		gone = append(gone, pair{key: k})
	}
	if len(gone) == 0 {
		done(group.OK, codes)
		return
	}
	t.appendOf(l, func(err error) { done(codeOf(err), codes) }, func() { done(group.NotCoordinator, nil) }, gone...)
}

// sweep forgets offsets that expired, and groups of which nothing is left.
func (t *groupTerm) sweep() {
	now, image := t.g.cfg.Now(), t.g.cfg.Meta.Image()
	unknown := map[string]bool{}
	for _, id := range t.table.ids() {
		l := t.live(id)
		if l.flying > 0 || l.spoiled {
			continue // a commit is under way, which would be forgotten too
		}
		keys, left := t.table.which(id, func(k group.Key, o group.Offset) bool {
			if image.Topic(k.Topic) == nil {
				unknown[k.Topic] = true
				if t.unknown[k.Topic] { // twice: an image may lag behind the one by which the offset was committed
					return true
				}
			}
			return t.g.cfg.Group.Expired(l.state, o, now)
		})
		idle := l.state.Status == group.Empty && len(l.state.Promised) == 0
		switch {
		case idle && !left:
			t.remove(id, func(group.Code) {})
		case len(keys) > 0:
			t.forget(l, keys)
		}
		t.settle(l)
	}
	t.unknown = unknown
	t.trim()
}

// dropTopics forgets the offsets of topics that were deleted.
func (t *groupTerm) dropTopics(gone map[string]bool) {
	for _, id := range t.table.ids() {
		keys, _ := t.table.which(id, func(k group.Key, _ group.Offset) bool { return gone[k.Topic] })
		if len(keys) > 0 {
			l := t.live(id)
			t.forget(l, keys)
			t.settle(l)
		}
	}
}

func (t *groupTerm) forget(l *live, keys []group.Key) {
	pairs := make([]pair, len(keys))
	for i, k := range keys {
		pairs[i].key = k
	}
	t.appendOf(l, func(err error) {
		if err != nil {
			t.g.cfg.Logger.Debug("offsets were not forgotten", "group", l.id, "shard", t.s.number, "error", err)
		}
	}, nil, pairs...)
}
