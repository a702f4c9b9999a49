package scenario

// Schema is the JSON schema of a scenario file, for editors.
func Schema() []byte { panic("soon") }

// Docs is docs/SCENARIOS.md.
func Docs() []byte { panic("soon") }
