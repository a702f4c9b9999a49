#!/usr/bin/env bash
# Static checks. Each line says what it found; what could not run says so and is not called passed.
set -u
cd "$(dirname "$0")/.."
failed=0
step() { # step NAME COMMAND...: run it quietly, print one line
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then echo "ok       $name"; else echo "FAILED   $name"; printf '%s\n' "$out" | sed 's/^/         /'; failed=1; fi
}
formatted() { local f; f=$(gofmt -l cmd cluster engine txn bench scripts *.go); [ -z "$f" ] || { echo "gofmt would change: $f"; return 1; }; }
step gofmt formatted
step vet go vet ./...
step staticcheck go tool staticcheck ./...
step "house: arrows, package comments, doors of dependencies" go test -count=1 -run . .
step "cross-build for darwin/arm64" env GOOS=darwin GOARCH=arm64 go build ./...
vuln=$(timeout 120 go tool govulncheck ./... 2>&1)
code=$?
if [ $code -eq 0 ]; then
  echo "ok       govulncheck"
elif printf '%s' "$vuln" | grep -q 'Vulnerability #'; then
  echo "FAILED   govulncheck"; printf '%s\n' "$vuln" | sed 's/^/         /'; failed=1
else
  echo "not run  govulncheck: its database could not be reached"
fi
exit $failed
