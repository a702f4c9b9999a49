package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Limits of starting and stopping Kafka. A JVM takes seconds to come up, longer
// on a busy machine. Its orderly end waits for a quorum that is ending too, and
// its data are thrown away: it is not given long.
const (
	kafkaStart = 3 * time.Minute
	kafkaGrace = 3 * time.Second
)

// KafkaFetch is the command that puts Kafka where the harness looks for it.
const KafkaFetch = "scripts/kafka-fetch.sh"

// KafkaHomeVar names another directory of jars than the one in the user's cache.
const KafkaHomeVar = "MQBENCH_KAFKA"

// KafkaConfig describes the cluster that NewKafka will start: combined brokers
// and controllers, one process a node, without ZooKeeper.
type KafkaConfig struct {
	Java     string            // the java command; "" means JAVA_HOME's, or the one in PATH
	Jars     string            // directory of Kafka's jars; "" means KafkaJars
	Heap     int64             // bytes of heap a node, from the start
	Nodes    int               // at least 1
	Nice     int               // scheduling priority of the nodes
	Dir      string            // configuration and data; made if missing
	Logs     string            // what the nodes print goes to <Logs>node<N>.log; "" means Dir
	Settings map[string]string // broker properties over the harness's own
}

// Kafka launches an Apache Kafka cluster on 127.0.1.N, one address a node. What
// it leads and holds is asked through the Kafka protocol, as of any other system.
type Kafka struct {
	*launched
	cfg     KafkaConfig
	version string
	files   map[string]string // path → content, written by Start
}

// KafkaJars is where the jars are looked for: $MQBENCH_KAFKA, else a directory
// in the user's cache that the fetching script fills.
func KafkaJars() (string, error) {
	if dir := os.Getenv(KafkaHomeVar); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("where Kafka's jars are: %w; name their directory in %s", err, KafkaHomeVar)
	}
	return filepath.Join(cache, "gopherlog", "kafka"), nil
}

// FindKafka says which Java and which Kafka would be used. Where one is missing
// the error names the command that brings it.
func FindKafka() (java, jars, version string, err error) {
	if jars, err = KafkaJars(); err != nil {
		return "", "", "", err
	}
	if version, err = kafkaVersion(jars); err != nil {
		return "", "", "", err
	}
	java, err = findJava()
	return java, jars, version, err
}

// kafkaVersion reads the version off the broker's jar.
func kafkaVersion(jars string) (string, error) {
	found, _ := filepath.Glob(filepath.Join(jars, "kafka_2.13-*.jar"))
	if len(found) == 0 {
		return "", fmt.Errorf("no Apache Kafka in %s: run `%s` (it needs Maven), or name a directory that holds its jars in %s", jars, KafkaFetch, KafkaHomeVar)
	}
	if len(found) > 1 {
		return "", fmt.Errorf("%s holds %d versions of Apache Kafka, and all of them would be on the class path: leave one kafka_2.13-*.jar with its libraries", jars, len(found))
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "kafka_2.13-"), ".jar"), nil
}

func findJava() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java := filepath.Join(home, "bin", "java")
		if _, err := exec.LookPath(java); err == nil {
			return java, nil
		}
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", errors.New("no java in PATH, and Apache Kafka needs Java 17 or newer: install a Java runtime (Debian: `apt-get install openjdk-17-jre-headless`), or set JAVA_HOME")
	}
	return java, nil
}

// NewKafka looks for Java and the jars and picks the ports; nothing runs yet.
func NewKafka(cfg KafkaConfig) (*Kafka, error) {
	if cfg.Nodes < 1 || cfg.Nodes > 9 {
		return nil, fmt.Errorf("target.nodes is %d: give 1 to 9", cfg.Nodes)
	}
	err := checkKafkaSettings(cfg.Settings)
	if err != nil {
		return nil, err
	}
	if cfg.Jars == "" {
		if cfg.Jars, err = KafkaJars(); err != nil {
			return nil, err
		}
	}
	if cfg.Java == "" {
		if cfg.Java, err = findJava(); err != nil {
			return nil, err
		}
	}
	if cfg.Logs == "" {
		cfg.Logs = cfg.Dir + string(filepath.Separator)
	}
	t := &Kafka{cfg: cfg, files: map[string]string{}}
	if t.version, err = kafkaVersion(cfg.Jars); err != nil {
		return nil, err
	}
	ports, err := freePorts(cfg.Nodes, 2)
	if err != nil {
		return nil, err
	}
	t.launched = &launched{dir: cfg.Dir, nice: cfg.Nice, patience: kafkaStart, grace: kafkaGrace, ready: func(ctx context.Context, n Node) error { return knowsBrokers(ctx, n.Client, cfg.Nodes) }}
	layout := kafkaLayout{nodes: cfg.Nodes, client: ports[0], controller: ports[1], dir: cfg.Dir, settings: cfg.Settings}
	t.files[layout.logging()] = kafkaLogging
	for id := 1; id <= cfg.Nodes; id++ {
		n := &node{Node: Node{ID: id, Client: layout.address(id), Host: nodeHost(id), State: Down,
			Log: fmt.Sprintf("%snode%d.log", cfg.Logs, id), Data: layout.data(id)}}
		n.args = t.java(cfg.Heap, layout.logging(), "kafka.Kafka", layout.file(id))
		t.files[layout.file(id)] = layout.properties(id)
		t.nodes = append(t.nodes, n)
	}
	return t, nil
}

// java is the command line of one of Kafka's programs. The collector's flags are
// those of the release's own start script.
func (t *Kafka) java(heap int64, logging string, program ...string) []string {
	return append([]string{t.cfg.Java, fmt.Sprintf("-Xmx%d", heap), fmt.Sprintf("-Xms%d", heap), "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
		"-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=" + logging, "-cp", filepath.Join(t.cfg.Jars, "*")}, program...)
}

// System returns "kafka".
func (t *Kafka) System() string { return "kafka" }

// Version is that of the jars, and the Java that runs them.
func (t *Kafka) Version() string {
	out, err := exec.Command(t.cfg.Java, "-version").CombinedOutput()
	first, _, _ := strings.Cut(string(out), "\n")
	if first = strings.TrimSpace(first); err != nil || first == "" {
		return t.version
	}
	return t.version + ", " + strings.ReplaceAll(first, `"`, "")
}

// Launched are the broker properties that the harness wrote, and the heap.
func (t *Kafka) Launched() map[string]string {
	out := kafkaSettings(t.cfg.Nodes, t.cfg.Settings)
	out["heap"] = fmt.Sprintf("%d MiB", t.cfg.Heap>>20)
	return out
}

// Start writes the configuration, formats the data directories, launches all
// nodes and returns when each knows all the others.
func (t *Kafka) Start(ctx context.Context) error {
	for path, text := range t.files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := t.format(ctx); err != nil {
		return err
	}
	return t.launched.Start(ctx)
}

// formatHeap is enough for the formatting tool.
const formatHeap = 128 << 20

// format gives every data directory the cluster's identity, all at once.
func (t *Kafka) format(ctx context.Context) error {
	layout := kafkaLayout{dir: t.cfg.Dir}
	var wg sync.WaitGroup
	failed := make([]error, t.cfg.Nodes)
	for i := range t.cfg.Nodes {
		argv := t.java(formatHeap, layout.logging(), "kafka.tools.StorageTool", "format", "--cluster-id", kafkaClusterID, "--config", layout.file(i+1), "--ignore-formatted")
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.SysProcAttr = childAttr()
			if out, err := cmd.CombinedOutput(); err != nil {
				failed[i] = fmt.Errorf("format the data of node %d: %w: %s", i+1, err, tail(string(out)))
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// tail is the end of what a program printed: its last words tell most.
func tail(s string) string {
	const most = 400
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-most):]
}

// Control is refused: Kafka has no planted faults.
func (t *Kafka) Control(context.Context, int, string, any) error { return ErrUnsupported }
