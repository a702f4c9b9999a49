package price

import (
	"cmp"
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
	if what := remedy(err, s); what != "" {
		return fmt.Errorf("%s (%w)", what, err)
	}
	return fmt.Errorf("no broker of %s answers: %w", strings.Join(brokers, ", "), err)
}

// remedy says what would change that a broker cannot be talked to; "" where the error itself says all.
func remedy(err error, s *load.Security) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var header tls.RecordHeaderError
	switch {
	case load.BadCredentials(err):
		return "the cluster knows no such user with such a password: check -user, and -password-file or " + PasswordVar
	case load.WrongMechanism(err):
		return fmt.Sprintf("the cluster does not take SASL %s: choose another of %s with -sasl", s.Mechanism, strings.Join(load.Mechanisms, ", "))
	case errors.As(err, &authority):
		return "the broker's certificate is signed by nobody that this machine trusts: name the authority's certificate with -ca"
	case errors.As(err, &host):
		return "the broker's certificate is for another name than its address: use the name in -brokers that the certificate has"
	case errors.As(err, &header):
		return "the broker does not speak TLS on this port: leave out -tls, or use its TLS port"
	case s != nil && s.TLS != nil && errors.Is(err, context.DeadlineExceeded):
		return "no broker finished a TLS handshake: one that does not speak TLS on this port may never answer; leave out -tls, or use its TLS port"
	case s != nil && s.TLS != nil && load.HungUp(err):
		return fmt.Sprintf("the broker hung up on a client that came in %s: this port may not speak TLS (leave out -tls, or use its TLS port), or it wants -sasl or a certificate (-cert, -key)", s)
	case s != nil && s.Mechanism != "" && (load.HungUp(err) || errors.Is(err, io.EOF)):
		return fmt.Sprintf("the broker hung up on a client that came in %s: this port may not take SASL (leave out -sasl, or use its SASL port), or it wants -tls", s)
	case load.HungUp(err):
		return fmt.Sprintf("the broker hung up on a client that came in %s: it may want -tls, -sasl, or a certificate (-cert, -key)", s)
	}
	return ""
}

// A Welcome is what the addresses of -brokers answered, taken together: one that answers is enough.
type Welcome struct {
	Answered []string
	Silent   []string // the others
	Notes    []string // why, a sentence for each
}

// Greeted judges what the addresses answered. It fails where none did, and where they belong to different clusters.
func Greeted(all []load.Greeting, s *load.Security) (Welcome, error) {
	var w Welcome
	var first load.Greeting // whose cluster is known
	var errs []error
	var asked []string
	for _, g := range all {
		asked = append(asked, g.Addr)
		if g.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", g.Addr, g.Err))
			w.Silent = append(w.Silent, g.Addr)
			w.Notes = append(w.Notes, fmt.Sprintf("%s of -brokers cannot be reached: %s", g.Addr, cmp.Or(remedy(g.Err, s), g.Err.Error())))
			continue
		}
		w.Answered = append(w.Answered, g.Addr)
		switch {
		case g.ClusterID == "":
		case first.ClusterID == "":
			first = g
		case g.ClusterID != first.ClusterID:
			return w, fmt.Errorf("%w: %s belongs to cluster %s, and %s to cluster %s: name brokers of one cluster", ErrTwoClusters, first.Addr, first.ClusterID, g.Addr, g.ClusterID)
		}
	}
	switch {
	case len(w.Answered) > 0:
		return w, nil
	case len(errs) == 1:
		return w, Explain(all[0].Err, asked, s)
	}
	return w, Explain(&together{errs}, asked, s)
}

// ErrTwoClusters says that -brokers names brokers of more than one cluster.
var ErrTwoClusters = errors.New("these are not brokers of one cluster")

// together is several errors in one line.
type together struct{ errs []error }

func (t *together) Error() string {
	var out []string
	for _, err := range t.errs {
		out = append(out, err.Error())
	}
	return strings.Join(out, "; ")
}

func (t *together) Unwrap() []error { return t.errs }

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
