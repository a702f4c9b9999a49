package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// sarama's functional tests want five brokers in containers behind a toxiproxy. Here they get three, and proxies on free ports.
var saramaModule = module{path: "github.com/IBM/sarama", version: "v1.61.1", edits: []edit{
	{pattern: "functional_test.go", old: "i <= 5", new: "i <= 3"},
	{pattern: "functional_test.go", old: `fmt.Sprintf("127.0.0.1:%d", 29090+i)`, new: `strings.Split(os.Getenv("COMPAT_PROXIES"), ",")[i-1]`},
}}

const toxiproxyModule = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"

func toxiproxy(o options) string { return filepath.Join(o.cache, "toxiproxy-v2.12.0", "server") }

var saramaFunctional = suite{
	name: "sarama", client: "sarama, its functional tests", limit: 25 * time.Minute, proxied: true, noTopics: true, ownNodes: true,
	missing: needs("go"), version: fixed(saramaModule.version),
	fetch: func(ctx context.Context, e *env) error {
		if err := saramaModule.fetch(ctx, e); err != nil {
			return err
		}
		if _, err := os.Stat(toxiproxy(e.options)); err == nil {
			return nil
		}
		cmd := exec.CommandContext(ctx, "go", "install", toxiproxyModule)
		cmd.Dir, cmd.Env = e.cache, append(os.Environ(), "GOBIN="+filepath.Dir(toxiproxy(e.options)), "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", toxiproxyModule, err, lastLine(string(out)))
		}
		return nil
	},
	run: func(ctx context.Context, e *env) ([]result, error) {
		docker, stop, err := e.cluster.serveDocker()
		if err != nil {
			return nil, err
		}
		defer stop()
		g := goTest{dir: saramaModule.source(e.options), pkg: ".", limit: 23 * time.Minute,
			vars:  append(docker, "TOXIPROXY_ADDR=http://"+e.cluster.proxies, "KAFKA_VERSION="+saramaKafka, "COMPAT_PROXIES="+strings.Join(e.cluster.clients, ",")),
			flags: []string{"-tags=functional"}}
		if e.run == "" {
			g.flags = append(g.flags, "-run", saramaTests)
		}
		return g.run(ctx, e)
	},
}

// saramaKafka is what sarama believes to talk to; it negotiates down from there. Its other tests need no broker.
const (
	saramaKafka = "4.0.0"
	saramaTests = "^(TestFunc|TestVersionMatrix|TestReadOnly|TestConsumerGroupDeadlock|TestConsumerHighWater|TestConsumerPartialBatch|TestConsumerFetchFollower|TestInterceptors|TestAsyncProducerRemoteBrokerClosed|TestJava)"
)

// startProxies puts a proxy before each node and returns when they listen.
func (c *cluster) startProxies(ctx context.Context) error {
	type proxy struct {
		Name     string `json:"name"`
		Listen   string `json:"listen"`
		Upstream string `json:"upstream"`
		Enabled  bool   `json:"enabled"`
	}
	var proxies []proxy
	for i := range c.clients {
		proxies = append(proxies, proxy{fmt.Sprintf("kafka%d", i+1), c.clients[i], c.binds[i], true})
	}
	b, err := json.Marshal(proxies)
	if err != nil {
		return err
	}
	file := filepath.Join(c.dir, "proxies.json")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		return err
	}
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	c.proxies = ports[0]
	host, port, _ := net.SplitHostPort(c.proxies)
	cmd := exec.Command(toxiproxy(c.options), "-host", host, "-port", port, "-config", file)
	if err := cmd.Start(); err != nil {
		return err
	}
	c.stopProxies = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	for range 100 {
		if conn, err := net.Dial("tcp", c.clients[2]); err == nil {
			return conn.Close()
		}
		if !sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	return fmt.Errorf("toxiproxy does not come up")
}
