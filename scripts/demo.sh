#!/usr/bin/env bash
# The life of a message: create a topic, produce keyed records, consume them merged, and check the bytes on disk.
# Runs against the server at MQ_ADDR if that is set (then MQ_DATA, if set, is checked), else against one of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n=== %s ===\n' "$*"; }

work=$(mktemp -d)
server=
finish() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

say "build"
go build -o "$work/bin/" ./cmd/server ./cmd/mqclient ./cmd/mqvalidate
mqclient() { "$work/bin/mqclient" "$@"; }

if [ -n "${MQ_ADDR:-}" ]; then
    addr=$MQ_ADDR
    data=${MQ_DATA:-}
else
    addr=127.0.0.1:${MQ_PORT:-19492}
    data=$work/data
    say "start a server at $addr"
    "$work/bin/server" -addr "$addr" -data "$data" >"$work/server.log" 2>&1 &
    server=$!
fi
for try in {1..100}; do
    if mqclient cluster status -addr "$addr" 2>"$work/status.err"; then break; fi
    if [ "$try" = 100 ] || { [ -n "$server" ] && ! kill -0 "$server" 2>/dev/null; }; then
        cat "$work/status.err" "$work/server.log" 2>/dev/null
        exit 1
    fi
    sleep 0.1
done

topic=demo-events-$(date +%s)
say "create topic $topic with 3 partitions"
mqclient topic create -addr "$addr" -topic "$topic" -partitions 3

say "produce keyed messages (note partition assignments)"
mqclient produce -addr "$addr" -topic "$topic" -key user-1 -value "signed up"
mqclient produce -addr "$addr" -topic "$topic" -key user-1 -value "logged in"
mqclient produce -addr "$addr" -topic "$topic" -key user-3 -value "signed up"
mqclient produce -addr "$addr" -topic "$topic" -key user-9 -value "signed up"

say "consume everything, merged across partitions"
mqclient consume -addr "$addr" -topic "$topic" -all

if [ -n "$server" ]; then
    say "stop the server"
    kill "$server"
    wait "$server"
    server=
fi
if [ -n "$data" ]; then
    say "check the bytes on disk"
    "$work/bin/mqvalidate" "$data"
else
    echo "the bytes on disk are not checked: set MQ_DATA to the server's data directory, or run: docker compose exec mq mqvalidate /data"
fi
