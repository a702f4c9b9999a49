#!/usr/bin/env bash
# Kafka's own dump-log reads the segment files that we write and finds no index mismatch.
#   check-format.sh                 write a log with rolls, every codec, leader changes and index files
#   check-format.sh DIR             check the partition directory DIR instead
# Java and Maven are needed; where they are missing nothing is checked, and the script says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in java mvn; do
  if ! command -v $tool >/dev/null; then
    echo "check-format: not run: $tool is not installed"
    exit 0
  fi
done

libs=${XDG_CACHE_HOME:-$HOME/.cache}/gopherlog/dump-log
if ! ls "$libs"/kafka-tools-*.jar >/dev/null 2>&1; then
  mkdir -p "$libs"
  if ! mvn -q -B --color never -f scripts/format/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$libs"; then
    echo "check-format: not run: Maven could not fetch Kafka's tools"
    exit 0
  fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dir=${1:-$work/orders-0}
if [ $# -eq 0 ]; then
  go test -count=1 ./engine/log -run '^TestWriteLogForDumpLog$' -format-dir "$dir" >"$work/write" || { cat "$work/write"; exit 1; }
fi

dump() { java -Xmx256m -cp "$libs/*" org.apache.kafka.tools.DumpLogSegments "$@" 2>"$work/stderr"; }

segments=0 batches=0 indexes=0
for log in "$dir"/*.log; do
  base=${log%.log}
  out=$work/$(basename "$base")
  files=$log
  for ext in index timeindex txnindex snapshot; do
    if [ -s "$base.$ext" ]; then files+=,$base.$ext; indexes=$((indexes + 1)); fi
  done
  dump --files "$files" --deep-iteration --print-data-log >"$out" || { cat "$out" "$work/stderr"; echo "check-format: dump-log failed on $files"; exit 1; }
  # "offset: -1 is followed by ..." for a segment that does not start at 0 is no mismatch of an index.
  if grep -nE 'Found timestamp mismatch|Found out of order timestamp|Index offset|isvalid: false|Mismatches in|Exception' "$out" "$work/stderr"; then
    echo "check-format: dump-log found a mismatch in $files"
    exit 1
  fi
  segments=$((segments + 1))
  batches=$((batches + $(grep -c '^baseOffset:' "$out" || true)))
done
if [ $batches -eq 0 ]; then
  echo "check-format: dump-log read no batch from $dir"
  exit 1
fi
echo "check-format: dump-log read $segments segments, $indexes index files, $batches batches: no mismatch"
