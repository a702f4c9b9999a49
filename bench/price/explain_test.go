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
