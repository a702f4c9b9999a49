#!/usr/bin/env bash
# Prove that the checks can fail: each planted fault of the broker must turn its scenario red (exit 10),
# and the same scenario without it must stay green (exit 0).
#   scripts/sabotage.sh [SEEDS [FAULT..]]     seeds 1..SEEDS of every fault, or of those, and of its clean twin; default 10
set -u
cd "$(dirname "$0")/.."
seeds=${1:-10}
faults=(ack-before-commit skip-dedupe hide-batches append-twice diverge commit-before-votes skip-epoch-check
  marker-to-one-partition forget-group-generation no-barrier)
if (($# > 1)); then faults=("${@:2}"); fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

# one FAULT SEED WANTED [FLAGS..]: run the scenario of FAULT, return 0 when it exits with WANTED
one() {
  local fault=$1 seed=$2 want=$3 began=$SECONDS dir log code
  shift 3
  dir=$out/$fault-$seed-$want log=$out/$fault-$seed-$want.log
  bin/mqbench run "scenarios/sabotage/$fault.yaml" -seed "$seed" -progress none -out "$dir" "$@" >"$log" 2>&1
  code=$?
  rm -rf "$dir"
  if ((SECONDS - began > longest)); then longest=$((SECONDS - began)); fi
  [ "$code" = "$want" ] && return 0
  printf '  %s, seed %s: exit %s, wanted %s\n' "$fault" "$seed" "$code" "$want"
  tail -n 5 "$log" | sed 's/^/    /'
  return 1
}

printf '%-24s %8s %12s %12s\n' 'planted fault' caught 'clean twins' 'longest run'
for fault in "${faults[@]}"; do
  caught=0 clean=0 longest=0
  flags=()
  if [ "$fault" = skip-dedupe ]; then flags=(-failpoint 'produce/before-answer=error probability=0.002'); fi
  for ((seed = 1; seed <= seeds; seed++)); do
    one "$fault" "$seed" 10 -sabotage "$fault" "${flags[@]}" && caught=$((caught + 1))
    one "$fault" "$seed" 0 "${flags[@]}" && clean=$((clean + 1))
  done
  printf '%-24s %8s %12s %10s s\n' "$fault" "$caught/$seeds" "$clean/$seeds" "$longest"
  [ "$caught" = "$seeds" ] && [ "$clean" = "$seeds" ] || failed=1
done
exit $failed
