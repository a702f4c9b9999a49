package admin_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/cluster/admin"
	"gopherlog/cluster/broker"
	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
)

var update = flag.Bool("update", false, "write docs/METRICS.md and docs/FAILPOINTS.md anew")

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func start(t *testing.T, s *admin.Server) string {
	t.Helper()
	s.Start()
	t.Cleanup(func() { s.Close(context.Background()) })
	return "http://" + s.Addr().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	return do(t, "GET", url, "", "")
}

func do(t *testing.T, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestNotReadyNodeIsAliveAndSaysWhyItIsNotReady(t *testing.T) {
	reasons := []string{"replica orders-3 is being opened", "draining"}
	url := start(t, admin.New(admin.Config{Listener: listen(t, "127.0.0.1:0"), Ready: func() []string { return reasons }}))
	if code, _ := get(t, url+"/livez"); code != 200 {
		t.Errorf("/livez: %d", code)
	}
	code, body := get(t, url+"/readyz")
	var got struct {
		Ready   bool
		Reasons []string
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != 503 || got.Ready || !slices.Equal(got.Reasons, reasons) {
		t.Errorf("/readyz: %d %s %v", code, body, err)
	}
	if strings.Contains(body, "degraded") {
		t.Errorf("/readyz: %s", body)
	}
	reasons = nil
	if code, body := get(t, url+"/readyz"); code != 200 || !strings.Contains(body, `"reasons":[]`) {
		t.Errorf("/readyz: %d %s", code, body)
	}
}

func TestReadyNodeSaysWhatIsOutOfOrder(t *testing.T) {
	url := start(t, admin.New(admin.Config{Listener: listen(t, "127.0.0.1:0"), Degraded: func() []string { return []string{"replica orders-3 is out of service: damaged"} }}))
	if code, body := get(t, url+"/readyz"); code != 200 || !strings.Contains(body, `"degraded":["replica orders-3 is out of service: damaged"]`) {
		t.Errorf("/readyz: %d %s", code, body)
	}
}

func TestProfilesAreServedOnlyOnRequest(t *testing.T) {
	without := start(t, admin.New(admin.Config{Listener: listen(t, "127.0.0.1:0")}))
	if code, _ := get(t, without+"/debug/pprof/"); code != 404 {
		t.Errorf("without the flag: %d", code)
	}
	if code, _ := get(t, without+"/metrics"); code != 404 {
		t.Errorf("metrics without a gatherer: %d", code)
	}
	with := start(t, admin.New(admin.Config{Listener: listen(t, "127.0.0.1:0"), Pprof: true}))
	if code, _ := get(t, with+"/debug/pprof/goroutine?debug=1"); code != 200 {
		t.Errorf("with the flag: %d", code)
	}
}

func TestMetricsOfAllRoomsAreServed(t *testing.T) {
	reg := rooms(t)
	url := start(t, admin.New(admin.Config{Listener: listen(t, "127.0.0.1:0"), Gatherer: reg}))
	code, body := get(t, url+"/metrics")
	for _, name := range []string{"gopherlog_connections ", "go_goroutines ", "process_resident_memory_bytes "} {
		if code != 200 || !strings.Contains(body, "\n"+name) {
			t.Errorf("/metrics answers %d without %q", code, name)
		}
	}
}

// rooms registers what every room registers.
func rooms(t *testing.T) *admin.Registry {
	t.Helper()
	reg := admin.NewRegistry()
	for _, describe := range []func(prometheus.Registerer) error{broker.DescribeMetrics, partition.DescribeMetrics,
		coordinator.DescribeMetrics, coordinator.DescribeTxnMetrics, coordinator.DescribeVotedMetrics, meta.DescribeMetrics, rpc.DescribeMetrics} {
		if err := describe(reg); err != nil {
			t.Fatal(err)
		}
	}
	return reg
}

// TestMetricsDocument keeps docs/METRICS.md what the rooms register.
func TestMetricsDocument(t *testing.T) {
	reg := rooms(t)
	path := filepath.Join("..", "..", "docs", "METRICS.md")
	if *update {
		if err := os.WriteFile(path, []byte(reg.Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || reg.Markdown() != string(want) {
		t.Errorf("docs/METRICS.md is not what is registered (%v); -update writes it anew:\n%s", err, reg.Markdown())
	}
	for _, m := range reg.Metrics() {
		if !strings.HasPrefix(m.Name, "gopherlog_") || m.Help == "" {
			t.Errorf("metric %q, help %q", m.Name, m.Help)
		}
	}
}

// TestFailpointsDocument keeps docs/FAILPOINTS.md what the rooms register: a scenario can only name what its author can look up.
func TestFailpointsDocument(t *testing.T) {
	var doc strings.Builder
	doc.WriteString(failpointsHead)
	for _, name := range failpoint.Names() {
		if name != point && !strings.HasPrefix(string(name), "sabotage/") {
			fmt.Fprintf(&doc, "| `%s` | %s |\n", name, failpoint.What(name))
		}
	}
	path := filepath.Join("..", "..", "docs", "FAILPOINTS.md")
	if *update {
		if err := os.WriteFile(path, []byte(doc.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || doc.String() != string(want) {
		t.Errorf("docs/FAILPOINTS.md is not what is registered (%v); -update writes it anew:\n%s", err, doc.String())
	}
}

const failpointsHead = `# Failpoints

Written by ` + "`go test ./cluster/admin -run TestFailpointsDocument -update`" + ` from what the rooms register. A failpoint is a place in a broker's code at which a test may make
it fail, wait or die. A [scenario](SCENARIOS.md) kills a broker there with ` + "`at: on failpoint NAME hit N`" + `, ` + "`mqbench run -failpoint 'NAME=ACTION'`" + ` arms
one for a whole run, and a node that was started for tests takes ` + "`POST /failpoint`" + ` at its control port (actions: ` + "`error`, `sleep 200ms`, `panic`, `exit`, `block`" + `,
each with ` + "`nth=3`, `probability=0.01` or `seed=7`" + `). The planted faults that ` + "`mqbench run -sabotage`" + ` switches on are in [TESTING](TESTING.md).

| Failpoint | What comes next there, or how far things have come |
| --- | --- |
`

func TestRegistryKnowsKindLabelsAndHelp(t *testing.T) {
	reg := admin.NewRegistry()
	reg.MustRegister(prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "x_seconds", Help: `says "so", with {braces}`}, []string{"a", "b"}))
	reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "x_total", Help: "h"}))
	got := reg.Metrics()
	if len(got) != 2 || got[0].Kind != "histogram" || !slices.Equal(got[0].Labels, []string{"a", "b"}) || got[0].Help != `says "so", with {braces}` || got[1].Kind != "counter" || len(got[1].Labels) != 0 {
		t.Fatalf("%+v", got)
	}
}

const token = "a-long-token"

var point = failpoint.Register("admin-test/point", "a point of this test")

func TestControlPortExistsOnLoopbackWithATokenOnly(t *testing.T) {
	set := failpoint.New()
	for name, cfg := range map[string]admin.ControlConfig{
		"no token":          {Listener: listen(t, "127.0.0.1:0"), Failpoints: set},
		"short token":       {Listener: listen(t, "127.0.0.1:0"), Failpoints: set, Token: "short"},
		"all interfaces":    {Listener: listen(t, ":0"), Failpoints: set, Token: token},
		"no listener":       {Failpoints: set, Token: token},
		"nothing to arm":    {Listener: listen(t, "127.0.0.1:0"), Token: token},
		"a foreign address": {Listener: elsewhere{listen(t, "127.0.0.1:0")}, Failpoints: set, Token: token},
	} {
		if _, err := admin.NewControl(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// elsewhere claims an address of the outside world.
type elsewhere struct{ net.Listener }

func (elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

func TestControlPortRefusesRequestsWithoutTheToken(t *testing.T) {
	set := failpoint.New()
	s, err := admin.NewControl(admin.ControlConfig{Listener: listen(t, "127.0.0.1:0"), Token: token, Failpoints: set})
	if err != nil {
		t.Fatal(err)
	}
	url := start(t, s)
	for _, bad := range []string{"", "wrong-token", token + "x"} {
		if code, _ := do(t, "POST", url+"/failpoint", bad, `{"name":"admin-test/point","action":"error"}`); code != 401 {
			t.Errorf("token %q: %d", bad, code)
		}
	}
	if set.Hit(point) != nil {
		t.Error("a refused request armed a point")
	}
}

func TestControlPortArmsPointsAndSwitches(t *testing.T) {
	set := failpoint.New()
	s, err := admin.NewControl(admin.ControlConfig{Listener: listen(t, "127.0.0.1:0"), Token: token, Failpoints: set})
	if err != nil {
		t.Fatal(err)
	}
	url := start(t, s)
	post := func(path, body string, want int) {
		t.Helper()
		if code, answer := do(t, "POST", url+path, token, body); code != want {
			t.Errorf("%s %s: %d %s, want %d", path, body, code, answer, want)
		}
	}
	post("/failpoint", `{"name":"admin-test/point","action":"error nth=2"}`, 200)
	if set.Hit(point) != nil || set.Hit(point) == nil {
		t.Error("the point does not fire on its second pass")
	}
	if code, body := do(t, "GET", url+"/failpoint", token, ""); code != 200 || !strings.Contains(body, `"name":"admin-test/point","what":"a point of this test","armed":"error","hits":2`) {
		t.Errorf("list: %d %s", code, body)
	}
	post("/failpoint", `{"name":"admin-test/point","action":"off"}`, 200)
	if len(set.Armed()) != 0 {
		t.Error("the point is still armed")
	}
	post("/sabotage", `{"name":"skip-dedupe","on":true,"arg":7}`, 200)
	if on, arg := set.Sabotage(failpoint.SkipDedupe); !on || arg != 7 {
		t.Errorf("switch %v %d", on, arg)
	}
	post("/sabotage", `{"name":"skip-dedupe","on":false}`, 200)
	if on, _ := set.Sabotage(failpoint.SkipDedupe); on {
		t.Error("the switch is still on")
	}
	post("/failpoint", `{"name":"no/such","action":"error"}`, 404)
	post("/sabotage", `{"name":"no-such","on":true}`, 404)
	post("/failpoint", `{"name":"admin-test/point","action":"explode"}`, 400)
	post("/failpoint", `{"nam":"admin-test/point"}`, 400)
	post("/failpoint", strings.Repeat("x", 10_000), 400)
}

func TestCloseEndsEveryGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	s := admin.New(admin.Config{Listener: listen(t, "127.0.0.1:0")})
	s.Start()
	get(t, "http://"+s.Addr().String()+"/livez")
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range 30_000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}
