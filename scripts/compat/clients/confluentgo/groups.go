package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// subscribeCommitResume: what a group committed is where its next member begins.
func subscribeCommitResume() error {
	topic, err := newTopic()
	if err != nil {
		return err
	}
	group := fresh("g")
	var got []string
	for _, values := range [][]string{words("a", 900), words("b", 300)} {
		if err := sendPlain(topic, values, kafka.ConfigMap{"enable.idempotence": true}); err != nil {
			return err
		}
		c, err := newConsumer(group, "read_committed", "range")
		if err != nil {
			return err
		}
		if err := c.Subscribe(topic, nil); err != nil {
			return err
		}
		some, err := read(c, len(values))
		if err == nil {
			_, err = c.Commit()
		}
		if cerr := c.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		got = append(got, some...)
	}
	return same(got, append(words("a", 900), words("b", 300)...))
}

// member is a consumer of a group that commits each record.
type member struct {
	mu       *sync.Mutex
	got      *[]string
	assigned int
	stop     chan struct{}
	done     chan error
}

func join(group, topic, strategy string, mu *sync.Mutex, got *[]string) (*member, error) {
	c, err := newConsumer(group, "read_committed", strategy)
	if err != nil {
		return nil, err
	}
	m := &member{mu: mu, got: got, stop: make(chan struct{}), done: make(chan error, 1)}
	if err := c.Subscribe(topic, m.rebalanced); err != nil {
		return nil, err
	}
	go func() { m.done <- m.run(c) }()
	return m, nil
}

func (m *member) rebalanced(_ *kafka.Consumer, e kafka.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e := e.(type) {
	case kafka.AssignedPartitions:
		m.assigned += len(e.Partitions)
	case kafka.RevokedPartitions:
		m.assigned -= len(e.Partitions)
	}
	return nil
}

func (m *member) run(c *kafka.Consumer) error {
	for {
		select {
		case <-m.stop:
			return c.Close()
		default:
		}
		if msg, ok := c.Poll(100).(*kafka.Message); ok {
			m.mu.Lock()
			*m.got = append(*m.got, string(msg.Value))
			m.mu.Unlock()
			if _, err := c.CommitMessage(msg); err != nil {
				return err
			}
		}
	}
}

// twoMembers: a second member takes partitions over and gives them back, and nothing is read twice behind a commit.
func twoMembers(strategy string) error {
	topic, err := newTopic()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var got []string
	group := fresh("g")
	until := func(what string, cond func() bool) error {
		for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
			mu.Lock()
			ok, n := cond(), len(got)
			mu.Unlock()
			if ok {
				return nil
			}
			if time.Now().After(end) {
				return fmt.Errorf("%s: not within a minute, %d records", what, n)
			}
		}
	}
	a, err := join(group, topic, strategy, &mu, &got)
	if err != nil {
		return err
	}
	defer close(a.stop)
	if err := until("one member", func() bool { return a.assigned == parts }); err != nil {
		return err
	}
	b, err := join(group, topic, strategy, &mu, &got)
	if err != nil {
		return err
	}
	if err := until("two members", func() bool { return b.assigned > 0 && a.assigned+b.assigned == parts }); err != nil {
		return err
	}
	if err := sendPlain(topic, words("a", 90), kafka.ConfigMap{"enable.idempotence": true}); err != nil {
		return err
	}
	if err := until("records of two", func() bool { return len(got) >= 90 }); err != nil {
		return err
	}
	close(b.stop)
	if err := <-b.done; err != nil {
		return err
	}
	if err := until("the member that stays", func() bool { return a.assigned == parts }); err != nil {
		return err
	}
	if err := sendPlain(topic, words("b", 90), kafka.ConfigMap{"enable.idempotence": true}); err != nil {
		return err
	}
	if err := until("records of the member that stays", func() bool { return len(got) >= 180 }); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	return same(got, append(words("a", 90), words("b", 90)...))
}
