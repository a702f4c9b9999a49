package coordinator

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/txn/group"
)

// metrics adds up everything that is registered under a name.
func metrics(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestMetricsFollowTheGroups(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, func(c *Config) { c.Registerer = reg })
	j := r.member("g")
	wait(t, r.commit("g", j.MemberID, j.Generation, at(0, 5), at(1, 5)))
	wait(t, r.commit("g", "stranger", 1, at(0, 5)))
	wait(t, r.commit("loner", "", -1, at(0, 5)))
	check := func(when string, want map[string]float64) {
		t.Helper()
		wait(t, r.describe("nobody")) // behind everything else
		got := metrics(t, reg)
		for name, n := range want {
			if got[name] != n {
				t.Errorf("%s: %s is %v, want %v", when, name, got[name], n)
			}
		}
	}
	check("with a member", map[string]float64{
		"gopherlog_groups Stable": 1, "gopherlog_groups Empty": 0, "gopherlog_group_members": 1, "gopherlog_group_shards": 1,
		"gopherlog_group_committed_offsets": 3, "gopherlog_group_commits_total": 2, "gopherlog_group_offsets_committed_total": 3,
		"gopherlog_group_commits_refused_total": 1, "gopherlog_group_rebalances_total": 1, "gopherlog_group_load_seconds": 1,
	})
	left := make(chan []group.Code, 1)
	r.g.Leave("g", group.Leave{Members: []group.Leaver{{MemberID: j.MemberID}}}, func(_ group.Code, codes []group.Code) { left <- codes })
	wait(t, left)
	check("after it left", map[string]float64{"gopherlog_groups Stable": 0, "gopherlog_groups Empty": 1, "gopherlog_group_members": 0})
	r.remove("g")
	check("without the group", map[string]float64{"gopherlog_groups Empty": 0, "gopherlog_group_committed_offsets": 1})
	r.member("h")
	r.lose()
	r.g.Close()
	got := metrics(t, reg)
	if got["gopherlog_groups Stable"] != 0 || got["gopherlog_group_members"] != 0 || got["gopherlog_group_shards"] != 0 {
		t.Errorf("after the shard went elsewhere: %v", got)
	}
}
