package suite

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"gopherlog/bench/check"
	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
	"gopherlog/bench/target"
)

const actVar = "BENCH_SUITE_ACT"

// TestMain turns this test binary into the java that starts Kafka: one that
// formats nothing and runs an in-process fake of Kafka as the broker.
func TestMain(m *testing.M) {
	if os.Getenv(actVar) == "java" {
		os.Exit(fakeJava(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func fakeJava(args []string) int {
	at := ""
	b, _ := os.ReadFile(args[len(args)-1])
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "advertised.listeners=CLIENT://"); ok {
			at = v
		}
	}
	if at == "" { // -version, or the tool that formats
		return 0
	}
	host, port, _ := net.SplitHostPort(at)
	n, _ := strconv.Atoi(port)
	fake, err := kfake.NewCluster(kfake.Ports(n), kfake.ListenFn(func(network, _ string) (net.Listener, error) {
		return net.Listen(network, net.JoinHostPort(host, port))
	}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, "broker", os.Getpid(), "listens")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	fake.Close()
	return 0
}

// kafkaScenario is a scenario text against that fake, read.
func kafkaScenario(t *testing.T, body string) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	for _, dir := range []string{"bin", "jars"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(self, filepath.Join(home, "bin", "java")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "jars", "kafka_2.13-4.4.0.jar"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(actVar, "java")
	t.Setenv("JAVA_HOME", home)
	t.Setenv(target.KafkaHomeVar, filepath.Join(home, "jars"))
	file := filepath.Join(t.TempDir(), "s.yaml")
	text := "version: 1\nname: kept\nseed: 7\nguarantee: idempotent\ntarget: {system: kafka, nodes: 1}\ntopics: [{name: load, partitions: 2}]\n" +
		"phases: {warmup: 100ms, steady: 1s, drain: 20s}\nchecks: {min_acked: 50}\n" + body
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	sc, err := scenario.Parse(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Scenario: sc, File: file, Out: filepath.Join(t.TempDir(), "run"), NetReason: "a test"}
}

func TestKeptClusterIsWarmedOnceAndServesEveryTrialOfEveryRun(t *testing.T) {
	cfg := kafkaScenario(t, "load: {rate: 500/s, value: {size: 200B}}\nruns: {repeats: 2, fresh_cluster: false, warm_cluster: 3s, cooldown: 0s}\n")
	dir := filepath.Join(t.TempDir(), "clusters")
	cfg.Clusters = NewClusters(dir)
	defer cfg.Clusters.Close()
	var pid int
	for _, out := range []string{"one", "two"} {
		cfg.Out = filepath.Join(t.TempDir(), out)
		r, err := Run(t.Context(), cfg)
		if err != nil || r.Results.Verdict != check.Pass || len(r.Results.Trials) != 2 {
			t.Fatalf("%v: %+v", err, r)
		}
		sys := r.Manifest.System
		if w := sys.Warm; w == nil || w.Seconds != 3 || w.Last <= 0 || !sys.Kept || sys.Launched["heap"] != "1024 MiB" {
			t.Errorf("%s: %+v, warmed %+v", out, sys, w)
		}
		if n := r.Results.Trials[0].Usage.CopiesAtAck; n != 1 {
			t.Errorf("%d copies on one node", n)
		}
		b, err := os.ReadFile(r.Logs("kept-1-kafka-node1.log"))
		if err != nil || strings.Count(string(b), "listens") != 1 {
			t.Errorf("%s: the broker did not run through: %v: %s", out, err, b)
		}
		nodes := cfg.Clusters.kept[cfg.Scenario.Expand()[0].Target.ClusterKey()].target.Nodes()
		if len(nodes) != 1 || pid != 0 && nodes[0].PID != pid {
			t.Errorf("%s: another cluster: %+v", out, nodes)
		}
		pid = nodes[0].PID
	}
	cfg.Clusters.Close()
	if _, err := target.ReadProc(pid); err == nil {
		t.Errorf("process %d was left running", pid)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the clusters' data were left behind")
	}
}

func TestFreshClusterIsWarmedBeforeEachTrial(t *testing.T) {
	cfg := kafkaScenario(t, "load: {rate: 500/s, value: {size: 200B}}\nruns: {repeats: 2, warm_cluster: 500ms, cooldown: 0s}\n")
	var told notes
	cfg.Progress = &told
	r, err := Run(t.Context(), cfg)
	if err != nil || r.Results.Verdict != check.Pass {
		t.Fatalf("%v: %+v", err, r)
	}
	if n := strings.Count(strings.Join(told.text, "\n"), "kafka is warm"); n != 2 {
		t.Errorf("warmed %d times in two trials: %q", n, told.text)
	}
}

func TestClusterWithADeadBrokerIsNotUsedAgain(t *testing.T) {
	cfg := kafkaScenario(t, "load: {rate: 500/s, value: {size: 200B}}\nruns: {repeats: 1, fresh_cluster: false, cooldown: 0s}\n")
	dir := t.TempDir()
	cfg.Clusters = NewClusters(dir)
	defer cfg.Clusters.Close()
	c := cfg.Scenario.Expand()[0]
	s := &run{Config: cfg}
	s.Progress = silent{}
	k, err := s.keep(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	pid := k.target.Nodes()[0].PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); len(k.target.Deaths()) == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	again, err := s.keep(t.Context(), c)
	if err != nil || again == k || again.target.Nodes()[0].PID == pid {
		t.Errorf("%v: the dead cluster is used again", err)
	}
}

func TestPlantedFaultsNeverEnterAKeptCluster(t *testing.T) {
	cfg := kafkaScenario(t, "load: {rate: 500/s}\nruns: {repeats: 1, fresh_cluster: false}\n")
	cfg.Sabotage = Sabotage{Name: "append-twice"}
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "fresh_cluster: true") {
		t.Errorf("got %v", err)
	}
}

func TestRunWithoutKafkaIsUnusableAndNamesTheCommand(t *testing.T) {
	cfg := kafkaScenario(t, "load: {rate: 500/s}\nruns: {repeats: 1}\n")
	t.Setenv(target.KafkaHomeVar, t.TempDir())
	r, err := Run(t.Context(), cfg)
	if err == nil || r != nil || !strings.Contains(err.Error(), target.KafkaFetch) {
		t.Errorf("%v, %+v", err, r)
	}
}

// notes keeps what a run tells.
type notes struct {
	silent
	text []string
}

func (n *notes) Note(s string) { n.text = append(n.text, s) }

// synced is a driver that knows which replicas are in sync.
type synced struct {
	load.Driver
	parts map[int32][]int32
}

func (s synced) InSync(context.Context, string) (map[int32][]int32, error) { return s.parts, nil }

func TestCopiesInKafkaAreTheReplicasThatWereInSync(t *testing.T) {
	tr := &oneTrial{run: &run{}, driver: synced{parts: map[int32][]int32{0: {1, 2, 3}, 1: {1, 3}}}, outcome: &load.Outcome{Settings: []load.Setting{{Key: "acks", Value: "all"}}}}
	tr.cell.Target.System, tr.cell.Target.ReplicationFactor = "kafka", 3
	if got := tr.copies(); got != 3 {
		t.Errorf("%d copies where nobody was asked, want 3", got)
	}
	tr.insync = tr.fewestInSync(t.Context(), load.Plan{Topics: []load.TopicSpec{{Name: "load"}}})
	if got := tr.copies(); got != 2 {
		t.Errorf("%d copies, want the 2 of the partition that lags", got)
	}
	tr.cell.Target.System = "gopherlog"
	if got := tr.fewestInSync(t.Context(), load.Plan{}); got != 0 {
		t.Errorf("GopherLog, where a majority acknowledges, was asked: %d", got)
	}
}

func TestEveryBlockMayHaveAClusterOfItsOwn(t *testing.T) {
	cfg := kafkaScenario(t, "load: {rate: 500/s, value: {size: 200B}}\nproducers: {count: [1, 2]}\nruns: {repeats: 2, fresh_cluster: false, block_cluster: true, warm_cluster: 300ms, cooldown: 0s}\n")
	var told notes
	cfg.Progress = &told
	r, err := Run(t.Context(), cfg)
	if err != nil || r.Results.Verdict != check.Pass || len(r.Results.Trials) != 4 {
		t.Fatalf("%v: %+v", err, r)
	}
	if n := strings.Count(strings.Join(told.text, "\n"), "kafka is warm"); n != 2 {
		t.Errorf("warmed %d times in two blocks of two trials: %q", n, told.text)
	}
	if sys := r.Manifest.System; !sys.Kept || !sys.PerBlock {
		t.Errorf("the manifest does not say that each block had a cluster: %+v", sys)
	}
	for _, log := range []string{"kept-1-kafka-node1.log", "kept-2-kafka-node1.log"} {
		if b, err := os.ReadFile(r.Logs(log)); err != nil || strings.Count(string(b), "listens") != 1 {
			t.Errorf("%s: %v: %s", log, err, b)
		}
	}
}
