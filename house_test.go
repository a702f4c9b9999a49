// Package house_test holds the rules of the house: which room may know which, where each heavy dependency has its one door, and that
// what the documents name exists. It knows the tree as text and `go list`, and nothing of what the code does.
package house_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "gopherlog/"

// room is a package as `go list` tells it.
type room struct {
	ImportPath, Name, Doc, Dir         string
	Imports, TestImports, XTestImports []string
	GoFiles                            []string
}

// path is the import path inside the module.
func (r room) path() string { return strings.TrimPrefix(r.ImportPath, module) }

func (r room) testImports() []string { return slices.Concat(r.TestImports, r.XTestImports) }

// rooms lists every package of the module but this one.
func rooms(t *testing.T) []room {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Doc,Dir,Imports,TestImports,XTestImports,GoFiles", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []room
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var r room
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if r.ImportPath != strings.TrimSuffix(module, "/") {
			all = append(all, r)
		}
	}
}

// mapRow matches a row of the map in ARCHITECTURE: | `engine/log` | `engine/vfs`, … | job |
var mapRow = regexp.MustCompile("^\\| `([a-z0-9/]+)` \\| ([^|]*) \\|")

// readMap returns the rooms that each room may import.
func readMap(t *testing.T) map[string][]string {
	t.Helper()
	allowed := map[string][]string{}
	for _, line := range lines(t, "docs/ARCHITECTURE.md") {
		m := mapRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		allowed[m[1]] = []string{}
		for w := range strings.SplitSeq(m[2], ",") {
			if w = strings.Trim(w, " `"); w != "" && w != "–" {
				allowed[m[1]] = append(allowed[m[1]], w)
			}
		}
	}
	if len(allowed) < 10 {
		t.Fatalf("docs/ARCHITECTURE.md: found %d rows of the map", len(allowed))
	}
	return allowed
}

func lines(t *testing.T, file string) (out []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		out = append(out, s.Text())
	}
	return out
}

// Imports and map agree in both directions: an arrow that the map does not show fails, and so does one that no code uses any more.
func TestArrowsAreThoseOfTheMap(t *testing.T) {
	allowed := readMap(t)
	for _, r := range rooms(t) {
		want, ok := allowed[r.path()]
		if !ok {
			t.Errorf("%s is not in the map of docs/ARCHITECTURE.md", r.path())
			continue
		}
		delete(allowed, r.path())
		for _, imp := range r.Imports {
			if inner, ours := strings.CutPrefix(imp, module); ours && !slices.Contains(want, inner) {
				t.Errorf("%s imports %s: the map of docs/ARCHITECTURE.md does not show that arrow", r.path(), inner)
			}
		}
		for _, inner := range want {
			if !slices.Contains(r.Imports, module+inner) {
				t.Errorf("%s does not import %s any more: take the arrow out of docs/ARCHITECTURE.md", r.path(), inner)
			}
		}
	}
	for name := range allowed {
		t.Errorf("docs/ARCHITECTURE.md names %s, which does not exist", name)
	}
}

// floors, lowest first. A room imports its own floor and those below.
var floors = []string{"engine", "txn", "cluster"}

func TestArrowsPointDown(t *testing.T) {
	level := func(path string) int {
		floor, _, _ := strings.Cut(path, "/")
		return slices.Index(floors, floor)
	}
	for _, r := range rooms(t) {
		own := level(r.path())
		if own < 0 {
			continue
		}
		for _, imp := range r.Imports {
			inner, ours := strings.CutPrefix(imp, module)
			if ours && (level(inner) < 0 || level(inner) > own) {
				t.Errorf("%s imports %s, which is above it", r.path(), inner)
			}
		}
	}
}

// What judges the broker shares no code with it, not even in tests.
func TestHarnessKnowsNothingOfTheBroker(t *testing.T) {
	for _, r := range rooms(t) {
		if !strings.HasPrefix(r.path(), "bench/") && r.path() != "cmd/mqbench" {
			continue
		}
		for _, imp := range slices.Concat(r.Imports, r.testImports()) {
			for _, floor := range floors {
				if strings.HasPrefix(imp, module+floor+"/") {
					t.Errorf("%s imports %s", r.path(), imp)
				}
			}
		}
	}
}

// doors name the only rooms that may import a dependency; with testsToo the rule holds for their tests as well. scripts/microbench
// measures the rooms beside loops that use the same dependency bare, scripts/scale asks nodes without a client in between.
var doors = []struct {
	name, prefix string
	except       string // a longer prefix that has a door of its own
	rooms        []string
	testsToo     bool
}{
	{name: "Pebble", prefix: "github.com/cockroachdb/pebble", rooms: []string{"engine/vfs", "engine/kv"}, testsToo: true},
	{name: "kmsg", prefix: "github.com/twmb/franz-go/pkg/kmsg", rooms: []string{"engine/wire", "cluster/broker", "cluster/coordinator", "bench/load", "cmd/mqclient", "scripts/microbench", "scripts/scale"}},
	{name: "franz-go", prefix: "github.com/twmb/franz-go", except: "github.com/twmb/franz-go/pkg/kmsg", rooms: []string{"bench/load", "cmd/mqclient", "scripts/microbench", "scripts/scale"}},
	{name: "gRPC", prefix: "google.golang.org/grpc", rooms: []string{"cluster/rpc", "cluster/rpc/rpcpb", "scripts/microbench"}, testsToo: true},
	{name: "hashicorp/raft", prefix: "github.com/hashicorp", rooms: []string{"cluster/replica", "cluster/rpc"}, testsToo: true},
	{name: "HdrHistogram", prefix: "github.com/HdrHistogram", rooms: []string{"bench/hdr"}, testsToo: true},
	{name: "gonum/plot", prefix: "gonum.org/v1/plot", rooms: []string{"bench/report"}, testsToo: true},
	{name: "nftables", prefix: "github.com/google/nftables", rooms: []string{"bench/fault"}, testsToo: true},
	{name: "the YAML library", prefix: "go.yaml.in/yaml", rooms: []string{"bench/scenario", "cmd/internal/cli", "cmd/server"}},
	{name: "kong", prefix: "github.com/alecthomas/kong", rooms: []string{"cmd/internal/cli", "cmd/server", "cmd/mqclient", "cmd/mqvalidate", "cmd/mqbench"}},
}

func TestHeavyDependenciesHaveOneDoor(t *testing.T) {
	for _, r := range rooms(t) {
		for _, d := range doors {
			if slices.Contains(d.rooms, r.path()) {
				continue
			}
			imports := r.Imports
			if d.testsToo {
				imports = slices.Concat(imports, r.testImports())
			}
			for _, imp := range imports {
				if strings.HasPrefix(imp, d.prefix) && (d.except == "" || !strings.HasPrefix(imp, d.except)) {
					t.Errorf("%s imports %s; %s comes in through %s only", r.path(), imp, d.name, strings.Join(d.rooms, ", "))
				}
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, r := range rooms(t) {
		want := "Package " + r.Name + " "
		if r.Name == "main" {
			want = "Command " + filepath.Base(r.path()) + " "
		}
		if !strings.HasPrefix(r.Doc, want) {
			t.Errorf("%s: the package comment begins %q, want %q (it must touch the package line)", r.path(), r.Doc, want+"…")
		}
		if slices.Contains([]string{"util", "utils", "common", "types", "helpers"}, r.Name) {
			t.Errorf("%s: %q says nothing about what is in it", r.path(), r.Name)
		}
	}
}

// maxLines of a file that people write. Most have well under 200.
const maxLines = 600

func TestFilesStayShort(t *testing.T) {
	for _, r := range rooms(t) {
		for _, f := range r.GoFiles {
			if strings.HasSuffix(f, ".pb.go") {
				continue
			}
			if n := len(lines(t, filepath.Join(r.Dir, f))); n > maxLines {
				t.Errorf("%s/%s has %d lines, more than %d", r.path(), f, n, maxLines)
			}
		}
	}
}
