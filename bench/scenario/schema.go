package scenario

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
)

// Schema is the JSON schema of a scenario file, for editors. It knows names, types and ranges; what may not be combined only Parse knows.
func Schema() []byte {
	s := schemaOf(reflect.TypeFor[Scenario]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "mqbench scenario"
	properties := s["properties"].(map[string]any)
	properties["extends"] = map[string]any{"type": "string", "description": "The file that this one is put over."}
	delete(s, "required") // a file that extends another may leave out what the other has
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("scenario: schema: %v", err))
	}
	return append(out, '\n')
}

func schemaOf(t reflect.Type) map[string]any {
	fields, _ := fieldsOf(t)
	properties := map[string]any{}
	var required []string
	for _, f := range fields {
		p := schemaOfField(f)
		p["description"] = f.tag.Get("doc")
		if def := f.tag.Get("default"); def != "" {
			p["default"] = def
		}
		properties[f.name] = p
		if f.tag.Get("required") != "" {
			required = append(required, f.name)
		}
	}
	s := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func schemaOfField(f field) map[string]any {
	switch {
	case isScalar(f.typ):
		one := scalarSchema(f)
		return map[string]any{"anyOf": []any{one, map[string]any{"type": "array", "items": one, "minItems": 1}}}
	case f.typ.Kind() == reflect.Struct:
		return schemaOf(f.typ)
	case f.typ.Kind() == reflect.Map:
		value := map[string]any{"type": []string{"string", "number", "boolean"}}
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"anyOf": []any{value, map[string]any{"type": "array", "items": value}}}}
	}
	list := map[string]any{"type": "array"}
	if e := f.typ.Elem(); isScalar(e) {
		item := scalarSchema(field{typ: e, tag: reflect.StructTag(`enum:"` + f.tag.Get("each") + `"`)})
		list["items"] = item
	} else {
		list["items"] = schemaOf(e)
	}
	if word := f.tag.Get("scalar"); word != "" {
		return map[string]any{"anyOf": []any{list, map[string]any{"const": word}}}
	}
	return list
}

func scalarSchema(f field) map[string]any {
	if enum := words(f.tag.Get("enum")); len(enum) > 0 && f.typ.Kind() == reflect.String {
		return map[string]any{"enum": enum}
	}
	s := map[string]any{}
	switch {
	case f.typ == reflect.TypeFor[SizeDist]():
		s["type"] = []string{"string", "object"}
	case f.typ == reflect.TypeFor[Count](), f.typ.Kind() == reflect.Int64 && parsers[f.typ] == nil, f.typ.Kind() == reflect.Int:
		s["type"] = []string{"integer", "string"}
	case parsers[f.typ] != nil, f.typ.Kind() == reflect.String:
		s["type"] = "string"
	case f.typ.Kind() == reflect.Bool:
		s["type"] = "boolean"
	default:
		s["type"] = "number"
	}
	for key, word := range map[string]string{"min": "minimum", "max": "maximum"} {
		if x, err := strconv.ParseFloat(f.tag.Get(key), 64); err == nil {
			s[word] = x
		}
	}
	return s
}
