package price

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gopherlog/bench/load"
)

func TestEveryReasonForSilenceNamesWhatChangesIt(t *testing.T) {
	secure := &load.Security{TLS: &tls.Config{}, Mechanism: "PLAIN", User: "ada", Password: "hush"}
	for _, x := range []struct {
		err  error
		want string
	}{
		{kerr.SaslAuthenticationFailed, "-password-file"},
		{kerr.UnsupportedSaslMechanism, "-sasl"},
		{x509.UnknownAuthorityError{}, "-ca"},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, "-brokers"},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "leave out -tls"},
		{context.DeadlineExceeded, "TLS"},
		{errors.New("connection refused"), "no broker of a:1, b:2 answers"},
	} {
		got := Explain(fmt.Errorf("dial: %w", x.err), []string{"a:1", "b:2"}, secure).Error()
		if !strings.Contains(got, x.want) || strings.Contains(got, "hush") {
			t.Errorf("%v: %s", x.err, got)
		}
	}
}

func TestAPortThatDoesNotTakeSASLIsTakenForOne(t *testing.T) {
	if got := Explain(fmt.Errorf("read: %w", io.EOF), []string{"a:1"}, &load.Security{Mechanism: "PLAIN", User: "ada"}).Error(); !strings.Contains(got, "leave out -sasl") {
		t.Error(got)
	}
	if got := Explain(io.EOF, []string{"a:1"}, nil).Error(); !strings.Contains(got, "no broker of a:1 answers") {
		t.Error(got)
	}
}

func TestBrokersOutOfReachAreNamedWithTheAddressThatTheyAdvertise(t *testing.T) {
	f := load.Facts{Brokers: []load.Broker{{ID: 1, Addr: "a:1"}, {ID: 2, Addr: "inside:9092", Unreachable: errors.New("no such host")}}}
	if got := Unreachable(f); !strings.Contains(got, "broker 2 advertises inside:9092") || strings.Contains(got, "broker 1") {
		t.Error(got)
	}
}

func TestLeftoversTellTheirAge(t *testing.T) {
	now := time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)
	n := NamesUnder(DefaultPrefix, "")
	for name, want := range map[string]string{
		"mqbench-price-ab2c-20261130-065930.000-try": "30 seconds", "mqbench-price-ab2c-20261130-064000.000-try": "20 minutes",
		"mqbench-price-ab2c-20261129-230000.000-try": "8 hours", "mqbench-price-ab2c-20261120-070000.000-try": "10 days",
	} {
		if got := n.Describe(name, now); !strings.HasSuffix(got, "begun "+want+" ago") {
			t.Error(got)
		}
	}
}

func TestOneAddressThatAnswersIsEnough(t *testing.T) {
	refused := errors.New("connection refused")
	for _, x := range []struct {
		all  []load.Greeting
		want string // of the notes or the error
		ok   bool
	}{
		{[]load.Greeting{{Addr: "a:1", ClusterID: "x"}, {Addr: "b:1", ClusterID: "x"}}, "", true},
		{[]load.Greeting{{Addr: "a:1"}, {Addr: "b:1", ClusterID: "x"}}, "", true},
		{[]load.Greeting{{Addr: "a:1", Err: refused}, {Addr: "b:1", ClusterID: "x"}}, "a:1 of -brokers cannot be reached: connection refused", true},
		{[]load.Greeting{{Addr: "a:1", Err: x509.UnknownAuthorityError{}}, {Addr: "b:1", ClusterID: "x"}}, "a:1 of -brokers cannot be reached: the broker's certificate is signed by nobody", true},
		{[]load.Greeting{{Addr: "a:1", Err: refused}}, "no broker of a:1 answers: connection refused", false},
		{[]load.Greeting{{Addr: "a:1", Err: refused}, {Addr: "b:1", Err: errors.New("no such host")}}, "no broker of a:1, b:1 answers: a:1: connection refused; b:1: no such host", false},
		{[]load.Greeting{{Addr: "a:1", ClusterID: "x"}, {Addr: "b:1", Err: refused}, {Addr: "c:1", ClusterID: "y"}}, "a:1 belongs to cluster x, and c:1 to cluster y", false},
	} {
		w, err := Greeted(x.all, nil)
		got := strings.Join(w.Notes, "\n")
		if err != nil {
			got = err.Error()
		}
		if (err == nil) != x.ok || !strings.Contains(got, x.want) || x.ok && len(w.Answered)+len(w.Silent) != len(x.all) || strings.Contains(got, "\n") {
			t.Errorf("%v: %+v, %v", x.all, w, err)
		}
	}
}
