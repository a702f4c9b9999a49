package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// place is where something stands in a file, or in an override.
type place struct {
	source       *source
	line, column int
}

// source is a text that nodes come from.
type source struct {
	name  string
	lines []string
}

type nodeKind int

const (
	scalarNode nodeKind = iota
	listNode
	mapNode
)

// node is a YAML value that knows where it stands. The YAML library goes no further than this file.
type node struct {
	kind   nodeKind
	text   string // of a scalar
	null   bool
	items  []*node
	keys   []keyed
	place  place
	values string // the text as written, for labels of sweeps
}

type keyed struct {
	name  string
	place place
	value *node
}

func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for i := range n.keys {
		if n.keys[i].name == name {
			return n.keys[i].value
		}
	}
	return nil
}

func (n *node) set(k keyed) {
	for i := range n.keys {
		if n.keys[i].name == k.name {
			n.keys[i] = k
			return
		}
	}
	n.keys = append(n.keys, k)
}

// maxExtends bounds a chain of extends; a longer one is taken for a circle.
const maxExtends = 8

// readTree reads a file and puts it over the files that it extends.
func readTree(path string, problems *Problems, depth int) *node {
	text, err := os.ReadFile(path)
	if err != nil {
		*problems = append(*problems, Problem{File: path, Message: readError(err)})
		return nil
	}
	src := &source{name: path, lines: strings.Split(string(text), "\n")}
	n := parseText(string(text), src, problems)
	if n == nil {
		return nil
	}
	if n.kind != mapNode {
		problems.add(n.place, "", "a scenario is a mapping of keys to values", "")
		return nil
	}
	base := n.get("extends")
	if base == nil {
		return n
	}
	n.drop("extends")
	switch {
	case base.kind != scalarNode || base.text == "":
		problems.add(base.place, "extends", "names one file", "")
		return n
	case depth == maxExtends:
		problems.add(base.place, "extends", fmt.Sprintf("more than %d files extend each other: is it a circle?", maxExtends), "")
		return n
	}
	file := base.text
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(path), file)
	}
	below := readTree(file, problems, depth+1)
	if below == nil {
		problems.add(base.place, "extends", fmt.Sprintf("%s could not be used", base.text), "")
		return n
	}
	return over(below, n)
}

func readError(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "there is no such file"
	}
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

func (n *node) drop(name string) {
	for i := range n.keys {
		if n.keys[i].name == name {
			n.keys = append(n.keys[:i:i], n.keys[i+1:]...)
			return
		}
	}
}

// over merges top into base: mappings key by key, everything else replaced.
func over(base, top *node) *node {
	if base == nil || base.kind != mapNode || top.kind != mapNode {
		return top
	}
	out := *base
	out.keys = append([]keyed(nil), base.keys...)
	for _, k := range top.keys {
		k.value = over(base.get(k.name), k.value)
		out.set(k)
	}
	out.place = top.place
	return &out
}

// parseText reads one YAML document.
func parseText(text string, src *source, problems *Problems) *node {
	var doc yaml.Node
	if err := yaml.Load([]byte(text), &doc); err != nil {
		problems.addYAML(src, err)
		return nil
	}
	root := &doc
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	return convert(root, src, problems)
}

func convert(y *yaml.Node, src *source, problems *Problems) *node {
	if y.Kind == yaml.AliasNode {
		problems.add(place{src, y.Line, y.Column}, "", "aliases are not part of the vocabulary: write the value, or extend a file", "")
		return &node{null: true, place: place{src, y.Line, y.Column}}
	}
	n := &node{place: place{src, y.Line, y.Column}}
	switch y.Kind {
	case yaml.MappingNode:
		n.kind = mapNode
		for i := 0; i+1 < len(y.Content); i += 2 {
			k := y.Content[i]
			at := place{src, k.Line, k.Column}
			if n.get(k.Value) != nil {
				problems.add(at, k.Value, "is given twice", "")
				continue
			}
			n.keys = append(n.keys, keyed{k.Value, at, convert(y.Content[i+1], src, problems)})
		}
	case yaml.SequenceNode:
		n.kind = listNode
		for _, c := range y.Content {
			n.items = append(n.items, convert(c, src, problems))
		}
	default:
		n.text, n.null = y.Value, y.Tag == "!!null"
	}
	n.values = n.compact()
	return n
}

// compact is the value on one line.
func (n *node) compact() string {
	switch n.kind {
	case listNode:
		parts := make([]string, len(n.items))
		for i, c := range n.items {
			parts[i] = c.compact()
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case mapNode:
		parts := make([]string, len(n.keys))
		for i, k := range n.keys {
			parts[i] = k.name + ": " + k.value.compact()
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return n.text
}

// applySet puts -set key=value into the tree. Below a mapping of free keys the rest of the path is one key, dots included.
func applySet(root *node, set string, problems *Problems) {
	src := &source{name: "-set " + set, lines: []string{set}}
	at := place{src, 1, 1}
	path, text, ok := strings.Cut(set, "=")
	if !ok || path == "" {
		problems.add(at, "", "an override is written key=value", "")
		return
	}
	value := &node{place: at}
	if text != "" {
		if value = parseText(text, src, problems); value == nil {
			return
		}
		value.shift(len(path) + 1)
	}
	n := root
	segments := splitPath(path)
	for i, name := range segments {
		last := i == len(segments)-1
		if n.kind == listNode {
			at, err := strconv.Atoi(name)
			if err != nil || at < 0 || at >= len(n.items) {
				problems.add(place{src, 1, 1}, path, fmt.Sprintf("%q is not one of %d entries, counted from 0", name, len(n.items)), "")
				return
			}
			if last {
				n.items[at] = value
				return
			}
			n = n.items[at]
			continue
		}
		if n.kind != mapNode {
			problems.add(at, path, fmt.Sprintf("there is nothing below %q", strings.Join(segments[:i], ".")), "")
			return
		}
		if last {
			n.set(keyed{name, at, value})
			return
		}
		next := n.get(name)
		if next == nil || next.kind == scalarNode {
			next = &node{kind: mapNode, place: at}
			n.set(keyed{name, at, next})
		}
		n = next
	}
}

// shift moves the places of an override's value behind its key.
func (n *node) shift(by int) {
	if n.place.line == 1 {
		n.place.column += by
	}
	for _, c := range n.items {
		c.shift(by)
	}
	for i := range n.keys {
		if n.keys[i].place.line == 1 {
			n.keys[i].place.column += by
		}
		n.keys[i].value.shift(by)
	}
}

// splitPath cuts a dotted path; what follows a mapping of free keys stays whole, and name[2] is name.2.
func splitPath(path string) []string {
	path = strings.ReplaceAll(strings.ReplaceAll(path, "[", "."), "]", "")
	for _, free := range []string{"target.settings.", "producers.overrides."} {
		if rest, ok := strings.CutPrefix(path, free); ok {
			return append(strings.Split(strings.TrimSuffix(free, "."), "."), rest)
		}
	}
	parts := strings.Split(path, ".")
	if len(parts) > 4 && parts[0] == "topics" && parts[2] == "config" {
		return append(parts[:3:3], strings.Join(parts[3:], "."))
	}
	return parts
}
