#!/usr/bin/env bash
# Fuzz each PACKAGE:Target:RUNS for RUNS x FUZZSCALE (1) inputs. Found inputs land in the package's testdata and fail `make test` from then on.
# A number of inputs, not a time: when a time is over, Go 1.26 reports "context deadline exceeded" now and then, though nothing was found (go.dev/issue/75804).
set -eu
cd "$(dirname "$0")/.."
patience=$((600 * ${FUZZSCALE:-1})) # s: only an input that never ends takes that long
for target in "$@"; do
  IFS=: read -r package name runs <<<"$target"
  echo "fuzz $package:$name"
  # Minimising what is merely interesting would use up a short run.
  timeout "$patience" go test "$package" -run '^$' -fuzz "^$name\$" -fuzztime "$((runs * ${FUZZSCALE:-1}))x" -fuzzminimizetime 10x || {
    rc=$?
    if [ "$rc" = 124 ]; then echo "fuzz $package:$name: not done after $patience s: does an input never end?" >&2; fi
    exit "$rc"
  }
done
