package broker

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// A group that only an open transaction knows can be seen and deleted, and what the transaction held for it does not come back with the
// commit, also under the next coordinator: by Kafka's protocol and by the voted one.
func TestADeletedGroupDoesNotComeBackWithATransaction(t *testing.T) {
	for name, id := range map[string]string{"plain": "pipe", "voted": "2pc.pipe"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTrio(t)
			c.createTopic("t", 2)
			c.calm()
			ctx := within(t, patience)
			cl, adm := c.transactional(id, clientOf(kversion.V3_7_0())), kadm.NewClient(c.client())
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(ctx, &kgo.Record{Value: []byte("made of what the offset covers")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			for group, offset := range map[string]int64{"g": 5, "kept": 6} {
				c.commitIn(cl, id, group, offset)
			}

			for _, group := range []string{"g", "kept"} {
				described, err := adm.DescribeGroups(ctx, group)
				if err != nil || described[group].Err != nil || described[group].State != "Empty" {
					t.Fatalf("%s described: %+v, %v", group, described[group], err)
				}
			}
			if listed, err := adm.ListGroups(ctx); err != nil || len(listed) != 2 {
				t.Fatalf("listed: %v, %v", listed, err)
			}
			if _, err := adm.DeleteGroup(ctx, "g"); err != nil {
				t.Fatalf("deletion: %v", err)
			}
			if _, err := adm.DeleteGroup(ctx, "g"); !errors.Is(err, kerr.GroupIDNotFound) {
				t.Fatalf("deletion once more: %v", err)
			}
			if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
			c.quiet()

			committed := func(c *client, group string) int64 {
				req := groupQuestion(9, 7).(*kmsg.OffsetFetchRequest)
				req.Version, req.Group = 7, group
				return c.ask(req).(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0].Offset
			}
			for group, want := range map[string]int64{"g": -1, "kept": 6} {
				if old, asker := c.served(group, nil); committed(asker, group) != want {
					t.Errorf("%s: offset %d by node %d, want %d", group, committed(asker, group), old.id, want)
				}
			}
			old, _ := c.served("g", nil)
			old.kill()
			for group, want := range map[string]int64{"g": -1, "kept": 6} {
				if next, asker := c.served(group, old); committed(asker, group) != want {
					t.Errorf("%s: offset %d by node %d, want %d", group, committed(asker, group), next.id, want)
				}
			}
		})
	}
}

// commitIn commits an offset of t-0 in the client's open transaction.
func (c *trio) commitIn(cl *kgo.Client, id, group string, offset int64) {
	c.t.Helper()
	ctx := within(c.t, patience)
	producer, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, producer, epoch, group
	if resp, err := add.RequestWith(ctx, cl); err != nil || resp.ErrorCode != codeNone {
		c.t.Fatalf("AddOffsetsToTxn: %+v, %v", resp, err)
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = id, producer, epoch, group, -1
	topic, p := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Offset = offset
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	if resp, err := req.RequestWith(ctx, cl); err != nil || resp.Topics[0].Partitions[0].ErrorCode != codeNone {
		c.t.Fatalf("TxnOffsetCommit: %+v, %v", resp, err)
	}
}
