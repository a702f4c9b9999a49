package partition

import "github.com/prometheus/client_golang/prometheus"

var (
	descDoubts   = desc("in_doubt_transactions", "Voted transactions that this leader promised to commit and whose outcome it does not know.", perPartition...)
	descDoubtAge = desc("in_doubt_seconds", "For how long the oldest of them has been in doubt: since its promise, by the clocks of who led then and who leads now; 0 if there is none. A promise that was written before promises said when they were given counts from the beginning of this leadership.", perPartition...)
)

// collectDoubt tells what this replica is in doubt about.
func (p *Partition) collectDoubt(put func(d *prometheus.Desc, t prometheus.ValueType, v float64)) {
	n, age := p.Doubt()
	put(descDoubts, prometheus.GaugeValue, float64(n))
	put(descDoubtAge, prometheus.GaugeValue, age.Seconds())
}
