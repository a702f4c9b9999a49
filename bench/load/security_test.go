package load

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestSecretIsNeverPrinted(t *testing.T) {
	s := Security{Mechanism: "PLAIN", User: "u", Password: "hush"}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", s.Password, "all", s)
	j, err := json.Marshal(map[string]Secret{"password": s.Password})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q", s.Password, s, s, s.Password, s.Password), s.String(), log.String(), string(j)} {
		if strings.Contains(text, "hush") {
			t.Errorf("printed as %s", text)
		}
	}
}

func TestSecurityTellsEveryMistakeAtOnce(t *testing.T) {
	for _, x := range []struct {
		s    *Security
		want []string
	}{
		{nil, nil},
		{&Security{}, nil},
		{&Security{Mechanism: "PLAIN", User: "u", Password: "p"}, nil},
		{&Security{User: "u"}, []string{"no SASL mechanism"}},
		{&Security{Mechanism: "GSSAPI"}, []string{"GSSAPI", "SCRAM-SHA-512", "needs a user", "needs a password"}},
	} {
		err := x.s.Validate()
		if (err == nil) != (x.want == nil) {
			t.Errorf("%v: %v", x.s, err)
		}
		for _, w := range x.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: %v does not say %q", x.s, err, w)
			}
		}
	}
}

// fake is a cluster that forgets everything.
func fake(t *testing.T, opts ...kfake.Opt) []string {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

func inspector(t *testing.T, addrs []string, s *Security) *Inspector {
	t.Helper()
	i, err := NewInspector(KafkaConfig{Bootstrap: addrs, Security: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

func TestClientsProveThemselvesInEachWay(t *testing.T) {
	server, client := certificates(t)
	for _, mechanism := range Mechanisms {
		t.Run(mechanism, func(t *testing.T) {
			addrs := fake(t, kfake.TLS(server), kfake.EnableSASL(), kfake.Superuser(mechanism, "ada", "hush"))
			s := &Security{TLS: client, Mechanism: mechanism, User: "ada", Password: "hush"}
			facts, err := inspector(t, addrs, s).Facts(t.Context())
			if err != nil || len(facts.Brokers) != 3 || facts.Brokers[0].Unreachable != nil || facts.VotedPrefix != "" {
				t.Fatalf("%+v, %v", facts, err)
			}
			d, err := NewKafka(KafkaConfig{Bootstrap: addrs, Security: s})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.CreateTopics(t.Context(), []TopicSpec{{Name: "load", Partitions: 2, ReplicationFactor: 1}}); err != nil {
				t.Error(err)
			}
			s = &Security{TLS: client, Mechanism: mechanism, User: "ada", Password: "wrong"}
			if _, err := inspector(t, addrs, s).Facts(t.Context()); err == nil { // the fake may hang up before its refusal is read
				t.Error("a wrong password was taken")
			}
		})
	}
}

func TestUnknownAuthorityOfABrokerIsRefused(t *testing.T) {
	server, _ := certificates(t)
	_, other := certificates(t)
	_, err := inspector(t, fake(t, kfake.TLS(server)), &Security{TLS: other}).Facts(t.Context())
	if err == nil || !strings.Contains(err.Error(), "x509") {
		t.Errorf("%v", err)
	}
}

// certificates make a server's and a client's side of one authority.
func certificates(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: pool}
}

// allow is a right on names with a prefix.
func allow(resource kmsg.ACLResourceType, prefix string, op kmsg.ACLOperation) kfake.ACL {
	return kfake.ACL{Resource: resource, Name: prefix, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: op, Allow: true}
}

var everyRight = []kfake.ACL{
	allow(kmsg.ACLResourceTypeTopic, "mine-", kmsg.ACLOperationCreate), allow(kmsg.ACLResourceTypeTopic, "mine-", kmsg.ACLOperationWrite),
	allow(kmsg.ACLResourceTypeTopic, "mine-", kmsg.ACLOperationRead), allow(kmsg.ACLResourceTypeTopic, "mine-", kmsg.ACLOperationDelete),
	allow(kmsg.ACLResourceTypeTopic, "mine-", kmsg.ACLOperationDescribeConfigs), allow(kmsg.ACLResourceTypeGroup, "mine-", kmsg.ACLOperationRead),
	allow(kmsg.ACLResourceTypeGroup, "mine-", kmsg.ACLOperationDelete), allow(kmsg.ACLResourceTypeTransactionalId, "mine-", kmsg.ACLOperationWrite),
}

// tries does everything that a run does, and tells each refusal.
func tries(t *testing.T, i *Inspector) map[string]string {
	t.Helper()
	ctx, out := t.Context(), map[string]string{}
	topic := TopicSpec{Name: "mine-t", Partitions: 1, ReplicationFactor: 1}
	for _, x := range []struct {
		name string
		try  func() error
	}{
		{"check", func() error { return i.CreateTopic(ctx, topic, true) }},
		{"create", func() error { return i.CreateTopic(ctx, topic, false) }},
		{"describe", func() error { _, err := i.DescribeTopic(ctx, "mine-t"); return err }},
		{"configs", func() error { _, err := i.TopicConfigs(ctx, "mine-t"); return err }},
		{"write", func() error { return i.Write(ctx, "mine-t") }},
		{"idempotent", func() error { return i.WriteIdempotent(ctx, "mine-t") }},
		{"read", func() error { return i.Read(ctx, "mine-t") }},
		{"transact", func() error { return i.Transact(ctx, "mine-x", "mine-t") }},
		{"group", func() error { return i.CommitOffset(ctx, "mine-g", "mine-t") }},
		{"remove group", func() error { return i.DeleteGroup(ctx, "mine-g") }},
		{"remove", func() error { return i.DeleteTopic(ctx, "mine-t") }},
	} {
		if err := x.try(); err != nil {
			resource := DeniedResource(err)
			if resource == "" {
				t.Errorf("%s: %v", x.name, err)
			}
			out[x.name] = resource
		}
	}
	return out
}

func TestEachMissingRightIsRefusedByItsResource(t *testing.T) {
	for _, x := range []struct {
		without int // index into everyRight; -1: none is missing
		want    string
	}{
		{-1, "map[]"},
		{2, "map[group:Topic read:Topic]"}, {3, "map[remove:Topic]"}, {4, "map[configs:Topic]"},
		{5, "map[group:Group]"}, {6, "map[remove group:Group]"}, {7, "map[transact:TransactionalId]"},
	} {
		rights := slices.Clone(everyRight)
		if x.without >= 0 {
			rights = slices.Delete(rights, x.without, x.without+1)
		}
		addrs := fake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "ada", "hush", rights...))
		if got := fmt.Sprint(tries(t, inspector(t, addrs, &Security{Mechanism: "PLAIN", User: "ada", Password: "hush"}))); got != x.want {
			t.Errorf("without right %d: %s, want %s", x.without, got, x.want)
		}
	}
}

func TestRightsToCreateAndToWriteAreRefusedAsTopics(t *testing.T) {
	addrs := fake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"), kfake.SeedTopics(1, "mine-t"),
		kfake.User("PLAIN", "ada", "hush", allow(kmsg.ACLResourceTypeTopic, "mine-", kmsg.ACLOperationDescribe)))
	i := inspector(t, addrs, &Security{Mechanism: "PLAIN", User: "ada", Password: "hush"})
	spec := TopicSpec{Name: "mine-u", Partitions: 1, ReplicationFactor: 1}
	for name, err := range map[string]error{"check": i.CreateTopic(t.Context(), spec, true), "create": i.CreateTopic(t.Context(), spec, false),
		"write": i.Write(t.Context(), "mine-t")} {
		if DeniedResource(err) != "Topic" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := i.WriteIdempotent(t.Context(), "mine-t"); DeniedResource(err) != "Cluster" { // Kafka grants it to who may write to some topic
		t.Errorf("idempotent: %v", err)
	}
}

func TestLeftoversAreFoundByNameAndRemoved(t *testing.T) {
	addrs := fake(t, kfake.SeedTopics(1, "mine-a", "mine-b", "theirs"))
	i := inspector(t, addrs, nil)
	ctx := t.Context()
	for _, g := range []string{"mine-g", "their-g"} {
		if err := i.CommitOffset(ctx, g, "theirs"); err != nil {
			t.Fatal(err)
		}
	}
	if err := i.Transact(ctx, "mine-idle", "theirs"); err != nil {
		t.Fatal(err)
	}
	open := openTransaction(t, addrs, "mine-open", "theirs")
	openTransaction(t, addrs, "their-open", "theirs")
	ours := func(name string) bool { return strings.HasPrefix(name, "mine-") }
	l, err := i.Find(ctx, ours)
	if err != nil || fmt.Sprint(l) != "{[mine-a mine-b] [mine-g] [mine-open] [mine-idle] []}" || !l.Removable() {
		t.Fatalf("%v, %v", l, err)
	}
	if err := i.Remove(ctx, l); err != nil {
		t.Fatal(err)
	}
	if l, err = i.Find(ctx, ours); err != nil || l.Removable() {
		t.Errorf("afterwards: %v, %v", l, err)
	}
	if l, err = i.Find(ctx, func(string) bool { return true }); err != nil || fmt.Sprint(l.List()) != "[topic theirs group their-g open transaction of their-open]" {
		t.Errorf("of others: %v, %v", l.List(), err)
	}
	if err := open.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("a transaction that was ended under its producer was committed")
	}
}

// openTransaction leaves a transaction without an outcome.
func openTransaction(t *testing.T, addrs []string, id, topic string) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return c
}
