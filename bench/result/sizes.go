package result

import (
	"strings"

	"gopherlog/bench/stats"
)

// CommittedRate is records a second that count for a reader of the guarantee's isolation: without transactions, all that are acknowledged.
func (t *Trial) CommittedRate() float64 {
	if t.Counts.Txns > 0 {
		return t.Commits
	}
	return t.Achieved
}

// Plain is the guarantee without the system.
func (c *Cell) Plain() string {
	if _, g, both := strings.Cut(c.Guarantee, "/"); both {
		return g
	}
	return c.Guarantee
}

// SizeCosts is, block by block, what transactions of several sizes took: of cells that agree in everything but the size. Beside each stands
// what the same producers reached without transactions in that block; base is the guarantee of these, "" where none ran. A size with fewer
// records than partitions has fewer participants, and is left out.
func (r *Run) SizeCosts(cells []Cell) (blocks map[int]stats.CostBlock, base string) {
	plain, base := r.withoutTransactions(cells[0])
	blocks = map[int]stats.CostBlock{}
	for _, c := range cells {
		producers := float64(max(c.Producers, 1))
		for _, t := range r.Results.Valid() {
			v := t.CommittedRate()
			if t.Cell != c.ID || v <= 0 {
				continue
			}
			b := blocks[t.Block]
			if p := plain[t.Block]; p > 0 {
				b.Plain = producers / p
			}
			if n := float64(c.Txn.Records); c.Txn.Records >= c.Txn.Partitions {
				b.Costs = append(b.Costs, stats.Cost{N: n, Seconds: producers * n / v})
			}
			blocks[t.Block] = b
		}
	}
	return blocks, base
}

// withoutTransactions is, by block, what the same producers reached without any: idempotent where that ran, else at least once.
func (r *Run) withoutTransactions(like Cell) (rates map[int]float64, guarantee string) {
	for _, g := range []string{"idempotent", "at_least_once"} {
		values := map[int][]float64{}
		for _, c := range r.Manifest.Cells {
			if c.Plain() != g || c.Model != like.Model || r.Manifest.SystemOf(c).Name != r.Manifest.SystemOf(like).Name || c.Producers != like.Producers {
				continue
			}
			for _, t := range r.Results.Valid() {
				if t.Cell == c.ID && t.Achieved > 0 {
					values[t.Block] = append(values[t.Block], t.Achieved)
				}
			}
		}
		if len(values) > 0 {
			rates = map[int]float64{}
			for block, v := range values {
				rates[block] = stats.Summary(v).Center
			}
			return rates, g
		}
	}
	return nil, ""
}
