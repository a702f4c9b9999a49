// Command confluentgo checks a broker with librdkafka through confluent-kafka-go: it prints PASS or FAIL, the check's name and why, a line
// each. It is a module of its own, so that the broker's needs no C compiler.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const (
	parts = 3
	limit = 60 * time.Second
)

var addr string

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: confluentgo version|BOOTSTRAP")
		os.Exit(2)
	}
	if addr = os.Args[1]; addr == "version" {
		version()
		return
	}
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"produce-consume", produceConsume}, {"idempotent", idempotent}, {"subscribe-commit-resume", subscribeCommitResume},
		{"two-members", func() error { return twoMembers("range") }}, {"two-members-cooperative", func() error { return twoMembers("cooperative-sticky") }},
		{"txn-commit", txnCommit}, {"txn-abort", txnAbort}, {"txn-offsets", txnOffsets}, {"txn-fenced", txnFenced},
	} {
		// A machine too busy to keep its leaders may fail a check that is right, so each gets a second try, and the line says so.
		first := c.run()
		if first == nil {
			fmt.Println("PASS", c.name)
		} else if err := c.run(); err == nil {
			fmt.Println("PASS", c.name, "at the second try:", line(first))
		} else {
			fmt.Println("FAIL", c.name, line(err))
		}
	}
}

func line(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func version() {
	_, lib := kafka.LibraryVersion()
	of := "unknown"
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, d := range b.Deps {
			if strings.Contains(d.Path, "confluent-kafka-go") {
				of = d.Version
			}
		}
	}
	fmt.Println(of, "with librdkafka", lib)
}

func fresh(word string) string { return fmt.Sprintf("%s-%08x", word, rand.Uint32()) }

func newTopic() (string, error) {
	a, err := kafka.NewAdminClient(&kafka.ConfigMap{"bootstrap.servers": addr})
	if err != nil {
		return "", err
	}
	defer a.Close()
	name := fresh("go")
	r, err := a.CreateTopics(context.Background(), []kafka.TopicSpecification{{Topic: name, NumPartitions: parts, ReplicationFactor: 3}}, kafka.SetAdminOperationTimeout(limit))
	if err != nil {
		return "", err
	}
	if r[0].Error.Code() != kafka.ErrNoError {
		return "", r[0].Error
	}
	return name, nil
}

func newProducer(more kafka.ConfigMap) (*kafka.Producer, error) {
	c := kafka.ConfigMap{"bootstrap.servers": addr, "linger.ms": 5}
	for k, v := range more {
		c[k] = v
	}
	return kafka.NewProducer(&c)
}

func newConsumer(group, isolation, strategy string) (*kafka.Consumer, error) {
	return kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": addr, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": false,
		"check.crcs": true, "isolation.level": isolation, "partition.assignment.strategy": strategy, "session.timeout.ms": 10000, "heartbeat.interval.ms": 500})
}

// send produces the values and waits until all are acknowledged.
func send(p *kafka.Producer, topic string, values []string) error {
	acked := make(chan kafka.Event, len(values))
	for i, v := range values {
		m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: int32(i % parts)}, Value: []byte(v)}
		for {
			err := p.Produce(m, acked)
			if err == nil {
				break
			}
			if full, ok := err.(kafka.Error); !ok || full.Code() != kafka.ErrQueueFull {
				return err
			}
			p.Flush(100)
		}
	}
	after := time.After(limit)
	for range values {
		select {
		case e := <-acked:
			if m, ok := e.(*kafka.Message); !ok || m.TopicPartition.Error != nil {
				return fmt.Errorf("undelivered: %v", e)
			}
		case <-after:
			return errors.New("undelivered after a minute")
		}
	}
	return nil
}

// sendPlain does it with a producer of its own.
func sendPlain(topic string, values []string, more kafka.ConfigMap) error {
	p, err := newProducer(more)
	if err != nil {
		return err
	}
	defer p.Close()
	return send(p, topic, values)
}

// read polls until n records came, and a little longer to see one too many.
func read(c *kafka.Consumer, n int) (values []string, err error) {
	until := time.Now().Add(limit)
	for time.Now().Before(until) {
		switch e := c.Poll(200).(type) {
		case *kafka.Message:
			if values = append(values, string(e.Value)); len(values) == n {
				until = time.Now().Add(time.Second)
			}
		case kafka.Error:
			if e.IsFatal() {
				return values, e
			}
		}
	}
	if len(values) != n {
		return values, fmt.Errorf("read %d records, want %d", len(values), n)
	}
	return values, nil
}

func readAll(topic, isolation string, want []string) error {
	c, err := newConsumer(fresh("all"), isolation, "range")
	if err != nil {
		return err
	}
	defer c.Close()
	var at []kafka.TopicPartition
	for p := range int32(parts) {
		at = append(at, kafka.TopicPartition{Topic: &topic, Partition: p, Offset: kafka.OffsetBeginning})
	}
	if err := c.Assign(at); err != nil {
		return err
	}
	got, err := read(c, len(want))
	if err != nil {
		return err
	}
	return same(got, want)
}

func same(got, want []string) error {
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		return fmt.Errorf("got %d records, want %d others", len(got), len(want))
	}
	return nil
}

func words(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%05d", prefix, i))
	}
	return out
}

func produceConsume() error {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic, err := newTopic()
		if err != nil {
			return err
		}
		values := words(codec, 2000)
		if err := errors.Join(sendPlain(topic, values, kafka.ConfigMap{"compression.type": codec}), readAll(topic, "read_committed", values)); err != nil {
			return fmt.Errorf("%s: %w", codec, err)
		}
	}
	return nil
}

func idempotent() error {
	topic, err := newTopic()
	if err != nil {
		return err
	}
	values := words("i", 20000)
	if err := sendPlain(topic, values, kafka.ConfigMap{"enable.idempotence": true}); err != nil {
		return err
	}
	return readAll(topic, "read_committed", values)
}
