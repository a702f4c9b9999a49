package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// clientsDir holds our programs that use foreign clients.
var clientsDir = filepath.Join("scripts", "compat", "clients")

func nothing(context.Context, *env) error { return nil }

// quiet runs a command and returns the end of what it printed if it fails.
func quiet(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, lastLine(string(out)))
	}
	return nil
}

// said returns the first line that a command prints, for versions.
func said(cmd *exec.Cmd) string {
	out, err := cmd.Output()
	if err != nil {
		return "unknown version"
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
	return string(line)
}

// librdkafka for Go is a module of its own, so that ours needs no C compiler.
var confluentGo = suite{
	name: "confluent-kafka-go", client: "librdkafka through confluent-kafka-go", limit: 15 * time.Minute,
	missing: needs("go", "gcc"),
	fetch: func(ctx context.Context, e *env) error {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(e.cache, "confluent-go"), ".")
		cmd.Dir = filepath.Join(clientsDir, "confluentgo")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOWORK=off", "GOFLAGS=-mod=readonly")
		return quiet(cmd)
	},
	version: func(e *env) string { return said(exec.Command(filepath.Join(e.cache, "confluent-go"), "version")) },
	run: func(ctx context.Context, e *env) ([]result, error) {
		return drive(ctx, e, exec.Command(filepath.Join(e.cache, "confluent-go"), e.addr))
	},
}

const pythonVersions = `import confluent_kafka as c; print(c.version()[0] if isinstance(c.version(), tuple) else c.version(), "with librdkafka", c.libversion()[0])`

// The newest confluent-kafka of the Python registry, in an environment of its own.
const confluentPythonVersion = "2.15.0"

func newPython(o options) string {
	return filepath.Join(o.cache, "confluent-"+confluentPythonVersion, "bin", "python")
}

var confluentPython = suite{
	name: "confluent-python", client: "librdkafka through confluent-kafka for Python", limit: 15 * time.Minute,
	missing: needs("python3"),
	fetch: func(ctx context.Context, e *env) error {
		python := newPython(e.options)
		if exec.CommandContext(ctx, python, "-c", "import confluent_kafka").Run() == nil {
			return nil
		}
		return errors.Join(quiet(exec.CommandContext(ctx, "python3", "-m", "venv", filepath.Dir(filepath.Dir(python)))),
			quiet(exec.CommandContext(ctx, python, "-m", "pip", "install", "-q", "confluent-kafka=="+confluentPythonVersion)))
	},
	version: func(e *env) string { return said(exec.Command(newPython(e.options), "-c", pythonVersions)) },
	run: func(ctx context.Context, e *env) ([]result, error) {
		return drive(ctx, e, exec.Command(newPython(e.options), filepath.Join(clientsDir, "confluent.py"), e.addr))
	},
}

// Debian's package carries a librdkafka of 2023.
var confluentPythonOld = suite{
	name: "confluent-python-old", client: "an old librdkafka through Debian's python3-confluent-kafka", limit: 15 * time.Minute,
	missing: func(options) string {
		if exec.Command("/usr/bin/python3", "-c", "import confluent_kafka").Run() != nil {
			return "/usr/bin/python3 has no confluent_kafka (Debian: apt-get install python3-confluent-kafka)"
		}
		return ""
	},
	fetch:   nothing,
	version: func(*env) string { return said(exec.Command("/usr/bin/python3", "-c", pythonVersions)) },
	run: func(ctx context.Context, e *env) ([]result, error) {
		return drive(ctx, e, exec.Command("/usr/bin/python3", filepath.Join(clientsDir, "confluent.py"), e.addr))
	},
}

// npm is a suite whose program uses a package of the npm registry.
func npm(name, client, pkg, version, program string) suite {
	home := func(o options) string { return filepath.Join(o.cache, name+"-"+version) }
	return suite{
		name: name, client: client, limit: 15 * time.Minute,
		missing: needs("node", "npm"),
		fetch: func(ctx context.Context, e *env) error {
			dir := home(e.options)
			if _, err := os.Stat(filepath.Join(dir, "node_modules", filepath.FromSlash(pkg))); err != nil {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
				if err := quiet(exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--silent", pkg+"@"+version)); err != nil {
					return err
				}
			}
			for _, file := range []string{program, "checks.mjs"} { // to where the package is found
				text, err := os.ReadFile(filepath.Join(clientsDir, file))
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
					return err
				}
			}
			return nil
		},
		version: fixed(version),
		run: func(ctx context.Context, e *env) ([]result, error) {
			return drive(ctx, e, exec.Command("node", filepath.Join(home(e.options), program), e.addr))
		},
	}
}

var (
	kafkajs      = npm("kafkajs", "kafkajs", "kafkajs", "2.2.4", "kafkajs.mjs")
	platformatic = npm("platformatic", "@platformatic/kafka", "@platformatic/kafka", "1.35.0", "platformatic.mjs")
)

// javaLibs is where Kafka's tools are, which make clients and make check-format use too.
func javaLibs(o options) string { return filepath.Join(filepath.Dir(o.cache), "dump-log") }

var javaTools = suite{
	name: "java-tools", client: "Kafka's Java clients, through its own tools", limit: 20 * time.Minute,
	missing: needs("java", "mvn"),
	fetch: func(ctx context.Context, e *env) error {
		if found, _ := filepath.Glob(filepath.Join(javaLibs(e.options), "kafka-tools-*.jar")); len(found) > 0 {
			return nil
		}
		return quiet(exec.CommandContext(ctx, "mvn", "-q", "-B", "--color", "never", "-f", filepath.Join("scripts", "format", "pom.xml"),
			"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+javaLibs(e.options)))
	},
	version: func(e *env) string {
		found, _ := filepath.Glob(filepath.Join(javaLibs(e.options), "kafka-tools-[0-9]*.jar"))
		if len(found) == 0 {
			return "unknown version"
		}
		return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "kafka-tools-"), ".jar")
	},
	run: func(ctx context.Context, e *env) ([]result, error) {
		cmd := exec.Command("bash", filepath.Join(clientsDir, "java.sh"), e.addr, javaLibs(e.options))
		cmd.Env = append(os.Environ(), "WORK="+e.dir)
		return drive(ctx, e, cmd)
	},
}
