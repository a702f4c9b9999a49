#!/usr/bin/env bash
# Three nodes with a thousand partitions against their budgets: builds the server command and the programme that measures, and runs it.
#   scale.sh [-partitions N] [-fill 20GiB] [-rows PART,...] [-short] [-dir DIR]
# A missed budget is printed; only what could not be measured is an error. Wants a quiet machine; takes about three minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/" ./cmd/server ./scripts/scale
"$work/scale" -server "$work/server" "$@"
