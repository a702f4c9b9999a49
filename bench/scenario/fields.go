package scenario

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// field is one key of the vocabulary.
type field struct {
	index int
	name  string
	tag   reflect.StructTag
	typ   reflect.Type
}

// fieldsOf lists the keys of a mapping, and the keys that a later version brings.
func fieldsOf(t reflect.Type) (fields []field, later []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			later = append(later, words(f.Tag.Get("later"))...)
			continue
		}
		if !f.IsExported() {
			continue
		}
		fields = append(fields, field{i, f.Tag.Get("yaml"), f.Tag, f.Type})
	}
	return fields, later
}

func words(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "|")
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

var parsers = map[reflect.Type]func(n *node) (any, error){
	reflect.TypeFor[time.Duration](): text(parseDuration),
	reflect.TypeFor[Size]():          text(parseSize),
	reflect.TypeFor[Count]():         text(parseCount),
	reflect.TypeFor[Rate]():          text(parseRate),
	reflect.TypeFor[At]():            text(parseAt),
	reflect.TypeFor[FaultTarget]():   text(parseTarget),
	reflect.TypeFor[Expect]():        text(parseExpect),
	reflect.TypeFor[SizeDist]():      func(n *node) (any, error) { return parseSizeDist(n) },
}

func text[T any](parse func(string) (T, error)) func(*node) (any, error) {
	return func(n *node) (any, error) {
		if n.kind != scalarNode {
			return nil, errors.New("must be one value")
		}
		return parse(n.text)
	}
}

// isScalar says whether a type stands for one value, which a list then sweeps.
func isScalar(t reflect.Type) bool {
	if _, ok := parsers[t]; ok {
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Int, reflect.Int64, reflect.Float64, reflect.Bool:
		return true
	}
	return false
}

// parseInto reads one value.
func parseInto(v reflect.Value, n *node) error {
	if parse, ok := parsers[v.Type()]; ok {
		x, err := parse(n)
		if err == nil {
			v.Set(reflect.ValueOf(x))
		}
		return err
	}
	if n.kind != scalarNode {
		return errors.New("must be one value")
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.text)
	case reflect.Bool:
		b, err := strconv.ParseBool(n.text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", n.text)
		}
		v.SetBool(b)
	case reflect.Float64:
		x, err := strconv.ParseFloat(n.text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", n.text)
		}
		v.SetFloat(x)
	case reflect.Int, reflect.Int64:
		c, err := parseWhole(n.text)
		if err != nil {
			return err
		}
		v.SetInt(c)
	default:
		panic(fmt.Sprintf("scenario: value of type %v", v.Type()))
	}
	return nil
}

func parseWhole(s string) (int64, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	c, err := parseCount(s)
	return int64(c), err
}

// parseSizeDist reads a size or {dist: lognormal, median, p99}.
func parseSizeDist(n *node) (SizeDist, error) {
	if n.kind == scalarNode {
		s, err := parseSize(n.text)
		return SizeDist{Fixed: s}, err
	}
	var d SizeDist
	if n.kind != mapNode {
		return d, errors.New("must be a size or {dist: lognormal, median: 512B, p99: 16KiB}")
	}
	for _, k := range n.keys {
		var err error
		switch k.name {
		case "dist":
			if k.value.text != "lognormal" {
				err = fmt.Errorf("distribution %q is unknown; use lognormal", k.value.compact())
			}
		case "median":
			d.Median, err = parseSize(k.value.text)
		case "p99":
			d.P99, err = parseSize(k.value.text)
		default:
			err = fmt.Errorf("unknown key %q%s", k.name, oneOf(k.name, []string{"dist", "median", "p99"}))
		}
		if err != nil {
			return d, err
		}
	}
	if d.Median <= 0 || d.P99 <= d.Median {
		return d, errors.New("needs a median and a greater p99")
	}
	return d, nil
}
