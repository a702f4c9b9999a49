// Package admin serves a node's HTTP port: is it alive, is it ready and if not why, what do its metrics say. A second, guarded
// port exists for tests only.
//
// It knows HTTP, Prometheus and failpoints; it refuses to know what readiness or any metric means.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	readHeaderTimeout = 5 * time.Second
	requestTimeout    = 2 * time.Minute // pprof profiles take as long as they are asked to
	maxHeaderBytes    = 16 << 10
	maxScrapes        = 4 // at once
)

// Config is what a Server is made of. Listener is required.
type Config struct {
	Listener net.Listener
	// Ready returns the reasons why this node should get no traffic; none means ready. nil: always ready.
	Ready func() []string
	// Degraded returns what is out of order on a node that may still get traffic; nil: nothing ever is.
	Degraded func() []string
	// Gatherer of /metrics; nil: the page is absent.
	Gatherer prometheus.Gatherer
	// Status is shown as JSON by GET /status; nil: the page is absent.
	Status func() any
	// Recover is done by POST /recover, which answers how many replicas it changed; nil: the page is absent.
	Recover func() (int, error)
	// Pprof adds /debug/pprof/.
	Pprof  bool
	Logger *slog.Logger // nil: silent
}

// Server is a running HTTP port.
type Server struct {
	listener net.Listener
	http     *http.Server
	log      *slog.Logger
	wg       sync.WaitGroup
}

// New prepares a server; it answers nothing before Start.
func New(cfg Config) *Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", readyz(cfg.Ready, cfg.Degraded))
	if cfg.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError}))
	}
	if cfg.Status != nil {
		mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, cfg.Status()) })
	}
	if cfg.Recover != nil {
		mux.HandleFunc("POST /recover", recovery(cfg.Recover))
	}
	if cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return newServer(cfg.Listener, mux, cfg.Logger)
}

func newServer(l net.Listener, h http.Handler, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Server{listener: l, log: log, http: &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// Start begins to answer.
func (s *Server) Start() {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("HTTP port stopped", "address", s.listener.Addr(), "error", err)
		}
	}()
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close lets answers under way finish until ctx ends, drops the rest and ends every goroutine.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	s.listener.Close()
	s.wg.Wait()
	return err
}

// readyz answers 200 or 503 and lists the reasons, and what is out of order either way.
func readyz(ready, degraded func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		reasons := []string{}
		if ready != nil {
			reasons = append(reasons, ready()...)
		}
		status := http.StatusOK
		if len(reasons) > 0 {
			status = http.StatusServiceUnavailable
		}
		answer := map[string]any{"ready": len(reasons) == 0, "reasons": reasons}
		if degraded != nil {
			if what := degraded(); len(what) > 0 {
				answer["degraded"] = what
			}
		}
		writeJSON(w, status, answer)
	}
}

// recovery answers how many replicas were changed, and why not more.
func recovery(do func() (int, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		n, err := do()
		status, answer := http.StatusOK, map[string]any{"replicas": n}
		if err != nil {
			status = http.StatusInternalServerError
			answer["error"] = err.Error()
		}
		writeJSON(w, status, answer)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
