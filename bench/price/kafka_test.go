package price

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"gopherlog/bench/load"
)

// root may do everything.
func (g *guarded) root(t *testing.T) *kadm.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(g.sasl), kgo.SASL(plain.Auth{User: "root", Pass: "root-secret"}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return kadm.NewClient(c)
}

// allowAda grants rights on names under the prefix.
func allowAda(t *testing.T, root *kadm.Client, acl *kadm.ACLBuilder) {
	t.Helper()
	answers, err := root.CreateACLs(t.Context(), acl.Allow("User:ada").AllowHosts("*").ResourcePatternType(kadm.ACLPatternPrefixed))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
}

// One node of Apache Kafka is asked everything: it takes seconds to start.
func TestApacheKafkaWithAnAuthorizerNamesEachRightUntilAllAreThere(t *testing.T) {
	g := startGuarded(t)
	root, ada := g.root(t), g.as(t, "PLAIN", "ada", "ada-secret")
	o := options(g.sasl)
	o.Workers = 1
	check := func(want string) *Report {
		t.Helper()
		facts, err := ada.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewPlan(o, facts)
		if err != nil {
			t.Fatal(err)
		}
		var r *Report
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) { // ACLs reach the broker a little after they were made
			if r, err = p.Check(t.Context(), ada, time.Now(), false); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(rightsIn(r.Missing)) == want || time.Now().After(end) {
				break
			}
		}
		if fmt.Sprint(rightsIn(r.Missing)) != want {
			t.Fatalf("missing are %v, want %s; notes %v", rightsIn(r.Missing), want, r.Notes)
		}
		return r
	}
	check("[Create on Topic mqbench-price-* Delete on Topic mqbench-price-* IdempotentWrite on the Cluster Write on TransactionalId mqbench-price-*]")
	allowAda(t, root, kadm.NewACLs().Topics(DefaultPrefix).Operations(kadm.OpCreate, kadm.OpDescribe, kadm.OpWrite, kadm.OpRead))
	if r := check("[Delete on Topic mqbench-price-* Write on TransactionalId mqbench-price-* Read on Group mqbench-price-*]"); !strings.HasSuffix(r.Left, "-try") {
		t.Errorf("what could not be removed is not named: %+v", r)
	}
	allowAda(t, root, kadm.NewACLs().Topics(DefaultPrefix).Operations(kadm.OpDelete))
	check("[Write on TransactionalId mqbench-price-* Read on Group mqbench-price-*]")
	allowAda(t, root, kadm.NewACLs().Groups(DefaultPrefix).Operations(kadm.OpRead))
	check("[Write on TransactionalId mqbench-price-* Delete on Group mqbench-price-*]")
	allowAda(t, root, kadm.NewACLs().Groups(DefaultPrefix).Operations(kadm.OpDelete).TransactionalIDs(DefaultPrefix).Operations(kadm.OpWrite, kadm.OpDescribe, kadm.OpDelete, kadm.OpRead))
	if r := check("[]"); len(r.Untried) != 0 || len(r.Notes) != 1 { // the settings may not be read
		t.Errorf("%+v", r)
	}
	cleaned(t, ada)
	proves(t, g, root)
}

// cleaned removes what the tries could not, and finds nothing more.
func cleaned(t *testing.T, i *load.Inspector) {
	t.Helper()
	ours := NamesUnder(DefaultPrefix, "").Ours
	l, err := i.Find(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Remove(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if l, err = i.Find(t.Context(), ours); err != nil || l.Removable() {
		t.Errorf("left are %v, %v", l.List(), err)
	}
}

// proves comes in every way that the node takes, and in some that it does not.
func proves(t *testing.T, g *guarded, root *kadm.Client) {
	t.Helper()
	made, err := root.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "bob", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "bob-secret"},
		{User: "eve", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "bob-secret"}})
	if err != nil || made.Error() != nil {
		t.Fatal(err, made.Error())
	}
	for _, x := range []struct {
		addr string
		s    *load.Security
		want string // in the explanation; "": it is let in
	}{
		{g.sasl, &load.Security{Mechanism: "SCRAM-SHA-256", User: "bob", Password: "bob-secret"}, ""},
		{g.sasl, &load.Security{Mechanism: "SCRAM-SHA-512", User: "eve", Password: "bob-secret"}, ""},
		{g.ssl, &load.Security{TLS: g.tls}, ""},
		{g.sasl, &load.Security{Mechanism: "SCRAM-SHA-512", User: "eve", Password: "wrong"}, "-password-file"},
		{g.sasl, &load.Security{Mechanism: "PLAIN", User: "ada", Password: "wrong"}, "-password-file"},
		{g.sasl, nil, "-sasl"},
		{g.ssl, &load.Security{TLS: &tls.Config{}}, "-ca"},
	} {
		for tries := 0; ; tries++ { // a new user reaches the broker a little after it was made
			_, err := inspect(t, x.addr, x.s).Facts(t.Context())
			if (err == nil) == (x.want == "") && (err == nil || strings.Contains(Explain(err, []string{x.addr}, x.s).Error(), x.want)) {
				break
			}
			if tries > 50 {
				t.Errorf("%v at %s: %v", x.s, x.addr, err)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	if _, err := inspect(t, g.ssl, &load.Security{TLS: &tls.Config{RootCAs: g.tls.RootCAs}}).Facts(t.Context()); err == nil {
		t.Error("a client without a certificate was let in")
	}
}
