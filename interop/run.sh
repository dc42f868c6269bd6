#!/usr/bin/env bash
# Installs the foreign clients (Java, Python, Node, kcat) from their package registries into a cache and runs the
# interop tests with them: run.sh [go test flags]. AGAINST=apache runs the same cases against Apache Kafka, which
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

# stamped DIR FILE COMMAND…: runs COMMAND once for each content of FILE.
stamped() {
	local dir=$1 file=$2 sum
	shift 2
	sum=$(sha256sum <"$file")
	[ "$(cat "$dir/.stamp" 2>/dev/null)" = "$sum" ] && return
	rm -rf "$dir" && mkdir -p "$dir"
	"$@" && echo "$sum" >"$dir/.stamp"
}
java() {
	mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies -DoutputDirectory="$cache/java"
}
python() {
	python3 -m venv "$cache/python" && "$cache/python/bin/pip" install -q -r "$here/python/requirements.txt"
}
node_modules() {
	cp "$here/node/package.json" "$cache/node/" && (cd "$cache/node" && npm install --silent --no-fund --no-audit)
}
stamped "$cache/java" "$here/java/pom.xml" java
stamped "$cache/python" "$here/python/requirements.txt" python
stamped "$cache/node" "$here/node/package.json" node_modules
javac -d "$cache/classes" -cp "$cache/java/*" "$here"/java/*.java

cd "$here/.."
INTEROP_CACHE=$cache exec go test -count=1 -tags interop -timeout 14m "$@" ./interop
