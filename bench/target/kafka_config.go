package target

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// kafkaClusterID is the identity of every cluster that is launched here: they
// live for one run, on addresses of their own.
const kafkaClusterID = "R29waGVyTG9nQmVuY2hNUQ"

// kafkaLogging sends Kafka's log to the standard error, which is captured.
const kafkaLogging = `rootLogger.level = INFO
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
`

// kafkaLayout says where the files and ports of a cluster are.
type kafkaLayout struct {
	nodes              int
	client, controller int // the same ports on every node's address
	dir                string
	settings           map[string]string
}

func (l kafkaLayout) at(id int) string      { return filepath.Join(l.dir, fmt.Sprintf("node%d", id)) }
func (l kafkaLayout) file(id int) string    { return filepath.Join(l.at(id), "server.properties") }
func (l kafkaLayout) data(id int) string    { return filepath.Join(l.at(id), "data") }
func (l kafkaLayout) logging() string       { return filepath.Join(l.dir, "log4j2.properties") }
func (l kafkaLayout) address(id int) string { return fmt.Sprintf("%s:%d", nodeHost(id), l.client) }
func (l kafkaLayout) quorumVoter(id int) string {
	return fmt.Sprintf("%d@%s:%d", id, nodeHost(id), l.controller)
}

// properties is a node's server.properties: who it is, where it listens, and
// what every node has in common.
func (l kafkaLayout) properties(id int) string {
	var voters []string
	for i := 1; i <= l.nodes; i++ {
		voters = append(voters, l.quorumVoter(i))
	}
	var b strings.Builder
	line := func(k, v string) { fmt.Fprintf(&b, "%s=%s\n", k, v) }
	line("process.roles", "broker,controller")
	line("node.id", fmt.Sprint(id))
	line("controller.quorum.voters", strings.Join(voters, ","))
	line("controller.listener.names", "CONTROLLER")
	line("listeners", fmt.Sprintf("CLIENT://%s,CONTROLLER://%s:%d", l.address(id), nodeHost(id), l.controller))
	line("advertised.listeners", "CLIENT://"+l.address(id))
	line("inter.broker.listener.name", "CLIENT")
	line("listener.security.protocol.map", "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT")
	line("log.dirs", l.data(id))
	common := kafkaSettings(l.nodes, l.settings)
	for _, k := range slices.Sorted(maps.Keys(common)) {
		line(k, common[k])
	}
	return b.String()
}

// ownedByHarness are the properties of a node that a scenario cannot set: they say who a node is and where.
var ownedByHarness = []string{"process.roles", "node.id", "broker.id", "controller.quorum.voters", "controller.listener.names", "listeners",
	"advertised.listeners", "inter.broker.listener.name", "listener.security.protocol.map", "log.dir", "log.dirs", "metadata.log.dir"}

// checkKafkaSettings refuses what a scenario must not set.
func checkKafkaSettings(settings map[string]string) error {
	for _, k := range ownedByHarness {
		if _, set := settings[k]; set {
			return fmt.Errorf("target.kafka.settings: %s belongs to the harness, which places the nodes: leave it out", k)
		}
	}
	return nil
}

// kafkaSettings are the properties that the harness sets on every node, and over
// them the scenario's. All others are Kafka's defaults. Topics are made by the
// load driver only. Retention and deletion act within a second, so that a topic's
// retention bounds the page cache in a trial of seconds as it would in days.
func kafkaSettings(nodes int, over map[string]string) map[string]string {
	copies, insync := min(nodes, 3), min(nodes, 3)/2+1
	out := map[string]string{
		"default.replication.factor":                       fmt.Sprint(copies),
		"min.insync.replicas":                              fmt.Sprint(insync),
		"offsets.topic.replication.factor":                 fmt.Sprint(copies),
		"transaction.state.log.replication.factor":         fmt.Sprint(copies),
		"transaction.state.log.min.isr":                    fmt.Sprint(insync),
		"share.coordinator.state.topic.replication.factor": fmt.Sprint(copies),
		"share.coordinator.state.topic.min.isr":            fmt.Sprint(insync),
		"auto.create.topics.enable":                        "false",
		"group.initial.rebalance.delay.ms":                 "0",
		"log.initial.task.delay.ms":                        "1000",
		"log.retention.check.interval.ms":                  "1000",
		"log.segment.delete.delay.ms":                      "1000",
	}
	maps.Copy(out, over)
	return out
}

// metadataRequest asks for the brokers and for no topic: Metadata version 1,
// correlation 1, no client id, an empty list of topics.
var metadataRequest = []byte{0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0}

// knowsBrokers asks a node how many brokers it knows that are in service, and
// returns nil when these are all. It is the one question that this package puts
// in the Kafka protocol: whoever waits for a cluster cannot yet use a client of it.
func knowsBrokers(ctx context.Context, addr string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if at, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(at)
	}
	if _, err := c.Write(metadataRequest); err != nil {
		return err
	}
	var head [12]byte // length, correlation, number of brokers
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return fmt.Errorf("read the answer of %s: %w", addr, err)
	}
	if got := int(int32(binary.BigEndian.Uint32(head[8:]))); got != want {
		return fmt.Errorf("%s knows %d of %d brokers", addr, got, want)
	}
	return nil
}
