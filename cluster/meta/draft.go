package meta

import (
	"maps"
	"slices"
)

// draft is an image in the making. It shares everything with its parent until that is changed, and copies each map, topic and
// partition list at most once: a batch of a thousand leader updates costs one copy per topic.
type draft struct {
	Image
	ownBrokers, ownTopics bool
	own                   map[TopicID]bool // topics whose struct and Partitions belong to this draft
}

func (m *Image) edit(index uint64) *draft { return &draft{Image: *m.at(index)} }

func (d *draft) putBroker(b *Broker) {
	if !d.ownBrokers {
		d.Brokers, d.ownBrokers = maps.Clone(d.Brokers), true
	}
	d.Brokers[b.ID] = b
}

func (d *draft) editTopics() {
	if !d.ownTopics {
		d.Topics, d.byID, d.ownTopics = maps.Clone(d.Topics), maps.Clone(d.byID), true
		d.own = map[TopicID]bool{}
	}
}

func (d *draft) putTopic(t *Topic) {
	d.editTopics()
	d.Topics[t.Name], d.byID[t.ID] = t, t
	d.own[t.ID] = true
}

func (d *draft) dropTopic(t *Topic) {
	d.editTopics()
	delete(d.Topics, t.Name)
	delete(d.byID, t.ID)
}

// topicForEdit returns a topic whose fields and Partitions elements may be assigned; the slices and the map inside them still
// belong to older images and are replaced, never written.
func (d *draft) topicForEdit(t *Topic) *Topic {
	d.editTopics()
	if d.own[t.ID] {
		return t
	}
	c := *t
	c.Partitions = slices.Clone(t.Partitions)
	d.putTopic(&c)
	return &c
}
