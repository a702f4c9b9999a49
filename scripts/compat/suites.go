package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// env is what a suite runs in.
type env struct {
	options
	cluster *cluster // nil on an external target
	addr    string   // bootstrap addresses, with commas
	suite   string   // its name
	dir     string   // for logs and files of this suite
	checks  []string // of a program, where not all are wanted
	vars    []string // of its environment
}

func (e *env) first() string { addr, _, _ := strings.Cut(e.addr, ","); return addr }

// suite is one foreign client, or its own tests.
type suite struct {
	name     string // of its lists
	client   string // for the document
	limit    time.Duration
	proxied  bool     // clients must be told the addresses of proxies
	nodes    int      // 0: three
	host     string   // that clients are told instead of 127.0.0.1
	noTopics bool     // asking for a topic must not make it
	ownNodes bool     // it cannot run on a cluster that somebody else started
	checks   []string // of a program: only these
	vars     []string // of a program's environment
	missing  func(options) string
	fetch    func(context.Context, *env) error
	version  func(*env) string
	run      func(context.Context, *env) ([]result, error)
}

var suites = []suite{franz, franzKills, kafkaGo, saramaFunctional, confluentGo, confluentPython, confluentPythonOld, kafkajs, platformatic, javaTools,
	voted(confluentPython, "txn-commit", "txn-abort", "txn-open-is-invisible", "txn-offsets", "txn-fenced", "txn-timeout"),
	voted(kafkajs, "txn-commit", "txn-abort", "txn-offsets"), voted(platformatic, "txn-commit", "txn-offsets"), voted(javaTools, "message_copier", "perf_transactional")}

// voted is a program's checks of transactions with ids of which the partitions vote; to Kafka they are ids as any other.
func voted(s suite, checks ...string) suite {
	s.name += "-voted"
	s.client += ", voted transactions"
	s.checks, s.vars = checks, []string{"TXN_PREFIX=2pc."}
	return s
}

// needs says which of these commands is not installed.
func needs(commands ...string) func(options) string {
	return func(options) string {
		for _, c := range commands {
			if _, err := exec.LookPath(c); err != nil {
				return c + " is not installed"
			}
		}
		return ""
	}
}

func fixed(version string) func(*env) string { return func(*env) string { return version } }

var franzModule = module{path: "github.com/twmb/franz-go", version: "v1.22.3"}

var franzVars = []string{"KGO_TEST_RF=3", "KGO_TEST_UNSAFE=1", "KGO_TEST_RECORDS=50000", "KGO_LOG_LEVEL=none"}

var franz = suite{
	name: "franz-go", client: "franz-go, its own suite (`pkg/kgo`)", limit: 20 * time.Minute,
	missing: needs("go"), fetch: franzModule.fetch, version: fixed(franzModule.version),
	run: func(ctx context.Context, e *env) ([]result, error) {
		g := goTest{dir: franzModule.source(e.options), pkg: "./pkg/kgo", limit: 18 * time.Minute, vars: append(franzVars, "KGO_SEEDS="+e.addr)}
		return g.run(ctx, e)
	},
}

// franzKillsModule takes no notice of errors that the client's documentation calls informational: that it will join its group again.
// Everything else that these tests check is checked.
var franzKillsModule = module{path: franzModule.path, version: franzModule.version,
	files: map[string]string{"pkg/kgo/compat_test.go": `package kgo

import (
	"errors"
	"slices"
)

func compatErrors(f Fetches) []FetchError {
	return slices.DeleteFunc(f.Errors(), func(e FetchError) bool { var session *ErrGroupSession; return errors.As(e.Err, &session) })
}
`},
	edits: []edit{{pattern: "pkg/kgo/*_test.go", old: "fetchErrs := fetches.Errors();", new: "fetchErrs := compatErrors(fetches);"}},
}

// franzKills runs franz-go's two ETL tests three times while a random node is killed every ten seconds and started again two seconds later. Clients enter by a door: franz-go asks for a coordinator at two addresses in turn, without a pause between, and
// gives up what it is about if it can dial neither, be it a heartbeat, upon which members lose what they have not committed. With nodes as
// seeds both may be the same node, the one that is down.
var franzKills = suite{
	name: "franz-go-kills", client: "franz-go, its ETL tests (edited to overlook `ErrGroupSession`, which says that a member joins again; its clients enter by a load balancer), a random node killed every 10 s", limit: 30 * time.Minute, ownNodes: true,
	missing: needs("go"), fetch: franzKillsModule.fetch, version: fixed(franzModule.version),
	run: func(ctx context.Context, e *env) (all []result, err error) {
		door, err := openDoor(e.cluster.binds)
		if err != nil {
			return nil, err
		}
		defer door.close()
		pausing, stop := context.WithCancel(ctx)
		kills := make(chan int)
		go func() { kills <- e.cluster.killNow(pausing, 10*time.Second, 2*time.Second) }()
		for _, test := range []string{"TestGroupETL", "TestTxnEtl"} {
			for turn := range 3 {
				g := goTest{dir: franzKillsModule.source(e.options), pkg: "./pkg/kgo", limit: 8 * time.Minute, vars: append(franzVars, "KGO_SEEDS="+door.addr()), flags: []string{"-run", "^" + test + "$"}}
				one, err := g.once(ctx, e, "")
				if err != nil {
					stop()
					<-kills
					return all, err
				}
				for _, r := range one {
					r.name = fmt.Sprintf("%s-%d", r.name, turn+1)
					all = append(all, r)
				}
			}
		}
		stop()
		fmt.Fprintf(os.Stderr, "    nodes killed: %d\n", <-kills)
		return all, nil
	},
}

// killNow kills random nodes until the context ends, and returns how many with all of them running. On a machine so busy that a node takes
// longer to serve than the pause is, the next kill waits for it: three nodes bear the loss of one. COMPAT_SEED repeats what was printed.
func (c *cluster) killNow(ctx context.Context, every, down time.Duration) (kills int) {
	seed, err := strconv.ParseUint(os.Getenv("COMPAT_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	fmt.Fprintf(os.Stderr, "    nodes are killed by COMPAT_SEED=%d\n", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for ; ; kills++ {
		if !sleep(ctx, every-down) || !c.allServe(ctx) {
			return kills
		}
		i := rng.IntN(len(c.nodes))
		c.kill(i)
		sleep(ctx, down)
		if err := c.start(i); err != nil {
			fmt.Fprintf(os.Stderr, "    node %d: %v\n", i+1, err)
		}
	}
}

// allServe returns when every node answers clients; false: the context ended before.
func (c *cluster) allServe(ctx context.Context) bool {
	for i := 0; i < len(c.binds); {
		probe, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := exec.CommandContext(probe, filepath.Join(c.bin, "mqclient"), "topic", "list", "-addr", c.binds[i]).Run()
		cancel()
		switch {
		case err == nil:
			i++
		case !sleep(ctx, 200*time.Millisecond):
			return false
		}
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// kafka-go's suite has its broker's address in the text, and most of its tests go to that broker whoever leads: it gets a cluster of one.
var kafkaGoModule = module{path: "github.com/segmentio/kafka-go", version: "v0.4.51",
	files: map[string]string{"compat_test.go": `package kafka

import (
	"net"
	"os"
	"strconv"
)

var (
	compatAddr           = os.Getenv("COMPAT_ADDR")
	_, compatPort, _     = net.SplitHostPort(compatAddr)
	compatPortNumber, _  = strconv.Atoi(compatPort)
	compatIP             = "127.0.0.1:" + compatPort
)
`},
	edits: []edit{
		{pattern: "*_test.go", old: `"localhost:9092"`, new: "compatAddr", spare: []string{"example_consumergroup_test.go", "example_writer_test.go", "address_test.go"}},
		{pattern: "client_test.go", old: `TCP("localhost")`, new: "TCP(compatAddr)"},
		{pattern: "conn_test.go", old: "const (\n\t\ttcp ", new: "var (\n\t\ttcp "},
		{pattern: "conn_test.go", old: ".Port != 9092", new: ".Port != compatPortNumber"},
		{pattern: "reader_test.go", old: "const broker = compatAddr", new: "broker := compatAddr"},
		{pattern: "dialer_test.go", old: "Port: 9092, ID: 1", new: "Port: compatPortNumber, ID: 1"},
		{pattern: "dialer_test.go", old: `"example.com:9092"`, new: `"example.com:" + compatPort`},
		{pattern: "*_test.go", old: `"127.0.0.1:9092"`, new: "compatIP", spare: []string{"address_test.go", "example_consumergroup_test.go"}},
	},
}

var kafkaGo = suite{
	name: "kafka-go", client: "kafka-go, its own suite, on one node", nodes: 1, host: "localhost", limit: 20 * time.Minute,
	missing: needs("go"), fetch: kafkaGoModule.fetch, version: fixed(kafkaGoModule.version),
	run: func(ctx context.Context, e *env) ([]result, error) {
		g := goTest{dir: kafkaGoModule.source(e.options), pkg: ".", limit: 18 * time.Minute, vars: []string{"KAFKA_SKIP_NETTEST=1", "KAFKA_VERSION=2.8.1", "COMPAT_ADDR=" + e.first()}}
		return g.run(ctx, e)
	},
}
