#!/usr/bin/env bash
# make.sh PEER PORT — writes metadata.log and metadata.checkpoint: a metadata log and a snapshot that
# Apache Kafka 4.4.0 wrote while its own tools asked it for one of most things a cluster can hold.
# PEER is a directory with start.sh PORT DATADIR [key=value…] and tool.sh CLASS ARGS…
set -euo pipefail
peer=$1 port=$2
here=$(cd "$(dirname "$0")" && pwd)
data=$(mktemp -d)
node=
trap 'kill ${node:-} 2>/dev/null || true; rm -rf "$data" "$data.properties"' EXIT

start() {
  NODE_ID=1 KAFKA_HEAP=256m "$peer/start.sh" "$port" "$data" \
    authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer super.users=User:ANONYMOUS \
    metadata.log.max.snapshot.interval.ms=20000 "$@" >>"$data.out" 2>&1 &
  node=$!
  until "$peer/tool.sh" org.apache.kafka.tools.TopicCommand --bootstrap-server "127.0.0.1:$port" --list >/dev/null 2>&1; do :; done
}
tool() { "$peer/tool.sh" "$@" --bootstrap-server "127.0.0.1:$port" >/dev/null; }
topics() { tool org.apache.kafka.tools.TopicCommand "$@"; }
configs() { tool org.apache.kafka.tools.ConfigCommand --alter "$@"; }
acls() { tool org.apache.kafka.tools.AclCommand "$@"; }

start
topics --create --topic orders --partitions 3 --replication-factor 1 --config retention.ms=86400000 --config cleanup.policy=delete
topics --create --topic gone --partitions 2 --replication-factor 1
topics --delete --topic gone
topics --alter --topic orders --partitions 5
configs --entity-type topics --entity-name orders --delete-config cleanup.policy --add-config max.message.bytes=2000000
configs --entity-type brokers --entity-default --add-config log.cleaner.threads=2
configs --entity-type users --entity-name alice --entity-type clients --entity-default --add-config producer_byte_rate=1048576
configs --entity-type users --entity-name alice --add-config 'SCRAM-SHA-256=[iterations=4096,password=secret]'
acls --add --force --allow-principal User:alice --operation Read --topic orders
acls --add --force --deny-principal User:bob --operation Write --topic ord --resource-pattern-type prefixed
acls --remove --force --allow-principal User:alice --operation Read --topic orders
"$peer/tool.sh" org.apache.kafka.tools.ProducerPerformance --topic orders --num-records 10 --record-size 10 --throughput -1 \
  --producer-props "bootstrap.servers=127.0.0.1:$port" acks=all >/dev/null
kill "$node"; wait "$node" || true
start
before=$(ls "$data/__cluster_metadata-0/"*.checkpoint | tail -1)
until last=$(ls "$data/__cluster_metadata-0/"*.checkpoint | tail -1) && [ "$last" != "$before" ]; do :; done
kill "$node"; wait "$node" || true
cp "$data/__cluster_metadata-0/00000000000000000000.log" "$here/metadata.log"
cp "$last" "$here/metadata.checkpoint"
chmod 644 "$here"/metadata.*
rm -f "$data.out"
