package broker

import "gopherlog/cluster/partition"

// Local makes the node's partition manager a Partitions.
func Local(m *partition.Manager) Partitions { return local{m} }

type local struct{ m *partition.Manager }

func (l local) Get(topic string, number int32) (Partition, error) {
	p, err := l.m.Get(topic, number)
	if err != nil {
		return nil, err
	}
	return p, nil
}
