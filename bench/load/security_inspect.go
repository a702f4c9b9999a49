package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Limits of an inspector. It talks with a cluster that is expected to be well: what does not answer within them is told, not waited for.
const (
	inspectDial     = 3 * time.Second
	inspectOverhead = 5 * time.Second
	inspectRetries  = 4
	inspectPatience = 10 * time.Second // for one question
)

// VotedPrefixKey is the broker setting by which a broker tells that it serves voted transactions, and for which transactional ids.
const VotedPrefixKey = "transaction.voted.prefix"

// An Inspector asks a running cluster what it is, tries what its user may do, and finds and removes what earlier runs left. It sends no
// load. Its methods may be called from any goroutine.
type Inspector struct {
	cfg    KafkaConfig
	client *kgo.Client
	admin  *kadm.Client
}

// NewInspector does not connect before it is used.
func NewInspector(cfg KafkaConfig) (*Inspector, error) {
	if len(cfg.Bootstrap) == 0 {
		return nil, errors.New("load: no bootstrap address")
	}
	i := &Inspector{cfg: cfg}
	c, err := kgo.NewClient(i.options("mqbench-inspector")...)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	i.client, i.admin = c, kadm.NewClient(c)
	return i, nil
}

func (i *Inspector) options(id string, more ...kgo.Opt) []kgo.Opt {
	return slices.Concat([]kgo.Opt{
		kgo.SeedBrokers(i.cfg.Bootstrap...),
		kgo.ClientID(id),
		kgo.DialTimeout(inspectDial),
		kgo.RequestTimeoutOverhead(inspectOverhead),
		kgo.RequestRetries(inspectRetries),
		kgo.RetryTimeout(inspectPatience),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.RetryBackoffFn(backoff),
		kgo.DisableClientMetrics(),
	}, i.cfg.Security.options(), more)
}

// Close ends every connection.
func (i *Inspector) Close() { i.client.Close() }

// A Broker is one node as the cluster advertises it.
type Broker struct {
	ID          int32
	Addr        string
	Rack        string
	Unreachable error // from here; nil: it answered
}

// Facts are what a cluster tells of itself.
type Facts struct {
	ClusterID   string
	Brokers     []Broker // in order of their ids
	Down        []Broker // the cluster knows them and takes them for dead
	Resembles   string   // the Kafka version whose APIs are answered; "" where it cannot be told
	VotedPrefix string   // transactional ids that begin with it commit by vote; "" where the cluster serves no such transactions
	Internal    Internal
}

// Facts connects, asks, and knocks at every broker under the address that it advertises. An error means that the cluster did not answer
// at all.
func (i *Inspector) Facts(ctx context.Context) (Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*inspectPatience)
	defer cancel()
	if err := i.client.Ping(ctx); err != nil {
		return Facts{}, err
	}
	meta, err := i.admin.BrokerMetadata(ctx)
	if err != nil {
		return Facts{}, err
	}
	f := Facts{ClusterID: meta.Cluster}
	for _, b := range meta.Brokers {
		at := Broker{ID: b.NodeID, Addr: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))}
		if b.Rack != nil {
			at.Rack = *b.Rack
		}
		f.Brokers = append(f.Brokers, at)
	}
	slices.SortFunc(f.Brokers, func(a, b Broker) int { return cmp.Compare(a.ID, b.ID) })
	i.knock(ctx, &f)
	f.VotedPrefix = i.votedPrefix(ctx, f.Brokers)
	f.Down, f.Internal = i.down(ctx, f.Brokers), i.internal(ctx)
	return f, nil
}

// knock asks every broker for its versions, all at once.
func (i *Inspector) knock(ctx context.Context, f *Facts) {
	var wg sync.WaitGroup
	guesses := make([]string, len(f.Brokers))
	for n := range f.Brokers {
		wg.Go(func() {
			ask := kmsg.NewPtrApiVersionsRequest()
			ask.ClientSoftwareName, ask.ClientSoftwareVersion = "mqbench", "1" // brokers refuse to tell a client without a name
			answer, err := i.client.Broker(int(f.Brokers[n].ID)).Request(ctx, ask)
			if f.Brokers[n].Unreachable = err; err == nil {
				guesses[n] = guessOf(answer.(*kmsg.ApiVersionsResponse))
			}
		})
	}
	wg.Wait()
	for _, g := range guesses {
		f.Resembles = cmp.Or(f.Resembles, g)
	}
}

// votedPrefix asks one broker for the setting. Who may not ask, or asks a broker that has no such setting, gets "".
func (i *Inspector) votedPrefix(ctx context.Context, brokers []Broker) string {
	for _, b := range brokers {
		if b.Unreachable != nil {
			continue
		}
		configs, err := i.admin.DescribeBrokerConfigs(ctx, b.ID)
		if err != nil {
			return ""
		}
		for _, c := range configs {
			for _, kv := range c.Configs {
				if kv.Key == VotedPrefixKey {
					return kv.MaybeValue()
				}
			}
		}
		return ""
	}
	return ""
}

// DeniedResource is the kind of resource that an answer refused for want of a right, in the words of Kafka's ACLs: Topic, Group, Cluster
// or TransactionalId; "" where the error says no such thing.
func DeniedResource(err error) string {
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return "Topic"
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return "Group"
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return "Cluster"
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return "TransactionalId"
	}
	return ""
}

// BadCredentials says whether the cluster refused the user or the password.
func BadCredentials(err error) bool {
	return errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.IllegalSaslState)
}

// WrongMechanism says whether the cluster does not speak the SASL mechanism.
func WrongMechanism(err error) bool { return errors.Is(err, kerr.UnsupportedSaslMechanism) }

// guessOf names the Kafka version whose APIs a broker offers; "" where it is like none of them.
func guessOf(r *kmsg.ApiVersionsResponse) string {
	guess := kversion.FromApiVersionsResponse(r).VersionGuess()
	if !strings.HasPrefix(guess, "v") && !strings.HasPrefix(guess, "at least ") {
		return ""
	}
	return guess
}

// HungUp says whether brokers closed the connection at the first request, as they do to clients that come without the TLS or the SASL
// that they want.
func HungUp(err error) bool {
	var e *kgo.ErrFirstReadEOF
	return errors.As(err, &e)
}
