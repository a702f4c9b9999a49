#!/usr/bin/env bash
# Foreign Kafka clients and their own test suites against three nodes, held against the lists in scripts/compat/lists.
#   compat.sh                      all suites
#   compat.sh kafkajs java-tools   some of them; -list names all
#   compat.sh -grow                take what passed into the lists, and the results into docs/PROTOCOL.md
#   compat.sh -target kafka        the same against three nodes of Apache Kafka, which is the baseline
#   COMPAT_ADDR=host:port,... compat.sh   against a cluster that runs already (its topics and groups are left behind)
# Sources come at pinned versions through the Go, Python, npm and Maven clients into the user's cache, not into this tree. A suite whose
# tool is missing is reported as not run. Exit code 1: something that must pass did not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case " $* " in *" -target kafka "*) scripts/kafka-fetch.sh ;; esac
bin=${BIN:-$work} # programs that are built already may be given
[ -n "${BIN:-}" ] || go build -o "$bin/" ./cmd/server ./cmd/mqclient
go build -o "$work/compat" ./scripts/compat
"$work/compat" -bin "$bin" "$@"
