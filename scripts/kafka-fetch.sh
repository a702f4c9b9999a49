#!/usr/bin/env bash
# Bring the Apache Kafka that GopherLog is measured beside: its jars, by Maven, into the user's cache.
#   kafka-fetch.sh          fetch what scripts/kafka/pom.xml names, unless it is there
#   MQBENCH_KAFKA=DIR       use the jars in DIR, or keep them there if it is empty; mqbench looks there too
# mqbench runs the jars with Java 17 or newer. Nothing is installed, and nothing runs after this script.
set -euo pipefail
named=${MQBENCH_KAFKA:+$(realpath -m -- "$MQBENCH_KAFKA")} # before the working directory changes
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case $(uname) in
  Darwin) cache=$HOME/Library/Caches ;;
  *) cache=${XDG_CACHE_HOME:-$HOME/.cache} ;;
esac

version=$(sed -n 's:.*<artifactId>kafka_2.13</artifactId><version>\([^<]*\)</version>.*:\1:p' scripts/kafka/pom.xml)
if [ -n "$named" ]; then
  jars=${named%/}
  if compgen -G "$jars/kafka_2.13-*.jar" >/dev/null; then
    echo "kafka-fetch: using the Apache Kafka in $jars"
    exit 0
  fi
  if [ -n "$(ls -A "$jars" 2>/dev/null)" ]; then # it is the user's: nothing in it is touched
    echo "kafka-fetch: $jars (MQBENCH_KAFKA) is not empty and holds no kafka_2.13-*.jar: name a directory with Kafka's jars, or an empty one" >&2
    exit 3
  fi
else
  jars=$cache/gopherlog/kafka # as mqbench looks for it
  if [ -e "$jars/kafka_2.13-$version.jar" ]; then
    echo "kafka-fetch: Apache Kafka $version is in $jars"
    exit 0
  fi
fi
for tool in java mvn; do
  if ! command -v $tool >/dev/null; then
    echo "kafka-fetch: $tool is not installed: Kafka needs a Java runtime (17 or newer), and Maven fetches its jars (Debian: apt-get install maven)" >&2
    exit 3
  fi
done
part=$jars.part
rm -rf "$part"
mkdir -p "$part"
if ! mvn -q -B --color never -f scripts/kafka/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$part"; then
  rm -rf "$part"
  echo "kafka-fetch: Maven could not fetch Apache Kafka $version: see its lines above" >&2
  exit 3
fi
[ -n "$named" ] && [ -d "$jars" ] && rmdir "$jars" # empty, as was seen above
[ -n "$named" ] || rm -rf "$jars"
mv "$part" "$jars"
echo "kafka-fetch: Apache Kafka $version, $(ls "$jars" | wc -l) jars, in $jars"
