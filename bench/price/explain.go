package price

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"gopherlog/bench/load"
)

// PasswordVar is the variable that holds the password where no file is named: a flag would show it to everybody on the machine.
const PasswordVar = "GOPHERLOG_SASL_PASSWORD"

// Explain says in a sentence why a cluster cannot be talked to, and what would change that.
func Explain(err error, brokers []string, s *load.Security) error {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var header tls.RecordHeaderError
	what := ""
	switch {
	case load.BadCredentials(err):
		what = "the cluster knows no such user with such a password: check -user, and -password-file or " + PasswordVar
	case load.WrongMechanism(err):
		what = fmt.Sprintf("the cluster does not take SASL %s: choose another of %s with -sasl", s.Mechanism, strings.Join(load.Mechanisms, ", "))
	case errors.As(err, &authority):
		what = "the broker's certificate is signed by nobody that this machine trusts: name the authority's certificate with -ca"
	case errors.As(err, &host):
		what = "the broker's certificate is for another name than its address: use the name in -brokers that the certificate has"
	case errors.As(err, &header):
		what = "the broker does not speak TLS on this port: leave out -tls, or use its TLS port"
	case s != nil && s.TLS != nil && errors.Is(err, context.DeadlineExceeded):
		what = "no broker finished a TLS handshake: one that does not speak TLS on this port may never answer; leave out -tls, or use its TLS port"
	case s != nil && s.TLS != nil && load.HungUp(err):
		what = fmt.Sprintf("the broker hung up on a client that came in %s: this port may not speak TLS (leave out -tls, or use its TLS port), or it wants -sasl or a certificate (-cert, -key)", s)
	case s != nil && s.Mechanism != "" && (load.HungUp(err) || errors.Is(err, io.EOF)):
		what = fmt.Sprintf("the broker hung up on a client that came in %s: this port may not take SASL (leave out -sasl, or use its SASL port), or it wants -tls", s)
	case load.HungUp(err):
		what = fmt.Sprintf("the broker hung up on a client that came in %s: it may want -tls, -sasl, or a certificate (-cert, -key)", s)
	}
	if what == "" {
		return fmt.Errorf("no broker of %s answers: %w", strings.Join(brokers, ", "), err)
	}
	return fmt.Errorf("%s (%w)", what, err)
}

// Unreachable says which brokers advertise addresses under which they do not answer here; "" where all answer.
func Unreachable(f load.Facts) string {
	var out []string
	for _, b := range f.Brokers {
		if b.Unreachable != nil {
			out = append(out, fmt.Sprintf("broker %d advertises %s and does not answer there: %v", b.ID, b.Addr, b.Unreachable))
		}
	}
	return strings.Join(out, "\n")
}

// Describe names a leftover and how old it is.
func (n Names) Describe(name string, now time.Time) string {
	at, ok := n.Begun(name)
	if !ok {
		return name
	}
	return fmt.Sprintf("%s, begun %s ago", name, ago(now.Sub(at)))
}

func ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f seconds", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f minutes", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f hours", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}
