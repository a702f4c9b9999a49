#!/usr/bin/env bash
# Foreign clients against three nodes: each client writes RECORDS lines with each codec and reads them back with CRC checks
# on. Counts and checksums must agree, and the codec of every stored batch must be the client's.
#   clients.sh                     all clients, 100,000 records
#   RECORDS=5000 clients.sh kcat java
# Clients: kcat (Debian's), franz-go (our mqclient is one), confluent (python3-confluent-kafka, partitions assigned) and java
# (Kafka's console producer and consumer, by Maven). One that is not installed is reported as not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

records=${RECORDS:-100000}
clients=${*:-kcat franz-go confluent java}
codecs=${CODECS:-none gzip snappy lz4 zstd}
port=${PORT:-19392}
python=/usr/bin/python3
libs=${XDG_CACHE_HOME:-$HOME/.cache}/gopherlog/dump-log

work=$(mktemp -d)
nodes=()
finish() {
  for pid in "${nodes[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${nodes[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT

bin=${BIN:-$work/bin} # programs that are built already may be given
[ -n "${BIN:-}" ] || go build -o "$bin/" ./cmd/server ./cmd/mqclient ./cmd/mqvalidate
addr= peers=
for i in 1 2 3; do
  addr+=${addr:+,}127.0.6.$i:$port
  peers+=${peers:+,}$i@127.0.6.$i:$((port + 1))
done
for i in 1 2 3; do
  "$bin/server" -id $i -addr 127.0.6.$i:$port -rpc 127.0.6.$i:$((port + 1)) -peers "$peers" -data "$work/data/$i" >"$work/node$i.log" 2>&1 &
  nodes+=($!)
done
for try in {1..150}; do # until all three are there
  "$bin/mqclient" topic create -addr "$addr" -topic all-there -replication-factor 3 >"$work/status" 2>&1 && break
  if [ "$try" = 150 ]; then cat "$work/status" "$work"/node*.log; exit 1; fi
  sleep 0.2
done

awk -v n="$records" 'BEGIN { srand(7); for (i = 0; i < n; i++) printf "record %08d %s\n", i, substr("the quick brown fox jumps over the lazy dog again and again", 1, 1 + int(rand() * 58)) }' >"$work/in"
wanted=$(LC_ALL=C sort "$work/in" | md5sum | cut -c1-12)

# Why a client cannot run; empty if it can.
missing() {
  case $1 in
  kcat) command -v kcat >/dev/null || echo "kcat is not installed" ;;
  franz-go) ;;
  confluent) $python -c 'import confluent_kafka' 2>/dev/null || echo "$python has no confluent_kafka" ;;
  java)
    for tool in java mvn; do command -v $tool >/dev/null || { echo "$tool is not installed"; return; }; done
    if ! ls "$libs"/kafka-tools-*.jar >/dev/null 2>&1; then
      mkdir -p "$libs"
      mvn -q -B --color never -f scripts/format/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$libs" >"$work/mvn" 2>&1 ||
        echo "Maven could not fetch Kafka's tools"
    fi ;;
  *) echo "no such client: $1" ;;
  esac
}

version() {
  case $1 in
  kcat) kcat -V 2>&1 | sed -n 's/^Version \([^ ]*\).*librdkafka \([^ ]*\).*/\1, librdkafka \2/p' ;;
  franz-go) go list -m -f '{{.Version}}' github.com/twmb/franz-go ;;
  confluent) $python -c 'import confluent_kafka as c; print(c.version()[0] + ", librdkafka " + c.libversion()[0])' ;;
  java) basename "$libs"/kafka-tools-[0-9]*.jar .jar | sed 's/kafka-tools-/Kafka /' ;;
  esac
}

jvm() { java -Xmx512m -cp "$libs/*" "$@" 2>>"$work/stderr"; }

send() { # CLIENT CODEC TOPIC, lines on standard input
  case $1 in
  kcat) kcat -b "$addr" -P -t "$3" -z "$2" 2>>"$work/stderr" ;;
  franz-go) "$bin/mqclient" produce -addr "$addr" -topic "$3" -compression "$2" >>"$work/stderr" 2>&1 ;;
  confluent) $python scripts/clients/confluent.py produce "$addr" "$3" "$2" 2>>"$work/stderr" ;;
  java) jvm org.apache.kafka.tools.ConsoleProducer --bootstrap-server "$addr" --topic "$3" --compression-codec "$2" >>"$work/stderr" ;;
  esac
}

receive() { # CLIENT TOPIC, lines to standard output
  case $1 in
  kcat) kcat -b "$addr" -C -t "$2" -o beginning -e -q -X check.crcs=true 2>>"$work/stderr" ;;
  franz-go) "$bin/mqclient" consume -addr "$addr" -topic "$2" -timeout 2m -o json 2>>"$work/stderr" | sed -n 's/.*"value":"\([^"]*\)".*/\1/p' ;;
  confluent) $python scripts/clients/confluent.py consume "$addr" "$2" 2>>"$work/stderr" ;;
  java)
    "$bin/mqclient" topic describe -addr "$addr" -topic "$2" >"$work/ends"
    for p in 0 1 2; do
      end=$(awk -v p=$p '$1 == p { print $NF }' "$work/ends")
      readers[p]=
      : >"$work/part$p"
      [ "$end" -gt 0 ] || continue
      jvm org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$addr" --topic "$2" --partition $p --offset earliest \
        --max-messages "$end" --timeout-ms 30000 --command-property check.crcs=true >"$work/part$p" &
      readers[p]=$!
    done
    wait ${readers[@]}
    cat "$work"/part[0-2]
    ;;
  esac
}

# Codec of nearly all stored bytes of a topic, on all nodes: clients send a batch as it is where compression gains nothing.
stored() {
  for f in "$work"/data/*/topics/"$1"-*/*.log; do "$bin/mqvalidate" dump "$f"; done |
    awk '{ for (i = 1; i < NF; i++) { if ($i == "bytes") n = $(i + 1); if ($i == "codec") { by[$(i + 1)] += n; all += n } } }
      END { name = "mixed"; for (c in by) if (by[c] >= 0.9 * all) name = c; print name }'
}

failed=0
printf '%-10s %-7s %9s %9s %-14s %-14s %-8s %7s %7s  %s\n' client codec sent received "md5 sent" "md5 received" stored "write s" "read s" result
for client in $clients; do
  why=$(missing "$client")
  if [ -n "$why" ]; then
    printf '%-10s not run: %s\n' "$client" "$why"
    continue
  fi
  for codec in $codecs; do
    topic=clients-$client-$codec result=ok
    : >"$work/stderr"
    "$bin/mqclient" topic create -addr "$addr" -topic "$topic" -partitions 3 -replication-factor 3 >>"$work/stderr" 2>&1 ||
      { cat "$work/stderr"; exit 1; }
    t0=$(date +%s.%N)
    send "$client" "$codec" "$topic" <"$work/in" || result="write failed"
    t1=$(date +%s.%N)
    receive "$client" "$topic" >"$work/out" || result="read failed"
    t2=$(date +%s.%N)
    got=$(LC_ALL=C sort "$work/out" | md5sum | cut -c1-12) n=$(wc -l <"$work/out") kept=$(stored "$topic")
    if [ "$result" = ok ] && { [ "$got" != "$wanted" ] || [ "$n" != "$records" ]; }; then result="records differ"; fi
    if [ "$result" = ok ] && [ "$kept" != "$codec" ]; then result="stored with another codec"; fi
    printf '%-10s %-7s %9d %9d %-14s %-14s %-8s %7.1f %7.1f  %s\n' "$client" "$codec" "$records" "$n" "$wanted" "$got" "$kept" \
      "$(echo "$t1 - $t0" | bc)" "$(echo "$t2 - $t1" | bc)" "$result"
    if [ "$result" != ok ]; then
      failed=1
      tail -n 5 "$work/stderr" | sed 's/^/    /'
    fi
  done
  printf '%-10s is %s\n' "$client" "$(version "$client")"
done
exit $failed
