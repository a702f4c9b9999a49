// Package metapb is what the control group replicates (Command, Snapshot) and what nodes ask each other about it (Hello, Submit).
// It knows only shapes; what a command does stands in cluster/meta.
// Field numbers are for ever: a log written by an older program is replayed by a newer one.
package metapb

//go:generate protoc --go_out=. --go_opt=paths=source_relative meta.proto
