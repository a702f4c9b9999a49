package scenario

import (
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"
)

// YAML is the resolved scenario: every default filled in, sweeps as lists. Parse reads it to the same cells.
func (s *Scenario) YAML() []byte {
	r := renderer{sweeps: map[string][]string{}}
	for _, w := range s.swept {
		r.sweeps[w.Key] = w.Values
	}
	r.object(reflect.ValueOf(*s), "", "")
	return []byte(r.b.String())
}

type renderer struct {
	b      strings.Builder
	sweeps map[string][]string
}

func (r *renderer) object(v reflect.Value, path, indent string) {
	fields, _ := fieldsOf(v.Type())
	first := true
	for _, f := range fields {
		if f.name == "" {
			continue
		}
		lead := indent
		if first && strings.HasSuffix(indent, "- ") {
			lead = indent
		} else {
			lead = strings.ReplaceAll(indent, "- ", "  ")
		}
		if r.field(v.Field(f.index), f, join(path, f.name), lead) {
			first = false
		}
	}
}

// field writes one key and says whether it wrote anything.
func (r *renderer) field(v reflect.Value, f field, path, lead string) bool {
	below := strings.ReplaceAll(lead, "- ", "  ") + "  "
	switch {
	case isScalar(v.Type()):
		text := r.value(v, path)
		if text == "" || r.absent(v, f, path) {
			return false
		}
		fmt.Fprintf(&r.b, "%s%s: %s\n", lead, f.name, text)
	case v.Kind() == reflect.Struct:
		if r.unused(v) {
			return false
		}
		fmt.Fprintf(&r.b, "%s%s:\n", lead, f.name)
		r.object(v, path, below)
	case v.Kind() == reflect.Map:
		return r.freeKeys(v, f, path, lead, below)
	case v.Kind() == reflect.Slice:
		return r.list(v, f, path, lead, below)
	}
	return true
}

// absent values would contradict others if they were written: the rate of a closed loop, the shape of a kill.
func (r *renderer) absent(v reflect.Value, f field, path string) bool {
	if _, swept := r.sweeps[path]; swept {
		return false
	}
	if r.closed() && (path == "load.rate" || path == "load.arrival") {
		return true
	}
	if times, ok := v.Interface().(int); ok && times == 1 && f.name == "times" || f.name == "every" && v.Int() == 0 {
		return true
	}
	return v.Kind() == reflect.String && v.String() == ""
}

func (r *renderer) closed() bool { return strings.Contains(r.b.String(), "\n  model: closed\n") }

// unused sections would be refused where nothing uses them.
func (r *renderer) unused(v reflect.Value) bool {
	switch x := v.Interface().(type) {
	case External:
		return len(x.Bootstrap) == 0
	case Kafka:
		return !r.withKafka()
	case Transaction:
		return !r.transacts()
	case Consumers:
		return len(x.Groups) == 0
	}
	return false
}

func (r *renderer) transacts() bool {
	for _, g := range []Guarantee{Transactional, TwoPhaseCommit} {
		if contains(r.sweeps["guarantee"], string(g)) || strings.Contains(r.b.String(), "\nguarantee: "+string(g)+"\n") {
			return true
		}
	}
	return false
}

func (r *renderer) withKafka() bool {
	return contains(r.sweeps["target.system"], "kafka") || strings.Contains(r.b.String(), "\n  system: kafka\n")
}

func (r *renderer) freeKeys(v reflect.Value, f field, path, lead, below string) bool {
	if v.Len() == 0 {
		return false
	}
	fmt.Fprintf(&r.b, "%s%s:\n", lead, f.name)
	keys := make([]string, 0, v.Len())
	for _, k := range v.MapKeys() {
		keys = append(keys, k.String())
	}
	sort.Strings(keys)
	for _, k := range keys {
		fmt.Fprintf(&r.b, "%s%s: %s\n", below, quoted(k), r.value(v.MapIndex(reflect.ValueOf(k)), join(path, k)))
	}
	return true
}

func (r *renderer) list(v reflect.Value, f field, path, lead, below string) bool {
	if v.Len() == 0 {
		return false
	}
	fmt.Fprintf(&r.b, "%s%s:\n", lead, f.name)
	for i := range v.Len() {
		at := join(path, strconv.Itoa(i))
		if isScalar(v.Type().Elem()) {
			fmt.Fprintf(&r.b, "%s- %s\n", below, r.value(v.Index(i), at))
			continue
		}
		r.object(v.Index(i), at, below+"- ")
	}
	return true
}

func (r *renderer) value(v reflect.Value, path string) string {
	if values, ok := r.sweeps[path]; ok {
		out := make([]string, len(values))
		for i, x := range values {
			out[i] = quotedUnlessMap(x)
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case SizeDist:
		return x.String()
	case Count:
		return strconv.FormatInt(int64(x), 10)
	case fmt.Stringer:
		return quoted(x.String())
	case string:
		return quoted(x)
	case Guarantee:
		return string(x)
	}
	return fmt.Sprint(v.Interface())
}

func quotedUnlessMap(s string) string {
	if strings.HasPrefix(s, "{") {
		return s
	}
	return quoted(s)
}

// quoted is a text as a YAML scalar that is read as this text, whatever it looks like.
func quoted(s string) string {
	for _, c := range s {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' || c == '/' || c == '+'
		if !plain {
			return strconv.Quote(s)
		}
	}
	if s == "" || s[0] == '-' || strings.EqualFold(s, "null") {
		return strconv.Quote(s)
	}
	return s
}
