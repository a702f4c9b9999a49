package load

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Greeting is what one address of the bootstrap list answered.
type Greeting struct {
	Addr      string
	ClusterID string // "" where the broker does not tell it
	Err       error  // nil: it answered
}

// Greet asks every address of the bootstrap list once, all at the same time, which cluster is there. The answers come in the list's order,
// within the limits of one dial and one request.
func (i *Inspector) Greet(ctx context.Context) []Greeting {
	ctx, cancel := context.WithTimeout(ctx, inspectPatience)
	defer cancel()
	out := make([]Greeting, len(i.cfg.Bootstrap))
	var wg sync.WaitGroup
	for n, seed := range i.client.SeedBrokers() { // in the order in which they were given
		wg.Go(func() {
			out[n].Addr = i.cfg.Bootstrap[n]
			out[n].ClusterID, out[n].Err = clusterOf(ctx, seed)
		})
	}
	wg.Wait()
	return out
}

func clusterOf(ctx context.Context, b *kgo.Broker) (string, error) {
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = []kmsg.MetadataRequestTopic{} // nil would mean all
	answer, err := b.Request(ctx, ask)
	if err != nil {
		return "", err
	}
	if id := answer.(*kmsg.MetadataResponse).ClusterID; id != nil {
		return *id, nil
	}
	return "", nil
}

// The topics that a cluster makes for itself when a client first needs them, and keeps: for transactions, for consumer groups, and on
// GopherLog for transactions that commit by vote.
const (
	TransactionLog = "__transaction_state"
	GroupLog       = "__consumer_offsets"
	VotedLog       = "__two_phase_commit"
)

// Internal says what is known of a cluster's internal topics.
type Internal struct {
	There  []string // it exists
	Hidden []string // the user may not see whether it exists
}

// Has says whether a topic is known to exist.
func (n Internal) Has(topic string) bool { return slices.Contains(n.There, topic) }

// internal looks for the topics, and makes none.
func (i *Inspector) internal(ctx context.Context) (out Internal) {
	all := []string{TransactionLog, GroupLog, VotedLog}
	ask := kmsg.NewPtrMetadataRequest()
	for _, name := range all {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		ask.Topics = append(ask.Topics, t)
	}
	resp, err := ask.RequestWith(ctx, i.client)
	if err != nil {
		return Internal{Hidden: all}
	}
	for _, t := range resp.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case t.Topic == nil || err == kerr.UnknownTopicOrPartition:
		case err == kerr.TopicAuthorizationFailed:
			out.Hidden = append(out.Hidden, *t.Topic)
		default:
			out.There = append(out.There, *t.Topic)
		}
	}
	return out
}

// down are brokers that the cluster knows and takes for dead. Clusters before DescribeCluster 2 do not tell of them.
func (i *Inspector) down(ctx context.Context, up []Broker) (out []Broker) {
	ask := kmsg.NewPtrDescribeClusterRequest()
	ask.IncludeFencedBrokers = true
	resp, err := ask.RequestWith(ctx, i.client)
	if err != nil {
		return nil
	}
	for _, b := range resp.Brokers {
		if !slices.ContainsFunc(up, func(u Broker) bool { return u.ID == b.NodeID }) {
			out = append(out, Broker{ID: b.NodeID, Addr: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))})
		}
	}
	return out
}
