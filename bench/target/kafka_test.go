package target

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestKafkaNodesAreToldWhoTheyAreAndWhereTheyListen(t *testing.T) {
	l := kafkaLayout{nodes: 3, client: 19092, controller: 29092, dir: "/run/k", settings: map[string]string{"num.io.threads": "4", "log.retention.check.interval.ms": "5000"}}
	var all strings.Builder
	for id := 1; id <= 3; id++ {
		fmt.Fprintf(&all, "# %s\n%s", l.file(id), l.properties(id))
	}
	const file = "testdata/server.properties.golden"
	if *update {
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != all.String() {
		t.Errorf("%s differs (%v); if that is right: go test ./bench/target -update\n%s", file, err, all.String())
	}
}

func TestAloneKafkaNodeAsksForOneCopy(t *testing.T) {
	got := kafkaSettings(1, nil)
	for _, k := range []string{"default.replication.factor", "min.insync.replicas", "offsets.topic.replication.factor", "transaction.state.log.min.isr"} {
		if got[k] != "1" {
			t.Errorf("%s is %s", k, got[k])
		}
	}
}

func TestAScenarioCannotSayWhereKafkasNodesAre(t *testing.T) {
	for _, k := range ownedByHarness {
		_, err := NewKafka(KafkaConfig{Nodes: 1, Settings: map[string]string{k: "x"}})
		if err == nil || !strings.Contains(err.Error(), k) {
			t.Errorf("%s: %v", k, err)
		}
	}
}

func TestTwoVersionsOfKafkaAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, v := range []string{"3.9.0", "3.10.0"} {
		if err := os.WriteFile(filepath.Join(dir, "kafka_2.13-"+v+".jar"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := kafkaVersion(dir); err == nil || !strings.Contains(err.Error(), "2 versions") {
		t.Errorf("%q, %v", v, err)
	}
}

// fakeJava behaves like Kafka's programs as far as the harness sees them. Its
// broker answers the metadata request with the number of voters of its quorum.
func fakeJava(args []string) int {
	if slices.Contains(args, "-version") {
		fmt.Fprintln(os.Stderr, `fake java version "99"`)
		return 0
	}
	fmt.Fprintln(os.Stderr, "java", args)
	if slices.Contains(args, "kafka.tools.StorageTool") {
		file := args[slices.Index(args, "--config")+1]
		return boolCode(os.MkdirAll(property(file, "log.dirs"), 0o755) == nil)
	}
	file := args[len(args)-1]
	if _, err := os.Stat(property(file, "log.dirs")); err != nil {
		fmt.Fprintln(os.Stderr, "never formatted:", err)
		return 1
	}
	if os.Getenv(actVar) == "java-refuses" && property(file, "node.id") == "2" {
		fmt.Fprintln(os.Stderr, "the heap is not mine")
		return 3
	}
	client := strings.TrimPrefix(strings.Split(property(file, "listeners"), ",")[0], "CLIENT://")
	brokers := len(strings.Split(property(file, "controller.quorum.voters"), ","))
	ln, err := net.Listen("tcp", client)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	go answerMetadata(ln, brokers)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	if os.Getenv(actVar) == "java-deaf" {
		select {}
	}
	return 0
}

func boolCode(ok bool) int {
	if ok {
		return 0
	}
	return 1
}

func answerMetadata(ln net.Listener, brokers int) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		got := make([]byte, len(metadataRequest))
		if _, err := io.ReadFull(c, got); err == nil && slices.Equal(got, metadataRequest) {
			_, _ = c.Write(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8, 0, 0, 0, 1}, uint32(brokers)))
		}
		c.Close()
	}
}

func property(file, key string) string {
	b, _ := os.ReadFile(file)
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			return v
		}
	}
	return ""
}

// jars is a directory that looks like a fetched Kafka.
func jars(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kafka_2.13-4.4.0.jar"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func fakeKafka(t *testing.T, act string, nodes int) *Kafka {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(actVar, act)
	k, err := NewKafka(KafkaConfig{Java: self, Jars: jars(t), Heap: 1 << 30, Nodes: nodes, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Stop(t.Context()) })
	return k
}

func TestKafkaIsFormattedStartedKilledRestartedAndStopped(t *testing.T) {
	k := fakeKafka(t, "java", 3)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := k.Version(); v != "4.4.0, fake java version 99" {
		t.Errorf("version %q", v)
	}
	first := k.Nodes()[0]
	if err := errors.Join(k.Kill(t.Context(), 1), k.Restart(t.Context(), 1), k.Pause(2)); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, n := range k.Nodes() {
		pids = append(pids, n.PID)
	}
	if again := k.Nodes()[0]; again.PID == first.PID || again.Client != first.Client {
		t.Errorf("before %+v, after %+v", first, again)
	}
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(pids, first.PID) {
		if running(pid) {
			t.Errorf("process %d was left running", pid)
		}
	}
	b, err := os.ReadFile(first.Log)
	if err != nil || !strings.Contains(string(b), "-Xmx1073741824 -Xms1073741824") || strings.Count(string(b), "kafka.Kafka") != 2 {
		t.Errorf("%v: the log of node 1 tells another story: %s", err, b)
	}
}

func TestKafkaThatCannotStartSaysWhyAndLeavesNothing(t *testing.T) {
	k := fakeKafka(t, "java-refuses", 3)
	err := k.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the heap is not mine") || !strings.Contains(err.Error(), "node2.log") {
		t.Errorf("got %v", err)
	}
	var pids []int
	for _, n := range k.Nodes() {
		pids = append(pids, n.PID)
	}
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("process %d was left running", pid)
		}
	}
}

func TestKafkaThatDoesNotEndIsForced(t *testing.T) {
	k := fakeKafka(t, "java-deaf", 2)
	k.grace = 0
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := k.Nodes()[1].PID
	if err := k.Stop(t.Context()); err != nil || running(pid) {
		t.Errorf("%v, running: %v", err, running(pid))
	}
	if d := k.Deaths(); len(d) > 0 {
		t.Errorf("%q", d)
	}
}

func TestKafkaIsReadyWhenItKnowsEveryBroker(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go answerMetadata(ln, 2)
	if err := knowsBrokers(t.Context(), ln.Addr().String(), 2); err != nil {
		t.Error(err)
	}
	if err := knowsBrokers(t.Context(), ln.Addr().String(), 3); err == nil || !strings.Contains(err.Error(), "2 of 3") {
		t.Errorf("got %v", err)
	}
}

func TestMissingKafkaOrJavaNamesTheCommandThatBringsIt(t *testing.T) {
	t.Setenv(KafkaHomeVar, t.TempDir())
	if _, _, _, err := FindKafka(); err == nil || !strings.Contains(err.Error(), KafkaFetch) || !strings.Contains(err.Error(), KafkaHomeVar) {
		t.Errorf("got %v", err)
	}
	if _, err := NewKafka(KafkaConfig{Nodes: 3, Java: "java"}); err == nil || !strings.Contains(err.Error(), KafkaFetch) {
		t.Errorf("got %v", err)
	}
	t.Setenv(KafkaHomeVar, jars(t))
	t.Setenv("PATH", t.TempDir())
	t.Setenv("JAVA_HOME", "")
	if _, _, _, err := FindKafka(); err == nil || !strings.Contains(err.Error(), "Java 17") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join("..", "..", KafkaFetch)); err != nil {
		t.Error(err)
	}
}
