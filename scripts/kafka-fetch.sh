#!/usr/bin/env bash
# Bring the Apache Kafka that GopherLog is measured beside: its jars, by Maven, into the user's cache.
#   kafka-fetch.sh          fetch what scripts/kafka/pom.xml names, unless it is there
#   MQBENCH_KAFKA=DIR       keep them in DIR instead; mqbench looks there too
# mqbench runs the jars with Java 17 or newer. Nothing is installed, and nothing runs after this script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n 's:.*<artifactId>kafka_2.13</artifactId><version>\([^<]*\)</version>.*:\1:p' scripts/kafka/pom.xml)
jars=${MQBENCH_KAFKA:-${XDG_CACHE_HOME:-$HOME/.cache}/gopherlog/kafka}
if [ -e "$jars/kafka_2.13-$version.jar" ]; then
  echo "kafka-fetch: Apache Kafka $version is in $jars"
  exit 0
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
rm -rf "$jars"
mv "$part" "$jars"
echo "kafka-fetch: Apache Kafka $version, $(ls "$jars" | wc -l) jars, in $jars"
