package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience bounds the wait for nodes to come up: Kafka's JVMs take long on a busy machine.
const patience = 3 * time.Minute

// cluster is nodes on loopback, three for most suites. A node's number is its id - 1.
type cluster struct {
	options
	suite   suite
	dir     string
	binds   []string // where clients of a node arrive
	clients []string // what they are told: the same, or a proxy before it
	peers   []string // where the other nodes arrive
	inside  []string // where Kafka's brokers fetch from each other
	nodes   []*exec.Cmd

	proxies     string // the toxiproxy's own address
	stopProxies func()
}

// startCluster starts the target's nodes and returns when a topic with a replica on each can be made. Nodes of some suites tell
// clients another address than the one they listen at.
func startCluster(ctx context.Context, o options, dir string, s suite) (*cluster, error) {
	n := max(s.nodes, 1)
	if s.nodes == 0 {
		n = 3
	}
	ports, err := freePorts(4 * n)
	if err != nil {
		return nil, err
	}
	c := &cluster{options: o, suite: s, dir: dir, binds: ports[:n], clients: ports[:n], peers: ports[n : 2*n], inside: ports[2*n : 3*n], nodes: make([]*exec.Cmd, n)}
	if s.proxied {
		c.clients = ports[3*n:]
		if err := c.startProxies(ctx); err != nil {
			c.stop()
			return nil, err
		}
	}
	if s.host != "" {
		c.clients = nil
		for _, b := range c.binds {
			c.clients = append(c.clients, strings.Replace(b, "127.0.0.1", s.host, 1))
		}
	}
	if o.target == "kafka" {
		if err := c.formatKafka(ctx); err != nil {
			return nil, err
		}
	}
	for i := range c.nodes {
		if err := c.start(i); err != nil {
			c.stop()
			return nil, err
		}
	}
	if err := c.ready(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// ready waits until a topic with a replica on each node was made.
func (c *cluster) ready(ctx context.Context) error {
	for until := time.Now().Add(patience); ; time.Sleep(300 * time.Millisecond) {
		out, err := exec.CommandContext(ctx, filepath.Join(c.bin, "mqclient"), "topic", "create", "-addr", strings.Join(c.binds, ","), "-topic", "all-there", "-replication-factor", fmt.Sprint(len(c.nodes))).CombinedOutput()
		switch {
		case err == nil || strings.Contains(string(out), "exist"):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(until):
			return fmt.Errorf("the nodes do not come up (their logs are in %s): %s", c.dir, out)
		}
	}
}

// start runs node i, which may have run before.
func (c *cluster) start(i int) error {
	argv := c.gopherlog(i)
	if c.target == "kafka" {
		argv = c.kafka(i, "kafka.Kafka", c.properties(i))
	}
	log, err := os.OpenFile(filepath.Join(c.dir, fmt.Sprintf("node%d.log", i+1)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	c.nodes[i] = cmd
	return nil
}

func (c *cluster) gopherlog(i int) []string {
	var peers []string
	for n, p := range c.peers {
		peers = append(peers, fmt.Sprintf("%d@%s", n+1, p))
	}
	argv := []string{filepath.Join(c.bin, "server"), "-id", fmt.Sprint(i + 1), "-addr", c.binds[i], "-rpc", c.peers[i],
		"-peers", strings.Join(peers, ","), "-data", filepath.Join(c.dir, fmt.Sprintf("data%d", i+1))}
	if c.clients[i] != c.binds[i] {
		argv = append(argv, "-advertise", c.clients[i])
	}
	if c.suite.noTopics {
		argv = append(argv, "-set", "auto.create.topics.enable=false")
	}
	return argv
}

// kill ends node i at once, as a crash of its process would.
func (c *cluster) kill(i int) {
	if n := c.nodes[i]; n != nil {
		_ = n.Process.Kill()
		_ = n.Wait()
		c.nodes[i] = nil
	}
}

// stop ends all nodes and removes their data; the logs stay.
func (c *cluster) stop() {
	if c.target == "gopherlog" { // an orderly end shows what hangs in it
		for _, n := range c.nodes {
			if n != nil {
				_ = n.Process.Signal(syscall.SIGTERM)
			}
		}
		c.await(20 * time.Second)
	}
	if c.stopProxies != nil {
		c.stopProxies()
	}
	for i := range c.nodes {
		c.kill(i)
		_ = os.RemoveAll(filepath.Join(c.dir, fmt.Sprintf("data%d", i+1)))
	}
}

// await gives the nodes time to end by themselves.
func (c *cluster) await(limit time.Duration) {
	timer := time.AfterFunc(limit, func() {
		for i, n := range c.nodes {
			if n != nil {
				fmt.Printf("    node %d did not end within %v of its signal\n", i+1, limit)
				_ = n.Process.Signal(syscall.SIGQUIT)
			}
		}
	})
	defer timer.Stop()
	for i, n := range c.nodes {
		if n != nil {
			_ = n.Wait()
			c.nodes[i] = nil
		}
	}
}

const kafkaCluster = "R29waGVyTG9nQ29tcGF0MQ"

// kafkaJars is where scripts/kafka-fetch.sh puts Apache Kafka.
func kafkaJars() (string, error) {
	if dir := os.Getenv("MQBENCH_KAFKA"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "gopherlog", "kafka"), err
}

func (c *cluster) kafka(i int, program ...string) []string {
	jars, _ := kafkaJars()
	return append([]string{"java", "-Xmx400m", "-XX:+UseSerialGC", "-Dlog4j2.configurationFile=" + filepath.Join(c.dir, "log4j2.properties"),
		"-cp", filepath.Join(jars, "*")}, program...)
}

func (c *cluster) properties(i int) string {
	return filepath.Join(c.dir, fmt.Sprintf("kafka%d.properties", i+1))
}

// formatKafka writes what three combined brokers and controllers need. Everything that no test bears to be otherwise is Kafka's default.
func (c *cluster) formatKafka(ctx context.Context) error {
	logging := "rootLogger.level = WARN\nrootLogger.appenderRef.err.ref = err\nappender.err.type = Console\nappender.err.name = err\n" +
		"appender.err.target = SYSTEM_ERR\nappender.err.layout.type = PatternLayout\nappender.err.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n\n"
	if err := os.WriteFile(filepath.Join(c.dir, "log4j2.properties"), []byte(logging), 0o644); err != nil {
		return err
	}
	for i := range c.nodes {
		if err := os.WriteFile(c.properties(i), []byte(c.kafkaSettings(i)), 0o644); err != nil {
			return err
		}
		argv := c.kafka(i, "kafka.tools.StorageTool", "format", "--cluster-id", kafkaCluster, "--config", c.properties(i), "--ignore-formatted")
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("format: %w: %s", err, out)
		}
	}
	return nil
}

// kafkaSettings is the server.properties of node i.
func (c *cluster) kafkaSettings(i int) string {
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	var voters []string
	for n, p := range c.peers {
		voters = append(voters, fmt.Sprintf("%d@%s", n+1, p))
	}
	line("process.roles", "broker,controller")
	line("node.id", i+1)
	line("controller.quorum.voters", strings.Join(voters, ","))
	line("controller.listener.names", "CONTROLLER")
	line("listeners", "CLIENT://"+c.binds[i]+",INSIDE://"+c.inside[i]+",CONTROLLER://"+c.peers[i])
	line("advertised.listeners", "CLIENT://"+c.clients[i]+",INSIDE://"+c.inside[i])
	line("inter.broker.listener.name", "INSIDE")
	line("listener.security.protocol.map", "CLIENT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT")
	line("log.dirs", filepath.Join(c.dir, fmt.Sprintf("data%d", i+1)))
	for _, topic := range []string{"offsets.topic.", "transaction.state.log.", "share.coordinator.state.topic."} {
		line(topic+"replication.factor", len(c.nodes))
		line(topic+"num.partitions", 16)
	}
	for _, topic := range []string{"transaction.state.log.", "share.coordinator.state.topic."} {
		line(topic+"min.isr", len(c.nodes)/2+1)
	}
	line("default.replication.factor", len(c.nodes))
	line("min.insync.replicas", len(c.nodes)/2+1)
	line("auto.create.topics.enable", !c.suite.noTopics)
	line("group.initial.rebalance.delay.ms", 0)
	line("log.cleaner.dedupe.buffer.size", 32<<20)
	return b.String()
}

// freePorts names loopback addresses that nobody listens at.
func freePorts(n int) (addrs []string, err error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		held, addrs = append(held, l), append(addrs, l.Addr().String())
	}
	return addrs, nil
}
