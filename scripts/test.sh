#!/usr/bin/env bash
# Every test under the race detector (or those of the packages named): the runner's own line per package as it comes,
# then what failing tests printed, then how many tests ran.
set -u
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- ./...
log=$(mktemp)
trap 'rm -f "$log"' EXIT
go test -race -count=1 -timeout 60m -v "$@" 2>&1 | tee "$log" | grep --line-buffered -E '^(ok|FAIL|panic:|fatal error:)[[:space:]]'
code=${PIPESTATUS[0]}
if [ "$code" -ne 0 ]; then
  echo
  # Lines since the last test began belong to it; those of passed tests are dropped. After a crash or race everything counts.
  awk '/^(panic:|fatal error:|WARNING: DATA RACE)/ {rest = 1}
       rest {print; next}
       /^=== RUN/ {held = ""; next}
       /^ *--- FAIL/ {printf "%s%s\n", held, $0; held = ""; next}
       /^ *--- (PASS|SKIP)/ {held = ""; next}
       {held = held $0 "\n"}' "$log" | head -n 500
fi
count() { grep -cE "^ *--- $1" "$log"; }
grep -B1 -E '^ *--- SKIP' "$log"
printf 'tests: %d passed, %d failed, %d skipped in %d packages, %d s\n' \
  "$(count PASS)" "$(count FAIL)" "$(count SKIP)" "$(grep -cE '^(ok|FAIL)[[:space:]]+gopherlog' "$log")" "$SECONDS"
exit "$code"
