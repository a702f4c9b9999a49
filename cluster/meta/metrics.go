package meta

import "github.com/prometheus/client_golang/prometheus"

// collectors are the controller's metrics; all are read when they are asked for.
func (c *Controller) collectors() []prometheus.Collector {
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gopherlog_" + name, Help: help}, read)
	}
	return []prometheus.Collector{
		gauge("control_epoch", "Control group index of the newest image on this node.", func() float64 { return float64(c.Image().Epoch) }),
		gauge("control_leader", "1 if this node leads the control group.", func() float64 {
			if ctl := c.controlGroup(); ctl != nil && ctl.IsLeader() {
				return 1
			}
			return 0
		}),
		gauge("control_registered", "1 once this process's registration shows in its own image.", func() float64 {
			if c.registered(c.Image()) {
				return 1
			}
			return 0
		}),
		gauge("brokers", "Brokers that ever registered.", func() float64 { return float64(len(c.Image().Brokers)) }),
		gauge("topics", "Topics in the image, internal ones included.", func() float64 { return float64(len(c.Image().Topics)) }),
		gauge("leader_updates_pending", "Words of this node's partition leaders that the image does not show yet.", func() float64 { return float64(c.news.waiting()) }),
	}
}

func (c *Controller) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, m := range c.collectors() {
		if err := r.Register(m); err != nil {
			return err
		}
	}
	return nil
}

// DescribeMetrics registers what a Controller registers, without one: for documentation.
func DescribeMetrics(r prometheus.Registerer) error {
	return (&Controller{views: newViews(), news: newPublisher()}).register(r)
}
