#!/usr/bin/env bash
# Kafka's own dump-log reads the segment files that we write and finds no index mismatch.
#   check-format.sh                 write a log with rolls, every codec, leader changes and index files
#   check-format.sh DIR             check the partition directory DIR instead
# Without DIR it also reads the directory of a live partition with transactions, and decodes the records that coordinators write.
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
  part=$libs.part # so that a fetch that is broken off leaves nothing that looks whole
  rm -rf "$part" "$libs"
  mkdir -p "$part"
  if ! mvn -q -B --color never -f scripts/format/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$part"; then
    rm -rf "$part"
    echo "check-format: not run: Maven could not fetch Kafka's tools"
    exit 0
  fi
  mv "$part" "$libs"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dir=${1:-$work/orders-0}
if [ $# -eq 0 ]; then
  go test -count=1 ./engine/log -run '^TestWriteLogForDumpLog$' -format-dir "$dir" >"$work/write" || { cat "$work/write"; exit 1; }
fi

dump() { java -Xmx256m -cp "$libs/*" org.apache.kafka.tools.DumpLogSegments "$@" 2>"$work/stderr"; }

segments=0 batches=0 indexes=0
# read_segments DIR: every segment of a partition directory with all files beside it.
read_segments() {
  local dir=$1 log base out files ext
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
}
read_segments "$dir"
if [ $# -eq 0 ]; then
  live=$work/live-0
  go test -count=1 ./cluster/partition -run '^TestWriteSegmentsForDumpLog$' -format-dir "$live" >"$work/write" || { cat "$work/write"; exit 1; }
  read_segments "$live"
  while IFS= read -r line; do
    grep -qF -- "$line" "$work"/000* || { echo "check-format: dump-log does not show in a live partition's files: $line"; exit 1; }
  done <<'END'
version: 0 producerId: 7 firstOffset: 0 lastOffset: 3 lastStableOffset: 2
version: 0 producerId: 9 firstOffset: 15 lastOffset: 30 lastStableOffset: 31
endTxnMarker: COMMIT coordinatorEpoch: 9
producerId: 9 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[15]
END
fi
if [ $batches -eq 0 ]; then
  echo "check-format: dump-log read no batch from $dir"
  exit 1
fi
echo "check-format: dump-log read $segments segments, $indexes index files, $batches batches: no mismatch"

[ $# -eq 0 ] || exit 0
# decoded PACKAGE TEST WHAT...: the test's files, decoded by Kafka's tool with these options, show every line that is expected on stdin.
decoded() {
  local package=$1 test=$2 dir=$work/$1 out=$work/decoded
  shift 2
  go test -count=1 "./$package" -run "^$test\$" -format-dir "$dir" >"$work/write" || { cat "$work/write"; exit 1; }
  dump "$@" --files "$(find "$dir" -type f | sort | paste -sd,)" >"$out" || { cat "$out" "$work/stderr"; exit 1; }
  while IFS= read -r line; do
    grep -qF -- "$line" "$out" || { cat "$out"; echo "check-format: $package: dump-log does not show: $line"; exit 1; }
  done
}
decoded txn/kafkatx TestWriteRecordsForDumpLog --transaction-log-decoder <<'EOF'
"producerId":7,"previousProducerId":7,"nextProducerId":44,"producerEpoch":6,"transactionTimeoutMs":60000,"transactionStatus":"PrepareCommit"
"transactionPartitions":[{"topic":"a","partitionIds":[0]},{"topic":"t","partitionIds":[1,2,9]}]
"transactionStatus":"Empty","transactionPartitions":null
key: {"type":"0","data":{"transactionalId":"orders"}} payload: <DELETE>
EOF
decoded txn/group TestWriteRecordsForDumpLog --offsets-decoder <<'EOF'
"protocolType":"consumer","generation":7,"protocol":"range","leader":"a","currentStateTimestamp":99,"members":[{"memberId":"a","groupInstanceId":null
"groupInstanceId":"i","clientId":"","clientHost":"","rebalanceTimeout":0,"sessionTimeout":1000,"subscription":{"topics":["orders"],"userData":null}
"group":"readers","topic":"orders","partition":3}} payload: {"version":"3","data":{"offset":12,"leaderEpoch":5,"metadata":"here"
"group":"readers","topic":"orders","partition":3}} payload: {"version":"4","data":{"offset":13,"leaderEpoch":5,"metadata":"there"
EOF
decoded txn/producer TestWriteTransactionsForDumpLog --deep-iteration --print-data-log <<'EOF'
endTxnMarker: ABORT coordinatorEpoch: 9
endTxnMarker: COMMIT coordinatorEpoch: 9
version: 0 producerId: 7 firstOffset: 7 lastOffset: 10 lastStableOffset: 11
producerId: 4 producerEpoch: 1 coordinatorEpoch: 9 currentTxnFirstOffset: OptionalLong[11]
producerId: 5 producerEpoch: 2 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 0 firstSequence: 7 lastSequence: 8 lastOffset: 4 offsetDelta: 1
EOF
echo "check-format: dump-log decoded transaction records, group records, a transaction index and a producer snapshot"
