package scenario

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// decoder fills a Scenario from a tree, driven by the struct tags: the same tags write the documentation and the schema.
// It collects every problem, and every sweep: a scalar that is given as a list.
type decoder struct {
	problems *Problems
	places   map[string]place // path → where its value stands
	given    map[string]bool  // paths that the file names
	sweeps   []*sweep         // in order of appearance
	byNode   map[*node]*sweep
	broken   map[string]bool // keys of the first level below which the current cell has values that could not be read; "" = any may be meant
}

// sweep is a scalar given as a list, and the entry that the current cell has.
type sweep struct {
	path string
	list *node
	at   int
}

// sections are the keys of a scenario's first level.
var sections = func() (names []string) {
	fields, _ := fieldsOf(reflect.TypeFor[Scenario]())
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}()

func newDecoder(problems *Problems) *decoder {
	return &decoder{problems: problems, byNode: map[*node]*sweep{}}
}

// scenario decodes one cell: the current entry of every sweep.
func (d *decoder) scenario(root *node) Scenario {
	d.places, d.given, d.broken = map[string]place{}, map[string]bool{}, map[string]bool{}
	var s Scenario
	d.object(reflect.ValueOf(&s).Elem(), root, "")
	return s
}

// report notes a problem of the cell at hand.
func (d *decoder) report(at place, path, message, hint string) {
	section, _, _ := strings.Cut(path, ".")
	if !contains(sections, section) {
		section = "" // a key with a slip of the pen: whichever was meant has its default now
	}
	d.broken[section] = true
	d.problems.add(at, path, message, hint)
}

func (d *decoder) fail(n *node, path string, err error) {
	message := err.Error()
	if errors.Is(err, errLater) {
		message = strings.TrimPrefix(message, errLater.Error()+": ") + ": " + errLater.Error()
	}
	d.report(n.place, path, message, "")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// object decodes a mapping into a struct; n may be nil, then all fields take their defaults.
func (d *decoder) object(v reflect.Value, n *node, path string) {
	if n != nil && n.null {
		n = nil
	}
	if n != nil && n.kind != mapNode {
		d.fail(n, path, errors.New("must be a mapping of keys to values"))
		return
	}
	fields, later := fieldsOf(v.Type())
	if n != nil {
		d.unknownKeys(n, path, fields, later)
	}
	for _, f := range fields {
		at := join(path, f.name)
		value := n.get(f.name)
		if value != nil {
			d.given[at], d.places[at] = true, value.place
		} else if n != nil {
			d.places[at] = n.place
			if f.tag.Get("required") != "" {
				d.report(n.place, at, "is missing", "")
			}
		}
		d.field(v.Field(f.index), f, value, at)
	}
}

func (d *decoder) unknownKeys(n *node, path string, fields []field, later []string) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	for _, k := range n.keys {
		if contains(later, k.name) {
			d.report(k.place, join(path, k.name), errLater.Error(), "")
			continue
		}
		if !contains(names, k.name) {
			hint := ""
			if near := nearest(k.name, append(append([]string(nil), names...), later...)); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			} else {
				hint = "known here: " + strings.Join(names, ", ")
			}
			d.report(k.place, join(path, k.name), "unknown key", hint)
		}
	}
}

// field decodes one struct field. n is nil where the file does not name it.
func (d *decoder) field(v reflect.Value, f field, n *node, path string) {
	if n != nil && n.null {
		n = nil
	}
	t := v.Type()
	switch {
	case isScalar(t):
		d.scalar(v, f, n, path)
	case t.Kind() == reflect.Struct:
		d.object(v, n, path)
	case t.Kind() == reflect.Map:
		d.freeKeys(v, n, path)
	case t.Kind() == reflect.Slice:
		d.list(v, f, n, path)
	default:
		panic(fmt.Sprintf("scenario: field %s of type %v", path, t))
	}
}

// scalar decodes a scalar, or the current entry of a sweep.
func (d *decoder) scalar(v reflect.Value, f field, n *node, path string) {
	if n == nil {
		if def, ok := f.tag.Lookup("default"); ok && def != "" {
			if err := parseInto(v, &node{text: def}); err != nil {
				panic(fmt.Sprintf("scenario: default of %s: %v", path, err))
			}
		}
		return
	}
	if n = d.pick(n, path); n == nil {
		return
	}
	d.places[path] = n.place
	if err := checkWord(f, n); err != nil {
		d.fail(n, path, err)
		return
	}
	if err := parseInto(v, n); err != nil {
		d.fail(n, path, err)
		return
	}
	if err := checkRange(v, f); err != nil {
		d.fail(n, path, err)
	}
}

// pick resolves a sweep to its current entry.
func (d *decoder) pick(n *node, path string) *node {
	if n.kind != listNode {
		return n
	}
	if len(n.items) == 0 {
		d.fail(n, path, errors.New("an empty list of values"))
		return nil
	}
	s := d.byNode[n]
	if s == nil {
		s = &sweep{path: path, list: n}
		d.byNode[n] = s
		d.sweeps = append(d.sweeps, s)
		seen := map[string]bool{}
		for _, item := range n.items {
			if item.kind == listNode {
				d.fail(item, path, errors.New("a list within a list of values"))
				return nil
			}
			if seen[item.values] {
				d.fail(item, path, fmt.Errorf("%s is in the list twice", item.values))
			}
			seen[item.values] = true
		}
	}
	if item := s.list.items[s.at]; item.kind != listNode {
		return item
	}
	return nil
}

func (d *decoder) freeKeys(v reflect.Value, n *node, path string) {
	if n == nil {
		return
	}
	if n.kind != mapNode {
		d.fail(n, path, errors.New("must be a mapping of keys to values"))
		return
	}
	m := map[string]string{}
	for _, k := range n.keys {
		at := join(path, k.name)
		d.given[at], d.places[at] = true, k.place
		if value := d.pick(k.value, at); value != nil {
			if value.kind != scalarNode {
				d.fail(value, at, errors.New("must be one value"))
				continue
			}
			m[k.name] = value.text
		}
	}
	v.Set(reflect.ValueOf(m))
}

func (d *decoder) list(v reflect.Value, f field, n *node, path string) {
	if n == nil {
		return
	}
	if word := f.tag.Get("scalar"); word != "" && n.kind == scalarNode {
		if n.text != word {
			d.fail(n, path, fmt.Errorf("must be %q or a list", word))
		}
		return
	}
	if n.kind != listNode {
		d.fail(n, path, errors.New("must be a list"))
		return
	}
	out := reflect.MakeSlice(v.Type(), 0, len(n.items))
	for i, item := range n.items {
		at := join(path, strconv.Itoa(i))
		d.given[at], d.places[at] = true, item.place
		e := reflect.New(v.Type().Elem()).Elem()
		switch {
		case isScalar(e.Type()) && item.kind == listNode:
			d.fail(item, at, errors.New("must be one value"))
			continue
		case isScalar(e.Type()):
			d.scalar(e, field{name: f.name, tag: reflect.StructTag(`enum:"` + f.tag.Get("each") + `"`)}, item, at)
		default:
			d.object(e, item, at)
		}
		out = reflect.Append(out, e)
	}
	v.Set(out)
}

// checkWord refuses words outside an enumeration.
func checkWord(f field, n *node) error {
	enum := words(f.tag.Get("enum"))
	if len(enum) == 0 || n.kind != scalarNode || contains(enum, n.text) {
		if n.kind == mapNode && contains(words(f.tag.Get("later")), firstKey(n)) {
			return fmt.Errorf("%w: %s", errLater, firstKey(n))
		}
		return nil
	}
	later := words(f.tag.Get("later"))
	if contains(later, n.text) {
		return fmt.Errorf("%w: %q", errLater, n.text)
	}
	if hint := commonWords[n.text]; hint != "" {
		return fmt.Errorf("%q is unknown: %s", n.text, hint)
	}
	if near := nearest(n.text, append(append([]string(nil), enum...), later...)); near != "" {
		return fmt.Errorf("%q is unknown; did you mean %q?", n.text, near)
	}
	return fmt.Errorf("%q is unknown; use one of: %s", n.text, strings.Join(enum, ", "))
}

// commonWords are what others call a value, and what it is called here.
var commonWords = map[string]string{
	"exactly_once": "it is called transactional here (Kafka's transactions), or two_phase_commit (by vote); idempotent is exactly once within one producer session",
	"crash":        "it is called kill here",
	"isolate":      "write kind: partition, shape: isolate",
}

func firstKey(n *node) string {
	if len(n.keys) == 0 {
		return ""
	}
	return n.keys[0].name
}

func checkRange(v reflect.Value, f field) error {
	var x float64
	switch {
	case v.CanInt() && v.Type() != reflect.TypeFor[time.Duration]():
		x = float64(v.Int())
	case v.CanFloat():
		x = v.Float()
	default:
		return nil
	}
	if lo := f.tag.Get("min"); lo != "" {
		if least, _ := strconv.ParseFloat(lo, 64); x < least {
			return fmt.Errorf("%v is below the least value %s", v.Interface(), lo)
		}
	}
	if hi := f.tag.Get("max"); hi != "" {
		if most, _ := strconv.ParseFloat(hi, 64); x > most {
			return fmt.Errorf("%v is above the greatest value %s", v.Interface(), hi)
		}
	}
	return nil
}
