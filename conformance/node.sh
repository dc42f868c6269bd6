#!/usr/bin/env bash
# node.sh NODE NODES PORT DATADIR [key=value...]: one node of ottla as Apache's own tests start it (see the suites' README): node id NODE, clients
# at 127.0.0.1:PORT+NODE, in the foreground. OTTLA names the binary.
set -euo pipefail
node=$1 port=$3 data=$4; shift 4
args=(--set "process.roles=broker,controller" --set "node.id=$node" --set "controller.listener.names=CONTROLLER"
	--set "controller.quorum.voters=$node@127.0.0.1:$((port+9))"
	--set "listeners=PLAINTEXT://127.0.0.1:$((port+node)),CONTROLLER://127.0.0.1:$((port+9))"
	--set "log.dirs=$data" --set ottla.console.listener= --set group.initial.rebalance.delay.ms=0
	--set offsets.topic.num.partitions=5 --set transaction.state.log.num.partitions=5)
for kv in "$@"; do
	args+=(--set "$kv")
	case $kv in
	# Tests of migrations take for granted that some fifty requests fit into the second by which assignments are kept apart.
	group.consumer.migration.policy=*) args+=(--set group.consumer.assignment.interval.ms=15000) ;;
	esac
done
exec "$OTTLA" serve "${args[@]}"
