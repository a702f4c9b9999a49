#!/usr/bin/env bash
# Checks a broker with Kafka's own tools: prints PASS or FAIL, the check's name and why, a line each.
#   java.sh BOOTSTRAP JARS [CHECK...]
# TXN_PREFIX goes before transactional ids, and chooses the commit protocol of brokers that have several.
set -u
addr=$1 jars=$2
shift 2
work=$(mktemp -d "${WORK:-/tmp}/java-XXXXXX")
jobs=()
finish() { for pid in "${jobs[@]}"; do kill -9 "$pid" 2>/dev/null; done; }
trap finish EXIT
tools=org.apache.kafka.tools
run=$$ # makes names of this try its own

# Tools must end by themselves; one that hangs has failed.
jvm() { timeout -k 5 150 java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars/*" "$@" 2> >(grep -v -e SLF4J -e KIP-848 >>"$work/stderr"); }
tool() { local name=$1; shift; jvm "$tools.$name" --bootstrap-server "$addr" "$@"; }

why=
expect() { # expect WHAT PATTERN FILE: a line of the file must match
  grep -qE -- "$2" "$3" && return 0
  why="$1: no line matches '$2': $(tail -n 3 "$3" | tr '\n' ' ')"
  return 1
}
equal() { [ "$2" = "$3" ] && return 0; why="$1: got '$2', want '$3'"; return 1; }
failed() { why="$1"; return 1; }

new_topic() { # NAME [PARTITIONS [more]]
  local name=$1 parts=${2:-3}
  shift $(($# > 1 ? 2 : 1))
  tool TopicCommand --create --topic "$name" --partitions "$parts" --replication-factor 3 "$@" >"$work/created" || failed "topic $name was not created: $(cat "$work/created")"
}
produce() { # TOPIC PREFIX N [more]
  local topic=$1 prefix=$2 n=$3
  shift 3
  seq -f "$prefix%05g" 1 "$n" | tool ConsoleProducer --topic "$topic" "$@" >"$work/produced" || failed "console producer: $(tail -n 2 "$work/produced" "$work/stderr" | tr '\n' ' ')"
}
consume() { # FILE N TOPIC [more]: N records, or what came within 20 s
  local file=$1 n=$2 topic=$3
  shift 3
  tool consumer.ConsoleConsumer --topic "$topic" --max-messages "$n" --timeout-ms 20000 "$@" >"$file" || failed "console consumer ended with an error: $(tail -n 2 "$work/stderr" | tr '\n' ' ')"
}

topics() {
  new_topic "t-$run" 2 --config retention.ms=3600000 || return 1
  tool TopicCommand --describe --topic "t-$run" >"$work/out"
  expect describe 'PartitionCount: *2.*retention.ms=3600000' "$work/out" || return 1
  tool TopicCommand --alter --topic "t-$run" --partitions 4 >"$work/out" || { failed "alter: $(cat "$work/out")"; return 1; }
  tool TopicCommand --list >"$work/out"
  expect list "^t-$run\$" "$work/out" || return 1
  tool ConfigCommand --alter --entity-type topics --entity-name "t-$run" --add-config retention.bytes=1000000 >"$work/out" || { failed "configs: $(cat "$work/out")"; return 1; }
  tool ConfigCommand --describe --entity-type topics --entity-name "t-$run" >"$work/out"
  expect configs retention.bytes=1000000 "$work/out" || return 1
  tool TopicCommand --delete --topic "t-$run" >"$work/out" || failed "delete: $(cat "$work/out")"
}
console_group() {
  new_topic "cg-$run" && produce "cg-$run" a 300 && consume "$work/one" 300 "cg-$run" --group "cg-$run" --from-beginning || return 1
  # The first reader may be done before it knows where each partition begins, and then commits nothing of those that it did not read.
  produce "cg-$run" b 100 && consume "$work/two" 100 "cg-$run" --group "cg-$run" --from-beginning || return 1
  equal records "$(cat "$work/one" "$work/two" | LC_ALL=C sort | md5sum)" "$( (seq -f 'a%05g' 1 300; seq -f 'b%05g' 1 100) | md5sum)"
}
groups() { # the console consumer as a member, then what the tool shows and changes
  console_group || return 1
  tool consumer.group.ConsumerGroupCommand --list >"$work/out"
  expect list "^cg-$run\$" "$work/out" || return 1
  tool consumer.group.ConsumerGroupCommand --describe --group "cg-$run" >"$work/out"
  equal "committed offsets" "$(awk -v t="cg-$run" '$2 == t { n += $4; lag += $6 } END { print n, lag }' "$work/out")" "400 0" || return 1
  tool consumer.group.ConsumerGroupCommand --describe --group "cg-$run" --state >"$work/out"
  expect state Empty "$work/out" || return 1
  tool consumer.group.ConsumerGroupCommand --group "cg-$run" --topic "cg-$run" --reset-offsets --to-earliest --execute >"$work/out" || { failed "reset: $(cat "$work/out")"; return 1; }
  consume "$work/again" 400 "cg-$run" --group "cg-$run" || return 1
  equal "records after the reset" "$(wc -l <"$work/again")" 400 || return 1
  tool consumer.group.ConsumerGroupCommand --delete-offsets --group "cg-$run" --topic "cg-$run" >"$work/out" || { failed "delete offsets: $(cat "$work/out")"; return 1; }
  tool consumer.group.ConsumerGroupCommand --delete --group "cg-$run" >"$work/out"
  expect delete 'was successful' "$work/out"
}
get_offsets() {
  new_topic "go-$run" 1 && produce "go-$run" x 50 || return 1
  tool GetOffsetShell --topic "go-$run" >"$work/out"
  expect latest "^go-$run:0:50\$" "$work/out" || return 1
  tool GetOffsetShell --topic "go-$run" --time earliest >"$work/out"
  expect earliest "^go-$run:0:0\$" "$work/out" || return 1
  echo "{\"partitions\":[{\"topic\":\"go-$run\",\"partition\":0,\"offset\":20}],\"version\":1}" >"$work/delete.json"
  tool DeleteRecordsCommand --offset-json-file "$work/delete.json" >"$work/out" || { failed "delete records: $(cat "$work/out")"; return 1; }
  tool GetOffsetShell --topic "go-$run" --time earliest >"$work/out"
  expect "earliest after the deletion" "^go-$run:0:20\$" "$work/out"
}
verifiable() {
  new_topic "v-$run" || return 1
  tool VerifiableConsumer --topic "v-$run" --group-id "v-$run" --max-messages 2000 --reset-policy earliest >"$work/vc" &
  jobs+=($!)
  local consumer=$!
  tool VerifiableProducer --topic "v-$run" --max-messages 2000 --throughput -1 >"$work/vp" || { failed "producer: $(tail -n 1 "$work/vp")"; return 1; }
  equal acknowledged "$(grep -c producer_send_success "$work/vp")" 2000 || return 1
  wait "$consumer" || { failed "consumer: $(tail -n 1 "$work/vc")"; return 1; }
  equal consumed "$(sed -n 's/.*"name":"records_consumed".*//p' "$work/vc" | wc -l | awk '{ print ($1 > 0) }')" 1 || return 1
  equal "records consumed" "$(grep '"records_consumed"' "$work/vc" | grep -oE '"count":[0-9]+,"partitions' | grep -oE '[0-9]+' | awk '{ n += $1 } END { print n }')" 2000
}
two_verifiable_consumers() { # one leaves, the other takes over
  new_topic "w-$run" || return 1
  local strategy pids=() i
  for i in 1 2; do
    tool VerifiableConsumer --topic "w-$run" --group-id "w-$run" --reset-policy earliest --session-timeout 10000 \
      --assignment-strategy org.apache.kafka.clients.consumer.CooperativeStickyAssignor >"$work/w$i" &
    pids+=($!)
    jobs+=($!)
  done
  for i in $(seq 300); do grep -q partitions_assigned "$work/w1" && grep -q partitions_assigned "$work/w2" && break; sleep 0.2; done
  tool VerifiableProducer --topic "w-$run" --max-messages 3000 --throughput 300 >"$work/vp" &
  local producer=$!
  sleep 4
  pkill -TERM -P "${pids[0]}" # the JVM below its timeout
  wait "$producer" "${pids[0]}"
  # The tool does not send a record again: one that fails is no matter of the consumers.
  equal acknowledged "$(grep -c producer_send_success "$work/vp")" 3000 || return 1
  for i in $(seq 150); do
    local n
    n=$(cat "$work/w1" "$work/w2" | grep '"records_consumed"' | grep -oE '"count":[0-9]+,"partitions' | grep -oE '[0-9]+' | awk '{ n += $1 } END { print n + 0 }')
    [ "$n" -ge 3000 ] && break
    sleep 0.2
  done
  pkill -TERM -P "${pids[1]}"
  wait "${pids[1]}"
  equal "records consumed by two" "$n" 3000
}
message_copier() { # with and without aborts
  new_topic "in-$run" 1 && new_topic "out-$run" 3 && produce "in-$run" m 1000 || return 1
  jvm $tools.TransactionalMessageCopier --broker-list "$addr" --input-topic "in-$run" --input-partition 0 --output-topic "out-$run" --max-messages 1000 \
    --consumer-group "copy-$run" --transaction-size 100 --transactional-id "${TXN_PREFIX:-}copy-$run" --enable-random-aborts --use-group-metadata --group-mode >"$work/copier" ||
    { failed "copier: $(tail -n 2 "$work/copier" "$work/stderr" | tr '\n' ' ')"; return 1; }
  consume "$work/copied" 1001 "out-$run" --from-beginning --isolation-level read_committed
  equal "records copied" "$(LC_ALL=C sort "$work/copied" | md5sum)" "$(seq -f 'm%05g' 1 1000 | md5sum)"
}
perf_transactional() {
  new_topic "p-$run" || return 1
  tool ProducerPerformance --topic "p-$run" --num-records 2000 --throughput 1000 --record-size 100 --transactional-id "${TXN_PREFIX:-}p-$run" --transaction-duration-ms 100 >"$work/out" ||
    { failed "perf: $(tail -n 2 "$work/out" "$work/stderr" | tr '\n' ' ')"; return 1; }
  expect perf '^2000 records sent' "$work/out" || return 1
  consume "$work/read" 2001 "p-$run" --from-beginning --isolation-level read_committed
  equal "committed records" "$(wc -l <"$work/read")" 2000
}
perf_idempotent() {
  new_topic "q-$run" || return 1
  tool ProducerPerformance --topic "q-$run" --num-records 50000 --throughput -1 --record-size 100 --command-property acks=all enable.idempotence=true compression.type=zstd >"$work/out" ||
    { failed "perf: $(tail -n 2 "$work/out" "$work/stderr" | tr '\n' ' ')"; return 1; }
  tool ConsumerPerformance --topic "q-$run" --num-records 50000 --timeout 60000 >"$work/out" || { failed "consumer perf: $(tail -n 2 "$work/out")"; return 1; }
  expect "consumer perf" ', 50000, ' "$work/out"
}
# A producer that died in its transaction.
transactions() {
  new_topic "x-$run" 1 || return 1
  timeout -s KILL 60 java -Xmx128m -cp "$jars/*" $tools.ProducerPerformance --bootstrap-server "$addr" --topic "x-$run" --num-records 100000 --throughput 20 --record-size 20 \
    --transactional-id "x-$run" --transaction-duration-ms 600000 --command-property transaction.timeout.ms=600000 linger.ms=0 >"$work/hang" 2>&1 &
  jobs+=($!)
  local victim=$! i
  for i in $(seq 100); do
    tool GetOffsetShell --topic "x-$run" >"$work/out"
    grep -qE "^x-$run:0:[1-9]" "$work/out" && break
  done
  pkill -KILL -P "$victim"
  wait "$victim" 2>/dev/null
  tool TransactionsCommand list >"$work/list" || { failed "list: $(tail -n 2 "$work/list" "$work/stderr" | tr '\n' ' ')"; return 1; }
  expect list "x-$run.*Ongoing" "$work/list" || return 1
  tool TransactionsCommand describe --transactional-id "x-$run" >"$work/describe" || { failed "describe: $(tail -n 2 "$work/describe" "$work/stderr" | tr '\n' ' ')"; return 1; }
  expect describe "Ongoing.*x-$run-0" "$work/describe" || return 1
  tool TransactionsCommand describe-producers --topic "x-$run" --partition 0 >"$work/producers" || { failed "describe-producers: $(tail -n 2 "$work/producers" "$work/stderr" | tr '\n' ' ')"; return 1; }
  local start
  start=$(awk 'NR > 1 { print $NF }' "$work/producers" | grep -E '^[0-9]+$' | head -n 1)
  [ -n "$start" ] || { failed "describe-producers shows no open transaction: $(tr '\n' ' ' <"$work/producers")"; return 1; }
  tool TransactionsCommand find-hanging --topic "x-$run" --partition 0 >"$work/out" || { failed "find-hanging: $(tail -n 2 "$work/out" "$work/stderr" | tr '\n' ' ')"; return 1; }
  tool TransactionsCommand abort --topic "x-$run" --partition 0 --start-offset "$start" >"$work/out" || { failed "abort: $(tail -n 2 "$work/out" "$work/stderr" | tr '\n' ' ')"; return 1; }
  produce "x-$run" plain 5 || return 1
  consume "$work/read" 5 "x-$run" --from-beginning --isolation-level read_committed
  equal "what a reader sees after the abort" "$(tr '\n' ' ' <"$work/read")" "$(seq -f 'plain%05g' 1 5 | tr '\n' ' ')"
}
cluster() {
  tool LogDirsCommand --describe >"$work/out" || { failed "log dirs: $(tail -n 2 "$work/out" "$work/stderr" | tr '\n' ' ')"; return 1; }
  expect "log dirs" '"brokers"' "$work/out" || return 1
  tool BrokerApiVersionsCommand >"$work/out" || { failed "api versions: $(tail -n 2 "$work/out" "$work/stderr" | tr '\n' ' ')"; return 1; }
  expect "api versions" 'Produce\(0\)' "$work/out"
}

# A machine too busy to keep its leaders may fail a check that is right, so each gets a second try under other names, and the line says so.
attempt() {
  why=
  echo "-- $1" >>"$work/stderr"
  $1 || { why=${why:-a step failed: $(tail -n 2 "$work/stderr" | tr '\n' ' ')}; return 1; }
}
for check in ${*:-topics groups get_offsets verifiable two_verifiable_consumers message_copier perf_transactional perf_idempotent transactions cluster}; do
  name=${check//_/-} run=$$
  if attempt "$check"; then echo "PASS $name"; continue; fi
  first=$why run=$$-again
  if attempt "$check"; then echo "PASS $name at the second try: $first"; else echo "FAIL $name $why"; fi
done
