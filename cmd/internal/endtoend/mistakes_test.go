package endtoend

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sentence checks that a command ended with the code and one sentence that holds the words, and no stack trace.
func sentence(t *testing.T, r result, code int, words ...string) {
	t.Helper()
	text := strings.TrimSpace(r.err)
	if r.code != code {
		t.Errorf("exit code %d, want %d: %s", r.code, code, text)
	}
	if strings.Count(text, "\n") > 0 || strings.Contains(text, "goroutine ") || strings.Contains(text, ".go:") {
		t.Errorf("not one clear sentence:\n%s", text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWrongFlagsAreOneSentenceAndExitCodeTwo(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	for name, c := range map[string]struct {
		args  []string
		words []string
	}{
		"misspelt flag":          {[]string{"-adr", ":9092"}, []string{"--adr", "--addr"}},
		"address without a port": {[]string{"-addr", "localhost"}, []string{"-addr", "HOST:PORT"}},
		"port too large":         {[]string{"-addr", "localhost:99999"}, []string{"-addr", "99999"}},
		"id zero":                {[]string{"-id", "0"}, []string{"-id is 0", "from 1 on"}},
		"id no number":           {[]string{"-id", "one"}, []string{"--id", "one"}},
		"peers without self":     {[]string{"-peers", "2@127.0.0.1:1"}, []string{"-peers", "-rpc"}},
		"peers without id":       {[]string{"-peers", "127.0.0.1:1"}, []string{"-peers", "ID@HOST:PORT"}},
		"peer twice":             {[]string{"-peers", "1@a:1,1@b:1"}, []string{"node 1", "twice"}},
		"advertise no address":   {[]string{"-advertise", "host:port"}, []string{"-advertise", "HOST:PORT"}},
		"source no address":      {[]string{"-bind-source", "here"}, []string{"-bind-source", "here"}},
		"control without token":  {[]string{"-control", "127.0.0.1:1"}, []string{"-control-token"}},
		"pprof without admin":    {[]string{"-pprof"}, []string{"-admin"}},
		"unknown setting":        {[]string{"-set", "retention.sm=1"}, []string{"retention.sm"}},
		"setting out of range":   {[]string{"-set", "num.partitions=0"}, []string{"num.partitions", "1 to"}},
		"unknown log level":      {[]string{"-log-level", "loud"}, []string{"--log-level", "loud"}},
		"missing config":         {[]string{"-config", "/nonexistent/file"}, []string{"/nonexistent/file", "--config"}},
		"config no YAML":         {[]string{"-config", file(t, "addr: [")}, []string{"not YAML"}},
		"config no mapping":      {[]string{"-config", file(t, "- addr")}, []string{":1:", "key: value"}},
		"config unknown key":     {[]string{"-config", file(t, "id: 1\nadr: x:1\n")}, []string{":2:", `"adr"`, `"addr"`}},
		"config key twice":       {[]string{"-config", file(t, "id: 1\nid: 2\n")}, []string{":2:", "line 1"}},
		"config nested":          {[]string{"-config", file(t, "id: {a: 1}\n")}, []string{"id"}},
		"stray argument":         {[]string{"start"}, []string{"start"}},
		"dev with no node":       {[]string{"dev", "-nodes", "0"}, []string{"-nodes is 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := c.args
			if args[0] != "dev" && args[0] != "start" {
				args = append(args, "-data", data)
			}
			sentence(t, try(t, "", "server", args...), 2, c.words...)
		})
	}
	if _, err := os.Stat(data); err == nil {
		t.Error("a wrong flag left a data directory behind")
	}
}

func TestSeveralMistakesAreReportedAtOnce(t *testing.T) {
	r := try(t, "", "server", "-addr", "x", "-id=-3", "-advertise", "a:b")
	for _, flag := range []string{"-addr", "-id", "-advertise"} {
		if !strings.Contains(r.err, flag) {
			t.Errorf("no word of %s in\n%s", flag, r.err)
		}
	}
	if r.code != 2 {
		t.Errorf("exit code %d", r.code)
	}
}

func TestWhatTheMachineRefusesIsOneSentenceAndExitCodeThree(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	addr := func() string { return freeAddr(t) }
	taken := t.TempDir()
	one(t, taken)
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "meta.properties"), []byte("version=1\nbroker.id=0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args  []string
		words []string
	}{
		"address in use":         {[]string{"-addr", busy.Addr().String(), "-data", t.TempDir()}, []string{"-addr", busy.Addr().String(), "in use"}},
		"address of another":     {[]string{"-addr", "192.0.2.1:9092", "-data", t.TempDir()}, []string{"192.0.2.1", "does not have"}},
		"unknown host":           {[]string{"-addr", "host.invalid:9092", "-data", t.TempDir()}, []string{"host.invalid"}},
		"directory in use":       {[]string{"-addr", addr(), "-data", taken}, []string{taken, "in use by another server"}},
		"directory of a program": {[]string{"-addr", addr(), "-data", foreign}, []string{"meta.properties", "another program"}},
		"data is a file":         {[]string{"-addr", addr(), "-data", file(t, "")}, []string{"not a directory"}},
		"data cannot be made":    {[]string{"-addr", addr(), "-data", "/proc/nowhere/data"}, []string{"/proc/nowhere", "-data"}},
	} {
		t.Run(name, func(t *testing.T) { sentence(t, try(t, "", "server", c.args...), 3, c.words...) })
	}
}

func TestDirectoryOfAnotherNodeIsRefused(t *testing.T) {
	data := t.TempDir()
	p, _ := one(t, data)
	p.stop(t, 15)
	sentence(t, try(t, "", "server", "-id", "2", "-addr", freeAddr(t), "-data", data), 3, data, "node 1", "node 2")
}

func TestDamagedStoreAndIdentityAreNamed(t *testing.T) {
	data := t.TempDir()
	p, _ := one(t, data)
	p.stop(t, 15)
	identity := filepath.Join(data, "meta.properties")
	raw, err := os.ReadFile(identity)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(identity, append([]byte(nil), strings.Replace(string(raw), "node.id=1", "node.id=2", 1)...), 0o644); err != nil {
		t.Fatal(err)
	}
	sentence(t, try(t, "", "server", "-addr", freeAddr(t), "-data", data), 3, "meta.properties", "damaged")
	if r := try(t, "", "mqvalidate", data); r.code != 1 || !strings.Contains(r.out, "meta.properties") {
		t.Errorf("mqvalidate: exit code %d: %s", r.code, r.out)
	}
	if err := os.WriteFile(identity, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Glob(filepath.Join(data, "kv", "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatal("no manifest", err)
	}
	for _, m := range manifests {
		if err := os.WriteFile(m, []byte("garbage, long enough to be read as something"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sentence(t, try(t, "", "server", "-addr", freeAddr(t), "-data", data), 3, filepath.Join(data, "kv"), "damaged")
	if r := try(t, "", "mqvalidate", data); r.code != 1 || !strings.Contains(r.out, filepath.Join(data, "kv")) {
		t.Errorf("mqvalidate: exit code %d: %s", r.code, r.out)
	}
}

func TestFlagsWinOverVariablesWinOverFile(t *testing.T) {
	conf := file(t, "addr: file.invalid:1\nadmin: 127.0.0.1:0\ndata: /nonexistent/file\n")
	flag, data := freeAddr(t), t.TempDir()
	p := start(t, []string{"GOPHERLOG_CONFIG=" + conf, "GOPHERLOG_ADDR=env.invalid:1", "GOPHERLOG_DATA=" + data}, "-addr", flag)
	eventually(t, func() error {
		if !strings.Contains(p.log.String(), "clients at "+flag+", data in "+data) {
			return fmt.Errorf("the server says\n%s", p.log)
		}
		return nil
	})
}

func TestUnknownVariableIsRefused(t *testing.T) {
	p := start(t, []string{"GOPHERLOG_ADVERTIZE=x:1"}, "-addr", freeAddr(t), "-data", t.TempDir())
	if code := p.wait(t); code != 2 || !strings.Contains(p.log.String(), "GOPHERLOG_ADVERTISE") {
		t.Errorf("exit code %d: %s", code, p.log)
	}
}

func TestBindingAllInterfacesWarnsInOneLine(t *testing.T) {
	port := freePort(t)
	data := t.TempDir()
	admin := freeAddr(t)
	p := start(t, nil, "-addr", ":"+port, "-admin", admin, "-data", data, "-advertise", "broker.example:9092")
	ready(t, admin)
	if n := strings.Count(p.log.String(), "can be reached from other machines"); n != 1 {
		t.Errorf("%d warnings in\n%s", n, p.log)
	}
	if got := try(t, "", "mqclient", "cluster", "status", "-addr", "127.0.0.1:"+port); !strings.Contains(got.out, "broker.example:9092") {
		t.Errorf("clients are told\n%s", got.out)
	}
}

func TestSecondSignalForces(t *testing.T) {
	p, _ := one(t, t.TempDir())
	// The first signal may do its work before the second arrives: then 0 is right too.
	_ = p.cmd.Process.Signal(os.Interrupt)
	_ = p.cmd.Process.Signal(os.Interrupt)
	if code := p.wait(t); code != 130 && code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
}

func TestClientMistakes(t *testing.T) {
	_, addr := one(t, t.TempDir())
	dead := freeAddr(t)
	for name, c := range map[string]struct {
		args  []string
		code  int
		words []string
	}{
		"no server":              {[]string{"topic", "list", "-addr", dead}, 3, []string{dead, "is the server running"}},
		"no topic":               {[]string{"produce", "-addr", addr, "-value", "x"}, 2, []string{"--topic"}},
		"empty topic":            {[]string{"produce", "-addr", addr, "-topic", "", "-value", "x"}, 2, []string{"-topic is empty"}},
		"read an empty topic":    {[]string{"consume", "-addr", addr, "-topic", ""}, 2, []string{"-topic is empty"}},
		"key and keyed":          {[]string{"produce", "-addr", addr, "-topic", "t", "-key", "k", "-keyed"}, 2, []string{"--key", "--keyed"}},
		"address no port":        {[]string{"topic", "list", "-addr", "127.0.0.1:abc"}, 2, []string{"-addr", "127.0.0.1:abc", "HOST:PORT"}},
		"no time":                {[]string{"topic", "list", "-addr", addr, "-timeout", "0s"}, 2, []string{"-timeout is 0s"}},
		"value and file":         {[]string{"produce", "-addr", addr, "-topic", "t", "-value", "x", "-file", "/etc/hosts"}, 2, []string{"--value", "--file"}},
		"unknown topic":          {[]string{"consume", "-addr", addr, "-topic", "nope"}, 1, []string{"no topic nope"}},
		"describe unknown topic": {[]string{"topic", "describe", "-addr", addr, "nope"}, 1, []string{"nope"}},
		"delete unknown topic":   {[]string{"topic", "delete", "-addr", addr, "nope"}, 1, []string{"nope"}},
		"bad topic name":         {[]string{"topic", "create", "-addr", addr, "a b"}, 1, []string{"a b"}},
		"bad setting":            {[]string{"topic", "create", "-addr", addr, "t", "-set", "retention.ms=x"}, 1, []string{"retention.ms"}},
		"too many replicas":      {[]string{"topic", "create", "-addr", addr, "t", "-replication-factor", "3"}, 1, []string{"replica"}},
		"bad offset":             {[]string{"consume", "-addr", addr, "-topic", "t", "-offset", "yesterday"}, 2, []string{"-offset", "yesterday"}},
		"all and follow":         {[]string{"consume", "-addr", addr, "-topic", "t", "-all", "-follow"}, 2, []string{"-all", "-follow"}},
		"fewer than none":        {[]string{"consume", "-addr", addr, "-topic", "t", "-count=-1"}, 2, []string{"-count is -1"}},
		"group in no state":      {[]string{"group", "list", "-addr", addr, "-state", "Stale"}, 2, []string{"-state", "Stale", "Stable"}},
		"txn in no state":        {[]string{"txn", "list", "-addr", addr, "-state", "Open"}, 2, []string{"-state", "Open", "Ongoing"}},
		"recover a dead node":    {[]string{"cluster", "recover", "-addr", addr, "-after-power-loss", "-admin", dead}, 3, []string{dead, "refused"}},
		"recover at a URL":       {[]string{"cluster", "recover", "-addr", addr, "-after-power-loss", "-admin", "http://h:1"}, 2, []string{"-admin", "HOST:PORT"}},
		"recover unasked":        {[]string{"cluster", "recover", "-addr", addr}, 2, []string{"-after-power-loss"}},
		"unknown command":        {[]string{"frobnicate"}, 2, []string{"frobnicate"}},
	} {
		t.Run(name, func(t *testing.T) { sentence(t, try(t, "", "mqclient", c.args...), c.code, c.words...) })
	}
}

func TestValidateMistakes(t *testing.T) {
	sentence(t, try(t, "", "mqvalidate", "/nonexistent/dir"), 3, "/nonexistent/dir")
	sentence(t, try(t, "", "mqvalidate", t.TempDir()), 3, "not a GopherLog data directory")
	sentence(t, try(t, "", "mqvalidate"), 2, "dir")
	sentence(t, try(t, "", "mqvalidate", "dump", t.TempDir()), 2, "directory")
	sentence(t, try(t, "", "mqvalidate", "dump", file(t, "x")), 1, "file")
}
