package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

func transactional(id string) (*kafka.Producer, error) {
	p, err := newProducer(kafka.ConfigMap{"transactional.id": id})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := p.InitTransactions(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// transaction sends values and ends in one of the two ways.
func transaction(p *kafka.Producer, topic string, values []string, commit bool) error {
	if err := p.BeginTransaction(); err != nil {
		return err
	}
	if err := send(p, topic, values); err != nil {
		return err
	}
	return end(p, commit)
}

func end(p *kafka.Producer, commit bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if commit {
		return p.CommitTransaction(ctx)
	}
	return p.AbortTransaction(ctx)
}

func txnCommit() error {
	topic, err := newTopic()
	if err != nil {
		return err
	}
	p, err := transactional(fresh("t"))
	if err != nil {
		return err
	}
	defer p.Close()
	var want []string
	for turn := range 5 {
		values := words(fmt.Sprintf("c%d-", turn), 100)
		if err := transaction(p, topic, values, true); err != nil {
			return err
		}
		want = append(want, values...)
	}
	return readAll(topic, "read_committed", want)
}

func txnAbort() error {
	topic, err := newTopic()
	if err != nil {
		return err
	}
	p, err := transactional(fresh("t"))
	if err != nil {
		return err
	}
	defer p.Close()
	var all, want []string
	for turn := range 6 {
		values := words(fmt.Sprintf("a%d-", turn), 100)
		if err := transaction(p, topic, values, turn%2 == 1); err != nil {
			return err
		}
		if all = append(all, values...); turn%2 == 1 {
			want = append(want, values...)
		}
	}
	return errors.Join(readAll(topic, "read_committed", want), readAll(topic, "read_uncommitted", all))
}

// txnOffsets: consume, transform, produce; offsets are committed with the transaction or not at all.
func txnOffsets() error {
	source, err1 := newTopic()
	sink, err2 := newTopic()
	if err := errors.Join(err1, err2, sendPlain(source, words("x", 300), nil)); err != nil {
		return err
	}
	c, err := newConsumer(fresh("g"), "read_committed", "range")
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Subscribe(source, nil); err != nil {
		return err
	}
	values, err := read(c, 300)
	if err != nil {
		return err
	}
	p, err := transactional(fresh("t"))
	if err != nil {
		return err
	}
	defer p.Close()
	for _, commit := range []bool{false, true} {
		if err := turnOver(p, c, sink, values, commit); err != nil {
			return err
		}
		want := kafka.OffsetInvalid
		if commit {
			want = 100
		}
		assigned, err := c.Assignment()
		if err != nil {
			return err
		}
		at, err := c.Committed(assigned, int(limit.Milliseconds()))
		if err != nil {
			return err
		}
		for _, tp := range at {
			if tp.Offset != want {
				return fmt.Errorf("after commit=%v partition %d has offset %v, want %v", commit, tp.Partition, tp.Offset, want)
			}
		}
	}
	return readAll(sink, "read_committed", values)
}

// turnOver is one transaction with the consumer's position in it.
func turnOver(p *kafka.Producer, c *kafka.Consumer, sink string, values []string, commit bool) error {
	if err := p.BeginTransaction(); err != nil {
		return err
	}
	if err := send(p, sink, values); err != nil {
		return err
	}
	assigned, err := c.Assignment()
	if err != nil {
		return err
	}
	at, err := c.Position(assigned)
	if err != nil {
		return err
	}
	m, err := c.GetConsumerGroupMetadata()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := p.SendOffsetsToTransaction(ctx, at, m); err != nil {
		return err
	}
	return end(p, commit)
}

func txnFenced() error {
	topic, err := newTopic()
	if err != nil {
		return err
	}
	id := fresh("t")
	old, err := transactional(id)
	if err != nil {
		return err
	}
	defer old.Close()
	if err := errors.Join(old.BeginTransaction(), send(old, topic, words("old", 30))); err != nil {
		return err
	}
	successor, err := transactional(id)
	if err != nil {
		return err
	}
	defer successor.Close()
	if err := transaction(successor, topic, words("new", 30), true); err != nil {
		return err
	}
	err = end(old, true)
	if e, ok := err.(kafka.Error); !ok || !e.IsFatal() {
		return fmt.Errorf("the old producer's commit: %v, want a fatal error", err)
	}
	return readAll(topic, "read_committed", words("new", 30))
}
