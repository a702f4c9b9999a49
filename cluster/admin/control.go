package admin

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"gopherlog/engine/failpoint"
)

const (
	minToken       = 8       // characters; shorter ones are guessed
	maxControlBody = 4 << 10 // bytes of a request
)

// ControlConfig is what the test-control port is made of. All fields but Logger are required: the port exists for tests,
// and a node that was not asked for it by flag never makes one.
type ControlConfig struct {
	// Listener must be bound to a loopback address.
	Listener net.Listener
	// Token must be presented by every request.
	Token      string
	Failpoints *failpoint.Set
	// Voted tells what this node applied of transactions that commit by vote, as JSON; nil: nothing.
	Voted  func() any
	Logger *slog.Logger
}

// sabotagePrefix begins the names of the sabotage switches; requests leave it out.
const sabotagePrefix = "sabotage/"

// NewControl returns the server of the test-control port, or why it must not exist.
//
//	GET  /failpoint              all points, what is armed, and the hits since anything was armed
//	POST /failpoint {"name": "log/sync", "action": "error nth=3"}    "off" disarms, "release" lets blocked passes go on
//	GET  /voted                  what this node applied of transactions that commit by vote
//	POST /sabotage  {"name": "skip-dedupe", "on": true, "arg": 5000}
//
// Every request carries "Authorization: Bearer TOKEN".
func NewControl(cfg ControlConfig) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &control{set: cfg.Failpoints, log: cfg.Logger}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /failpoint", c.list)
	mux.HandleFunc("POST /failpoint", c.arm)
	mux.HandleFunc("POST /sabotage", c.sabotage)
	if cfg.Voted != nil {
		mux.HandleFunc("GET /voted", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, cfg.Voted()) })
	}
	return newServer(cfg.Listener, guard(cfg.Token, mux), cfg.Logger), nil
}

func (cfg *ControlConfig) validate() error {
	var errs []error
	if tcp, ok := cfg.Listener.(interface{ Addr() net.Addr }); !ok || tcp == nil {
		errs = append(errs, errors.New("admin: control port without a listener"))
	} else if !loopback(tcp.Addr()) {
		errs = append(errs, fmt.Errorf("admin: the control port plants faults and listens on loopback addresses only, not on %v", tcp.Addr()))
	}
	if len(cfg.Token) < minToken {
		errs = append(errs, fmt.Errorf("admin: the control port needs a token of at least %d characters", minToken))
	}
	if cfg.Failpoints == nil {
		errs = append(errs, errors.New("admin: control port without failpoints"))
	}
	return errors.Join(errs...)
}

func loopback(a net.Addr) bool {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// guard lets a request through that presents the token.
func guard(token string, next http.Handler) http.Handler {
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			refuse(w, http.StatusUnauthorized, errors.New("no or wrong token"))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxControlBody)
		next.ServeHTTP(w, r)
	})
}

type control struct {
	set *failpoint.Set
	log *slog.Logger
}

type pointState struct {
	Name     failpoint.Name `json:"name"`
	What     string         `json:"what"`
	Armed    string         `json:"armed,omitempty"`
	Hits     int64          `json:"hits"`
	Sabotage *int64         `json:"sabotage_arg,omitempty"`
}

func (c *control) list(w http.ResponseWriter, _ *http.Request) {
	armed, sabotaged := c.set.Armed(), c.set.Sabotaged()
	states := []pointState{}
	for _, name := range failpoint.Names() {
		s := pointState{Name: name, What: failpoint.What(name), Hits: c.set.Hits(name)}
		if a, ok := armed[name]; ok {
			s.Armed = a.Kind.String()
		}
		if arg, ok := sabotaged[name]; ok {
			s.Sabotage = &arg
		}
		states = append(states, s)
	}
	writeJSON(w, http.StatusOK, states)
}

func (c *control) arm(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Name   failpoint.Name `json:"name"`
		Action string         `json:"action"`
	}
	if !read(w, r, &req) {
		return
	}
	switch req.Action {
	case "off":
		c.set.Disarm(req.Name)
	case "release":
		c.set.Release(req.Name)
	default:
		action, err := failpoint.ParseAction(req.Action)
		if err == nil {
			err = c.set.Arm(req.Name, action)
		}
		if err != nil {
			refuse(w, statusOf(err), err)
			return
		}
	}
	c.log.Warn("failpoint changed", "name", req.Name, "action", req.Action)
	writeJSON(w, http.StatusOK, map[string]any{"name": req.Name, "action": req.Action})
}

func (c *control) sabotage(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Name string `json:"name"`
		On   bool   `json:"on"`
		Arg  int64  `json:"arg"`
	}
	if !read(w, r, &req) {
		return
	}
	name := failpoint.Name(sabotagePrefix + strings.TrimPrefix(req.Name, sabotagePrefix))
	if err := c.set.SetSabotage(name, req.On, req.Arg); err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	c.log.Warn("sabotage switch changed", "name", name, "on", req.On, "argument", req.Arg)
	writeJSON(w, http.StatusOK, req)
}

func read(w http.ResponseWriter, r *http.Request, v any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("body: %w", err))
		return false
	}
	return true
}

func statusOf(err error) int {
	if errors.Is(err, failpoint.ErrUnknown) {
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}

func refuse(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]string{"error": err.Error()})
}
