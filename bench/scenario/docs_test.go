package scenario

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

func TestDocsAreWhatTheReaderKnows(t *testing.T) {
	golden(t, "../../docs/SCENARIOS.md", Docs())
	golden(t, "../../docs/scenario.schema.json", Schema())
}

func TestEveryKeyIsDocumented(t *testing.T) {
	text := string(Docs())
	for _, key := range []string{"min_insync_replicas", "max_outstanding", "partitioner", "theta", "tolerate", "outage_prober.median", "fresh_cluster", "process_time", "at_least_once"} {
		if !strings.Contains(text, key) {
			t.Errorf("%s is absent", key)
		}
	}
}

// The scenarios that the project publishes are read by the reader and allowed by the schema.
func TestPublishedScenariosAreReadAndMatchTheSchema(t *testing.T) {
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	schema, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("../../scenarios/*.yaml")
	more, _ := filepath.Glob("../../scenarios/*/*.yaml")
	files = append(append(files, more...), "testdata/full.yaml", "testdata/child.yaml", "testdata/least.yaml")
	for _, file := range files {
		parsed, err := Parse(file, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		if parsed.Question == "" && strings.Contains(file, "scenarios") {
			t.Errorf("%s asks no question", file)
		}
		text, _ := os.ReadFile(file)
		var tree map[string]any
		if err := yaml.Load(text, &tree); err != nil {
			t.Error(err)
			continue
		}
		if err := schema.Validate(tree); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if err := schema.Validate(map[string]any{"version": 1, "name": "x", "nonsense": 1}); err == nil {
		t.Error("the schema allows an unknown key")
	}
}
