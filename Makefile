# What needs more than Go. Each target installs what it needs; ../shared is beside a founder's checkout only.
shared := ../shared
bench := $(or $(BENCH_DIR),$(or $(TMPDIR),/tmp)/ottla-bench)/bench

.PHONY: build test race lint interop conformance simulation chaos fuzz generate bench performance

build: ## the one static binary, ./ottla
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o ottla ./cmd/ottla

test:
	go test ./...

race:
	go test -race ./...

lint:
	go vet ./...
	go tool staticcheck ./...

interop: ## Java, Python, Node and kcat against the built binary, and a directory handed to Apache and back
	interop/run.sh -v

conformance: ## suites that others wrote; conformance/expected.tsv says what must pass; 12 to 16 minutes once they have installed themselves
	@test -d $(shared)/conformance || { echo "make conformance: $(shared)/conformance is missing: the suites are not part of this repository"; exit 1; }
	SUITES=$(abspath $(shared))/conformance go test -count=1 -tags conformance -timeout 1h -parallel 4 -v ./conformance

simulation: ## whole clusters in one process: more seeds than go test runs, and a power cut at every file operation
	go test -count=1 -timeout 15m ./internal/sim -seeds 200 -crashes 0

chaos: ## consumer groups through 50 kills of the broker, in the middle of rebalances and commits
	go test -count=1 -timeout 30m -v -run TestGroupsSurviveKill . -kills 50

fuzz: ## every fuzz target for a few seconds
	.ci/fuzz 2000x

generate:
	go generate ./...

bench: ## beside Apache Kafka, alternating in one run; writes docs/performance.md. WORKLOADS, ROUNDS, BYTES, WARM, QUICK=1: bench/plan.go
	@test -d $(shared)/bench || { echo "make bench: $(shared)/bench is missing: the load generator is not part of this repository"; exit 1; }
	$(MAKE) build
	go build -o $(bench) ./bench
	$(bench) -kbench $(shared)/bench \
		apache='$(abspath $(shared))/peers/apache-kafka/start.sh {port} {data} {set}' \
		ottla='env GODEBUG=gctrace=1 $(CURDIR)/ottla serve --set listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0 --set log.dirs={data} --set ottla.console.listener= --set={set}'

performance: ## docs/performance.md again, from the lines of earlier runs
	go run ./bench -render
