#!/usr/bin/env bash
# Fuzz each PACKAGE:Target for FUZZTIME (10s). Found inputs land in the package's testdata and fail `make test` from then on.
set -eu
cd "$(dirname "$0")/.."
for target in "$@"; do
  echo "fuzz $target"
  # Minimising what is merely interesting would use up a short run.
  go test "${target%%:*}" -run '^$' -fuzz "^${target##*:}\$" -fuzztime "${FUZZTIME:-10s}" -fuzzminimizetime 10x
done
