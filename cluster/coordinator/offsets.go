package coordinator

import (
	"errors"
	"time"

	"gopherlog/cluster/meta"
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
		code := effect.(group.Answer).Code
		if code == group.GroupIDNotFound {
			if _, known := t.table.record(id); known { // somebody committed to it without being a member
				code = group.UnknownMemberID
			}
		}
		if code != group.OK || len(offsets) == 0 {
			done(code)
			return
		}
		t.appendOf(l, func(err error) { done(codeOf(err)) }, func() { done(group.NotCoordinator) }, offsets...)
	}, func(r group.Request) group.Event {
		e.Request = r
		return e
	})
}

// fetch reads the table when it is certain that nobody else is the shard's coordinator: one that was deposed and does not know it would show
// positions from before its successor's commits, and what lies between would be consumed twice.
func (t *groupTerm) fetch(id string, want []Wanted, done func([]Committed, group.Code)) {
	t.confirm(func(still bool) {
		if !still {
			done(nil, group.NotCoordinator)
			return
		}
		found := t.table.lookup(id, want)
		if !agree(found, want, t.g.cfg.Meta.Image()) {
			done(nil, LoadInProgress)
			return
		}
		done(found, group.OK)
	})
}

// agree looks for offsets of another topic than the one that has the name now: of a deleted one, which is about to go, or of one that this
// node has not heard of yet. For a topic that is asked for by its id nothing was committed then; by name it cannot be told, which is false.
func agree(found []Committed, want []Wanted, image *meta.Image) bool {
	for i := range found {
		f, asked := &found[i], meta.TopicID{}
		if want != nil {
			asked = want[i].TopicID
		}
		now := image.Topic(f.Topic)
		switch {
		case f.TopicID == meta.TopicID{}: // who committed it did not know the id
		case asked != meta.TopicID{}:
			if f.TopicID != asked {
				*f = nothing(want[i])
			}
		case now != nil && f.TopicID != now.ID:
			return false
		}
	}
	return true
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

// sweep forgets offsets that expired, and groups of which nothing is left. It returns when to sweep again. In between it looks only at groups
// that hold offsets of topics which the image does not know: such an offset goes when the topic is unknown twice, since an image may lag
// behind the one by which the offset was committed.
func (t *groupTerm) sweep() time.Duration {
	now, image := t.now(), t.g.cfg.Meta.Image()
	ids := t.doubted
	if !now.Before(t.sweepAt) {
		ids, t.sweepAt = t.table.ids(), now.Add(t.g.cfg.SweepEvery)
	}
	unknown := map[known]bool{}
	t.doubted = nil
	for _, id := range ids {
		if t.sweepGroup(id, image, now, unknown) {
			t.doubted = append(t.doubted, id)
		}
	}
	t.unknown = unknown
	t.trim()
	if len(t.doubted) > 0 {
		return min(sweepSoon, t.g.cfg.SweepEvery)
	}
	return t.sweepAt.Sub(now)
}

// sweepGroup is sweep of one group. It adds the topics that the image does not know to unknown, and says whether there are any.
func (t *groupTerm) sweepGroup(id string, image *meta.Image, now time.Time, unknown map[known]bool) (doubted bool) {
	l := t.live(id)
	defer t.settle(l)
	keys, left := t.table.which(id, func(k group.Key, o group.Offset) bool {
		if topic := (known{k.Topic, o.TopicID}); !topic.in(image) {
			if t.unknown[topic] && l.flying == 0 {
				return true
			}
			unknown[topic], doubted = true, true
		}
		return t.g.cfg.Group.Expired(l.state, o, now)
	})
	if l.flying > 0 || l.spoiled {
		return doubted // a commit is under way, which would be forgotten too
	}
	idle := l.state.Status == group.Empty && len(l.state.Promised) == 0
	switch {
	case idle && !left:
		t.remove(id, func(group.Code) {})
	case len(keys) > 0:
		t.forget(l, keys)
	}
	return doubted
}

// known is a topic as offsets name it. Who committed them may not have known the id.
type known struct {
	name string
	id   meta.TopicID // zero: unknown
}

func (k known) in(image *meta.Image) bool {
	t := image.Topic(k.name)
	return t != nil && (k.id == meta.TopicID{} || k.id == t.ID)
}

// sweepSoon is when to look again at offsets of topics that the image does not know, and at those that another coordinator left.
const sweepSoon = 5 * time.Second

// dropTopics forgets the offsets of topics that were deleted.
func (t *groupTerm) dropTopics(gone map[string]meta.TopicID) {
	for _, id := range t.table.ids() {
		keys, _ := t.table.which(id, func(k group.Key, o group.Offset) bool {
			id, deleted := gone[k.Topic]
			return deleted && (o.TopicID == id || o.TopicID == meta.TopicID{})
		})
		if len(keys) == 0 {
			continue
		}
		if l := t.live(id); l.flying > 0 {
			t.doubted = append(t.doubted, id) // a commit to a topic that came in its place may be under way
			t.after(timerKey{}, sweepSoon)
		} else {
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
