package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// protocolDocument is docs/PROTOCOL.md, written from the registry.
func protocolDocument() string {
	var b strings.Builder
	b.WriteString("# The client protocol\n\n" +
		"Written by `go test ./cluster/broker -run TestProtocolDocument -update` from the registry that also advertises and serves it.\n\n" +
		"Clients speak Kafka's protocol: a 4-byte big-endian length, then the request. Responses of a connection leave in the order of its requests; " +
		"requests are read ahead while earlier ones wait. Unknown APIs, versions outside these ranges (ApiVersions excepted) and frames above the " +
		"limits drop the connection before memory is allocated for them. The throttle time is always 0.\n\n" +
		"| Key | API | Versions | Largest request |\n|---|---|---|---|\n")
	for _, a := range registry() {
		limit := "the node's frame limit (100 MiB)"
		if a.maxFrame > 0 {
			limit = fmt.Sprintf("%d KiB", a.maxFrame>>10)
		}
		fmt.Fprintf(&b, "| %d | %s | %d–%d | %s |\n", a.key, a.name, a.min, a.max, limit)
	}
	for _, a := range registry() {
		fmt.Fprintf(&b, "\n## %s (%d)\n\n", a.name, a.key)
		for _, n := range a.notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	b.WriteString("\n## Error codes\n\n| Code | Name |\n|---|---|\n")
	for _, code := range slices.Sorted(maps.Keys(codeNames)) {
		fmt.Fprintf(&b, "| %d | %s |\n", code, codeNames[code])
	}
	return b.String()
}
