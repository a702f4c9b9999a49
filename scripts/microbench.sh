#!/usr/bin/env bash
# Hot paths beside bare loops, as ratios within one run: builds the server command and the programme that measures, and runs it.
#   microbench.sh [-short] [-pairs N] [-rows PART,...] [-dir DIR]
# A missed budget is printed; only what could not be measured is an error. Wants a quiet machine; takes about three minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/" ./cmd/server ./scripts/microbench
"$work/microbench" -server "$work/server" "$@"
