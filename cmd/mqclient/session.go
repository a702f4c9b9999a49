package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"gopherlog/cmd/internal/cli"
)

// session is what every command gets: where the cluster is and where to write.
type session struct {
	ctx     context.Context
	addr    []string
	timeout time.Duration
	json    bool
	in      io.Reader
	out     io.Writer
	errs    io.Writer
	client  *kgo.Client // what admin's client speaks through, once there is one
}

// addresses lets ":9092", which a server binds, mean this machine, and a host alone its port 9092. It refuses what is no address.
func addresses(list []string) ([]string, error) {
	if len(list) == 0 {
		list = []string{""}
	}
	var out []string
	for _, a := range list {
		if a != "" && !strings.Contains(a, ":") {
			a = net.JoinHostPort(a, "9092")
		}
		if strings.HasPrefix(a, ":") {
			a = "localhost" + a
		}
		if err := checkAddress("-addr", a); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func checkAddress(flag, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
		return cli.Usage(fmt.Errorf("%s is %q: give HOST:PORT, or several with commas between them", flag, addr))
	}
	return nil
}

// connect returns a client of which some node has answered. Close it.
func (s *session) connect(opts ...kgo.Opt) (*kgo.Client, error) {
	all := append([]kgo.Opt{
		kgo.SeedBrokers(s.addr...), kgo.ClientID("mqclient"),
		kgo.RetryTimeout(s.timeout), kgo.DialTimeout(min(s.timeout, 5*time.Second)),
		kgo.AlwaysRetryEOF(), // a node that stops or starts may close a connection before it has answered on it
	}, opts...)
	c, err := kgo.NewClient(all...)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	ctx, cancel := s.limit()
	defer cancel()
	if err := s.ping(ctx, c); err != nil {
		c.Close()
		return nil, s.unreached(err)
	}
	return c, nil
}

func (s *session) unreached(err error) error {
	return cli.Environment(fmt.Errorf("no node answers at %s: %s; is the server running, and is -addr right?", strings.Join(s.addr, ","), reason(err)))
}

// ping tries until a node answers or the time is up; a refused connection is final, a node that is starting is not.
func (s *session) ping(ctx context.Context, c *kgo.Client) error {
	for {
		err := c.Ping(ctx)
		var refused *net.OpError
		if err == nil || ctx.Err() != nil || errors.As(err, &refused) && refused.Op == "dial" {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// metadataAge is for how long what a client knows of leaders stands when they refuse it; a command has no time for the 5 s
// of the library.
const metadataAge = askAgain

func (s *session) admin() (*kadm.Client, error) {
	c, err := s.connect(kgo.MetadataMinAge(metadataAge))
	if err != nil {
		return nil, err
	}
	s.client = c
	a := kadm.NewClient(c)
	a.SetTimeoutMillis(int32(min(s.timeout.Milliseconds(), math.MaxInt32)))
	return a, nil
}

// limit bounds one exchange with the cluster.
func (s *session) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, s.timeout)
}

// reason is an error's innermost sentence.
func reason(err error) string {
	var k *kerr.Error
	var op *net.OpError
	var short *unheard
	switch {
	case errors.As(err, &short):
		return short.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout):
		return "no answer in time"
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return "UNKNOWN_TOPIC_OR_PARTITION: there is no such topic or partition"
	case errors.As(err, &k):
		return k.Message + ": " + strings.TrimSuffix(k.Description, ".")
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return err.Error()
}

// refused is an error of the cluster, with what it said.
func refused(doing string, err error, message string) error {
	if message == "" {
		message = reason(err)
	}
	return &refusal{doing + ": " + message, err}
}

// refusal has a sentence of its own, and what it is made of.
type refusal struct {
	text string
	err  error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

// print writes v as one line of JSON, or the text.
func (s *session) print(v any, format string, args ...any) error {
	if !s.json {
		_, err := fmt.Fprintf(s.out, format+"\n", args...)
		return err
	}
	return s.printJSON(v)
}

func (s *session) printJSON(v any) error {
	e := json.NewEncoder(s.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
