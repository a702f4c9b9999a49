package broker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/engine/wire"
)

// metrics of the client side. Per API everything is looked up once, so that a request touches no map.
type metrics struct {
	requests *prometheus.CounterVec
	errors   *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	batches  *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	parked   prometheus.GaugeFunc
	wire     []prometheus.Collector

	byAPI              [maxKey + 1]apiMetrics
	bytesIn, bytesOut  prometheus.Counter
	batchesIn, refused prometheus.Counter
}

type apiMetrics struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

func newMetrics(b *Broker) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gopherlog_requests_total",
			Help: "Kafka requests answered, by API."}, []string{"api"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gopherlog_request_errors_total",
			Help: "Error codes answered, by API and Kafka's name of the code; a request may carry several."}, []string{"api", "error"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gopherlog_request_seconds",
			Help:    "Time from a request's last byte to its answer, time parked included, by API.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18)}, []string{"api"}),
		batches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gopherlog_produce_batches_total",
			Help: "Record batches produced by clients, by outcome."}, []string{"outcome"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gopherlog_record_bytes_total",
			Help: "Bytes of record batches as stored: in (appended for clients) and out (fetched)."}, []string{"direction"}),
		parked: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gopherlog_parked_fetches",
			Help: "Fetches that wait for records."}, func() float64 { return float64(b.parked.count.Load()) }),
	}
	m.batchesIn, m.refused = m.batches.WithLabelValues("appended"), m.batches.WithLabelValues("refused")
	m.bytesIn, m.bytesOut = m.bytes.WithLabelValues("in"), m.bytes.WithLabelValues("out")
	for _, a := range registry() {
		m.byAPI[a.key] = apiMetrics{requests: m.requests.WithLabelValues(a.name), seconds: m.seconds.WithLabelValues(a.name)}
	}
	m.wire = wireMetrics(b)
	return m
}

// wireMetrics read the counters of the connections when they are scraped.
func wireMetrics(b *Broker) []prometheus.Collector {
	counter := func(name, help string, get func() int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(get()) })
	}
	gauge := func(name, help string, get func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(get()) })
	}
	s := b.server
	return []prometheus.Collector{
		gauge("gopherlog_connections", "Client connections open.", func() int64 { return int64(s.Stats().Conns) }),
		counter("gopherlog_connections_accepted_total", "Client connections accepted.", func() int64 { return s.Stats().Accepted }),
		counter("gopherlog_connections_refused_total", "Client connections closed because there were too many.", func() int64 { return s.Stats().Refused }),
		counter("gopherlog_bad_frames_total", "Client connections closed for bytes that are no acceptable request.", func() int64 { return s.Stats().BadFrames }),
		counter("gopherlog_connections_overdue_total", "Client connections closed at the frame, write or idle deadline.", func() int64 { return s.Stats().Overdue }),
		counter("gopherlog_sent_bytes_total", "Bytes of responses sent to clients.", func() int64 { return s.Stats().BytesOut }),
		gauge("gopherlog_request_buffer_bytes", "Memory of request buffers in use, by capacity.", func() int64 { return s.Stats().InflightBytes }),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range append([]prometheus.Collector{m.requests, m.errors, m.seconds, m.batches, m.bytes, m.parked}, m.wire...) {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// observe counts an answered request.
func (b *Broker) observe(a *api, start time.Time) {
	m := &b.metrics.byAPI[a.key]
	m.requests.Inc()
	m.seconds.Observe(b.cfg.Now().Sub(start).Seconds())
}

// count counts an error code and returns it.
func (b *Broker) count(a *api, code int16) int16 {
	if code != codeNone {
		b.metrics.errors.WithLabelValues(a.name, nameOf(code)).Inc()
	}
	return code
}

// DescribeMetrics registers what a Broker registers, without one: for documentation.
func DescribeMetrics(r prometheus.Registerer) error {
	return newMetrics(&Broker{server: wire.New(wire.Config{})}).register(r)
}
