package price

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gopherlog/bench/load"
	"gopherlog/bench/target"
)

// guarded is one node of Apache Kafka that asks who comes, and lets nobody but its super users do anything without an ACL.
type guarded struct {
	sasl, ssl string // addresses
	tls       *tls.Config
}

const guardedProperties = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[2]s
controller.listener.names=CONTROLLER
listeners=SASL://%[1]s,CONTROLLER://%[2]s,INNER://%[3]s,SSL://%[4]s
advertised.listeners=SASL://%[1]s,INNER://%[3]s,SSL://%[4]s
inter.broker.listener.name=INNER
listener.security.protocol.map=SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT,INNER:PLAINTEXT,SSL:SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_root="root-secret" user_ada="ada-secret";
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.ssl.ssl.keystore.type=PEM
listener.name.ssl.ssl.keystore.location=%[5]s/node.pem
listener.name.ssl.ssl.truststore.type=PEM
listener.name.ssl.ssl.truststore.location=%[5]s/ca.pem
listener.name.ssl.ssl.client.auth=required
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:root;User:ANONYMOUS;User:CN=node
log.dirs=%[5]s/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
`

const guardedLogging = `rootLogger.level = WARN
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
`

// guardedStart is what a node may take to come up on a busy machine.
const guardedStart = 2 * time.Minute

// startGuarded starts a node, or skips the test where there is no Kafka to start.
func startGuarded(t *testing.T) *guarded {
	t.Helper()
	java, jars, _, err := target.FindKafka()
	if err != nil {
		t.Skip("needs Apache Kafka: ", err)
	}
	dir := t.TempDir()
	at := freeAddresses(t, 4)
	g := &guarded{sasl: at[0], ssl: at[3], tls: writeCertificates(t, dir)}
	properties, logging := filepath.Join(dir, "server.properties"), filepath.Join(dir, "log4j2.properties")
	if err := errors.Join(os.WriteFile(properties, fmt.Appendf(nil, guardedProperties, at[0], at[1], at[2], at[3], dir), 0o600), os.WriteFile(logging, []byte(guardedLogging), 0o600)); err != nil {
		t.Fatal(err)
	}
	command := func(program ...string) *exec.Cmd {
		return exec.Command(java, append([]string{"-Xmx384m", "-Dlog4j2.configurationFile=" + logging, "-cp", filepath.Join(jars, "*")}, program...)...)
	}
	if out, err := command("kafka.tools.StorageTool", "format", "--cluster-id", "R29waGVyTG9nQmVuY2hNUQ", "--config", properties).CombinedOutput(); err != nil {
		t.Fatalf("format: %v: %s", err, out)
	}
	printed, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	node := command("kafka.Kafka", properties)
	node.Stderr = printed
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Process.Kill()
		_ = node.Wait()
		if b, _ := os.ReadFile(printed.Name()); t.Failed() {
			t.Logf("the node printed: %s", b[max(0, len(b)-2000):])
		}
		printed.Close()
	})
	g.await(t)
	return g
}

// await returns when the node answers a user that it knows.
func (g *guarded) await(t *testing.T) {
	t.Helper()
	root := g.as(t, "PLAIN", "root", "root-secret")
	for end := time.Now().Add(guardedStart); ; time.Sleep(200 * time.Millisecond) {
		f, err := root.Facts(t.Context())
		if err == nil && len(f.Brokers) == 1 && f.Brokers[0].Unreachable == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the node did not come up: %v", err)
		}
	}
}

func (g *guarded) as(t *testing.T, mechanism, user string, password load.Secret) *load.Inspector {
	t.Helper()
	return inspect(t, g.sasl, &load.Security{Mechanism: mechanism, User: user, Password: password})
}

func inspect(t *testing.T, addr string, s *load.Security) *load.Inspector {
	t.Helper()
	i, err := load.NewInspector(load.KafkaConfig{Bootstrap: []string{addr}, Security: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

func freeAddresses(t *testing.T, n int) (out []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // all at the end, so that they differ
		out = append(out, l.Addr().String())
	}
	return out
}

// writeCertificates makes one certificate that is authority, node and client in one, in the files that Kafka reads.
func writeCertificates(t *testing.T, dir string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pair := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), ca...)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600), os.WriteFile(filepath.Join(dir, "node.pem"), pair, 0o600)); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
