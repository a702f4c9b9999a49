package partition

import "github.com/prometheus/client_golang/prometheus"

// DescribeMetrics registers what a Manager registers, without one: for documentation.
func DescribeMetrics(r prometheus.Registerer) error {
	return r.Register(collector{&Manager{shared: shared{timings: newTimings()}}})
}
