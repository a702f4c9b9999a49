package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v4"
)

// EnvPrefix begins the names of the variables that flags can be set by: --log-level is GOPHERLOG_LOG_LEVEL.
const EnvPrefix = "GOPHERLOG"

// FileFlag is the flag, and the variable after EnvPrefix, that names a configuration file.
const FileFlag = "config"

// File returns the option that fills flags from the YAML file named by --config or GOPHERLOG_CONFIG: its keys
// are flag names, and flags and variables win over it. Without such a file the option does nothing. An unreadable
// file is a usage error; unknown keys are found by Parse.
func File(args []string) (kong.Option, error) {
	path := flagValue(DoubleDash(args), FileFlag)
	if path == "" {
		path = os.Getenv(EnvPrefix + "_" + strings.ToUpper(FileFlag))
	}
	if path == "" {
		return kong.OptionFunc(func(*kong.Kong) error { return nil }), nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		hint := "check --config"
		if strings.Contains(path, "=") {
			hint = "--config names a file, and single settings are given with --set"
		}
		return nil, Usage(fmt.Errorf("the configuration file cannot be read: %w; %s", err, hint))
	}
	f, err := parseFile(path, raw)
	if err != nil {
		return nil, Usage(err)
	}
	return kong.Resolvers(f), nil
}

func flagValue(args []string, name string) string {
	for i, a := range args {
		if a == "--" {
			break
		}
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
		if a == "--"+name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// file is a parsed configuration file.
type file struct {
	path   string
	values map[string]*yaml.Node
	lines  map[string]int
}

func parseFile(path string, raw []byte) (*file, error) {
	f := &file{path: path, values: map[string]*yaml.Node{}, lines: map[string]int{}}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("%s is not YAML: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return f, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: want lines of the form key: value, as in addr: 127.0.0.1:9092", path, root.Line)
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i]
		if at, twice := f.lines[key.Value]; twice {
			return nil, fmt.Errorf("%s:%d: key %q stands on line %d already", path, key.Line, key.Value, at)
		}
		f.values[key.Value], f.lines[key.Value] = root.Content[i+1], key.Line
	}
	return f, nil
}

// Validate refuses keys that are no flags; kong calls it.
func (f *file) Validate(app *kong.Application) error {
	known := flagNames(app)
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(f.lines)) {
		if !slices.Contains(known, key) {
			errs = append(errs, fmt.Errorf("%s:%d: unknown key %q%s", f.path, f.lines[key], key, suggest(key, known)))
		}
	}
	return errors.Join(errs...)
}

// Resolve implements kong.Resolver.
func (f *file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	node := f.values[flag.Name]
	if node == nil {
		return nil, nil
	}
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	v, err := plain(node)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %s: %w", f.path, node.Line, flag.Name, err)
	}
	return v, nil
}

// plain turns a node into what kong maps: text, a list of texts, a map of texts.
func plain(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value, nil
	case yaml.SequenceNode:
		var out []any
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return nil, errors.New("want a list of plain values")
			}
			out = append(out, c.Value)
		}
		return out, nil
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i+1].Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("want a plain value for %s", n.Content[i].Value)
			}
			out[n.Content[i].Value] = n.Content[i+1].Value
		}
		return out, nil
	}
	return nil, errors.New("want a plain value")
}

func flagNames(app *kong.Application) (names []string) {
	for _, n := range append(app.Leaves(false), app.Node) {
		for _, group := range n.AllFlags(false) {
			for _, flag := range group {
				if flag.Name != "help" && flag.Name != FileFlag {
					names = append(names, flag.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// suggest names the known word that differs least, if it is near.
func suggest(word string, known []string) string {
	best, far := "", 1+len(word)/3
	for _, k := range known {
		if d := distance(word, k); d <= far {
			best, far = k, d-1
		}
	}
	if best == "" {
		return "; known are: " + strings.Join(known, ", ")
	}
	return fmt.Sprintf(": did you mean %q?", best)
}

// distance is the number of letters to insert, drop or change to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// CheckEnv refuses GOPHERLOG_* variables that set nothing in the parsed grammar, which are misspelt more often than
// not. Names in others belong to other commands and are let through.
func CheckEnv(ctx *kong.Context, environ []string, others ...string) error {
	known := append([]string{EnvPrefix + "_" + strings.ToUpper(FileFlag)}, others...)
	for _, n := range append(ctx.Model.Leaves(false), ctx.Model.Node) {
		for _, group := range n.AllFlags(false) {
			for _, flag := range group {
				known = append(known, flag.Envs...)
			}
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	var errs []error
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, EnvPrefix+"_") && !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("unknown environment variable %s%s", name, suggest(name, known)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Usage(err)
	}
	return nil
}
