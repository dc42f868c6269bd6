#!/usr/bin/env bash
# Installs the foreign clients (Java, Python, Node, kcat) from their package registries into a cache, builds ottla, and runs
# the interop tests: run.sh [go test flags]. AGAINST=apache runs the same cases against Apache Kafka, which
# shows that the test itself is right.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ottla/interop}
mkdir -p "$cache"

need=()
command -v kcat >/dev/null || need+=(kcat)
command -v javac >/dev/null || need+=(default-jdk-headless)
command -v mvn >/dev/null || need+=(maven)
command -v node >/dev/null || need+=(nodejs)
command -v npm >/dev/null || need+=(npm)
command -v strace >/dev/null || need+=(strace)
python3 -m venv --help >/dev/null 2>&1 || need+=(python3-venv)
if [ ${#need[@]} -gt 0 ]; then
	{ apt-get update -q && apt-get install -y -q "${need[@]}"; } >"$cache/apt.log" 2>&1 || { tail -n 5 "$cache/apt.log" >&2; exit 2; }
fi

# stamped DIR COMMAND FILE…: fills DIR by COMMAND, once for each content of the files.
stamped() {
	local dir=$1 command=$2 sum
	shift 2
	sum=$(cat "$@" | sha256sum)
	[ "$(cat "$dir/.stamp" 2>/dev/null)" = "$sum" ] && return
	rm -rf "$dir" && mkdir -p "$dir"
	"$command" && echo "$sum" >"$dir/.stamp"
}
java() {
	mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies -DoutputDirectory="$cache/java"
}
classes() {
	javac -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -proc:none -d "$cache/classes" -cp "$cache/java/*" "$here"/java/*.java
}
python() {
	python3 -m venv "$cache/python" && "$cache/python/bin/pip" install -q -r "$here/python/requirements.txt"
}
node_modules() {
	cp "$here/node/package.json" "$cache/node/" && (cd "$cache/node" && npm install --silent --no-fund --no-audit)
}
stamped "$cache/java" java "$here/java/pom.xml"
stamped "$cache/classes" classes "$here/java/pom.xml" "$here"/java/*.java
stamped "$cache/python" python "$here/python/requirements.txt"
stamped "$cache/node" node_modules "$here/node/package.json"

cd "$here/.."
export INTEROP_CACHE=$cache INTEROP_OTTLA=$cache/ottla
go build -o "$INTEROP_OTTLA" ./cmd/ottla
exec go test -count=1 -tags interop -timeout 30m "$@" ./interop
