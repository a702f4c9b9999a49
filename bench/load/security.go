package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Mechanisms are the ways in which a client can prove who it is.
var Mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

// Security says how clients know the cluster and how they prove who they are. The zero value, and nil, is plain text without a name.
type Security struct {
	TLS       *tls.Config // nil: not encrypted. The server's name is taken from each broker's address where it is empty
	Mechanism string      // one of Mechanisms; "": nobody proves anything
	User      string
	Password  Secret
}

// A Secret is never printed: whatever formats, logs or encodes it gets stars.
type Secret string

const stars = "********"

// String returns stars.
func (Secret) String() string { return stars }

// GoString returns stars.
func (Secret) GoString() string { return stars }

// LogValue returns stars.
func (Secret) LogValue() slog.Value { return slog.StringValue(stars) }

// MarshalText returns stars.
func (Secret) MarshalText() ([]byte, error) { return []byte(stars), nil }

// Validate lists everything that is wrong at once.
func (s *Security) Validate() error {
	if s == nil {
		return nil
	}
	var errs []error
	switch {
	case s.Mechanism == "":
		if s.User != "" || s.Password != "" {
			errs = append(errs, fmt.Errorf("a user or a password is given, and no SASL mechanism: choose one of %s", strings.Join(Mechanisms, ", ")))
		}
		return errors.Join(errs...)
	case !slices.Contains(Mechanisms, s.Mechanism):
		errs = append(errs, fmt.Errorf("SASL mechanism %q is not one of %s", s.Mechanism, strings.Join(Mechanisms, ", ")))
	}
	if s.User == "" {
		errs = append(errs, fmt.Errorf("SASL %s needs a user", s.Mechanism))
	}
	if s.Password == "" {
		errs = append(errs, fmt.Errorf("SASL %s needs a password", s.Mechanism))
	}
	return errors.Join(errs...)
}

// Principal is the name that the cluster's ACLs know the client by, as far as a client can tell: "" where a certificate says it. Kafka calls
// who proves nothing ANONYMOUS.
func (s *Security) Principal() string {
	switch {
	case s != nil && s.Mechanism != "":
		return "User:" + s.User
	case s != nil && s.TLS != nil && len(s.TLS.Certificates) > 0:
		return ""
	}
	return "User:ANONYMOUS"
}

// String says in words how clients connect; it holds no secret.
func (s *Security) String() string {
	way, who := "plain text", "unauthenticated"
	if s != nil && s.TLS != nil {
		way = "TLS"
		if len(s.TLS.Certificates) > 0 {
			who = "with a certificate"
		}
	}
	if s != nil && s.Mechanism != "" {
		who = fmt.Sprintf("%s as %s", s.Mechanism, s.User)
	}
	return way + ", " + who
}

// options are what a client is told.
func (s *Security) options() []kgo.Opt {
	var opts []kgo.Opt
	if s == nil {
		return nil
	}
	if s.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(s.TLS))
	}
	switch s.Mechanism {
	case "PLAIN":
		opts = append(opts, kgo.SASL(plain.Auth{User: s.User, Pass: string(s.Password)}.AsMechanism()))
	case "SCRAM-SHA-256":
		opts = append(opts, kgo.SASL(scram.Auth{User: s.User, Pass: string(s.Password)}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		opts = append(opts, kgo.SASL(scram.Auth{User: s.User, Pass: string(s.Password)}.AsSha512Mechanism()))
	}
	return opts
}
