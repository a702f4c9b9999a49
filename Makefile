# GopherLog: build, test, measure. `make help` lists the targets.
GO      ?= go
BIN     := bin
PROFILE ?= quick
OUT     ?= results/$(shell date +%Y%m%d-%H%M%S)-bench
BENCH   := scenarios/does-it-hold.yaml scenarios/latency-under-load.yaml scenarios/price-at-saturation.yaml \
           scenarios/txn-size.yaml scenarios/coordinator-crash.yaml scenarios/pipeline.yaml scenarios/split-brain.yaml
KAFKAOUT ?= results/$(shell date +%Y%m%d-%H%M%S)-beside-kafka
RIVALS  := scenarios/rivals/kafka-saturation.yaml scenarios/rivals/kafka-latency.yaml scenarios/rivals/kafka-one-in-flight.yaml
KAFKATXNOUT ?= results/$(shell date +%Y%m%d-%H%M%S)-transactions-beside-kafka
TXNRIVALS := scenarios/rivals/kafka-transactions.yaml scenarios/rivals/kafka-commit.yaml scenarios/rivals/kafka-transactions-tuned.yaml
FUZZ    := ./engine/record:FuzzDecodeMessage:120000 ./engine/wire:FuzzReadFrame:200000 ./engine/log:FuzzRecover:40000 \
           ./txn/producer:FuzzDecode:400000 ./cluster/rpc:FuzzReadPart:70000 ./cluster/replica:FuzzDecodeSnapshot:30000 \
           ./cluster/meta:FuzzRestore:15000 ./cluster/meta:FuzzParseProperties:40000 ./cluster/broker:FuzzProduceShape:20000 \
           ./bench/history:FuzzReader:50000 ./txn/twopc:FuzzDecode:400000

.PHONY: help build test lint fuzz fuzz-smoke explore explore-quick microbench scale txn-budget cover demo bench bench-smoke bench-full bench-faults bench-kafka bench-kafka-txn sabotage check-format clients compat clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the commands into bin/
	@mkdir -p $(BIN)
	$(GO) build -o $(BIN)/ ./cmd/server ./cmd/mqclient ./cmd/mqvalidate ./cmd/mqbench

test: ## every test under the race detector, loopback only
	@bash scripts/test.sh

lint: ## gofmt, vet, staticcheck, govulncheck, the house test, the macOS cross-build
	@bash scripts/lint.sh

fuzz: ## as many inputs of each fuzz target as take about ten seconds (FUZZSCALE=10 for ten times as many)
	@bash scripts/fuzz.sh $(FUZZ)

fuzz-smoke: ## the same for the three that read what strangers and crashes leave
	@bash scripts/fuzz.sh $(wordlist 1,3,$(FUZZ))

microbench: ## hot paths beside bare loops, as ratios within one run
	@bash scripts/microbench.sh

scale: ## three nodes, a thousand partitions: creation, idling, failover, restart (SCALEFLAGS="-fill 20GiB")
	@bash scripts/scale.sh $(SCALEFLAGS)

txn-budget: ## groups, transactions and idempotence on three nodes against their budgets (TXNFLAGS=-short): under twelve minutes
	@bash scripts/txn-budget.sh $(TXNFLAGS)

explore-quick: ## deciding code in every order of events: two transactions and two crashes, whole; groups with a deposed coordinator
	$(GO) test -count=1 -timeout 60m -v ./txn/explore/...

explore: ## the same for three transactions or members, replaced clients and deposed leaders, as far as five minutes each go
	$(GO) test -count=1 -timeout 60m -v ./txn/explore/voted ./txn/explore/kafkastyle ./txn/explore/groups -args -deep

cover: ## coverage profile in coverage/coverage.out
	@mkdir -p coverage
	$(GO) test -coverprofile=coverage/coverage.out ./...
	$(GO) tool cover -func=coverage/coverage.out | tail -n 1

demo: build ## one life cycle: topic, produce, consume, validate
	@scripts/demo.sh

bench: build ## five guarantees, killed and isolated leaders, coordinators and workers, loads, what transactions cost: under 15 minutes
	$(BIN)/mqbench run $(BENCH) -profile $(PROFILE) $(BENCHFLAGS) -out $(OUT) -title "What does each delivery guarantee cost, and does it hold?"

bench-smoke: build ## one scenario, one killed leader, under 90 seconds
	$(BIN)/mqbench run scenarios/smoke.yaml

bench-full: build ## ten blocks of a minute each: hours
	$(MAKE) bench PROFILE=full BENCHFLAGS="-set phases.steady=60s -set runs.max_time=6h"

bench-faults: build ## twenty kills, five freezes, five isolations, a majority killed twice, under load
	$(BIN)/mqbench run scenarios/long/twenty-kills.yaml scenarios/long/stops-and-isolations.yaml scenarios/long/majority-lost.yaml

bench-kafka: build ## beside Apache Kafka, both warm, interleaved: needs Java 17 and Maven, under 25 minutes
	@scripts/kafka-fetch.sh
	$(BIN)/mqbench run $(RIVALS) $(BENCHFLAGS) -out $(KAFKAOUT) -title "How does GopherLog compare with Apache Kafka?"

bench-kafka-txn: build ## transactions beside Apache Kafka, as it ships and tuned, and its commits at equal load: about 40 minutes
	@scripts/kafka-fetch.sh
	$(BIN)/mqbench run $(TXNRIVALS) $(BENCHFLAGS) -out $(KAFKATXNOUT) -title "What do transactions cost beside Apache Kafka?"

sabotage: build ## planted faults must be caught: ten seeds each, and their clean twins
	@scripts/sabotage.sh $${SEEDS:-10}

check-format: ## Kafka's own dump-log reads what we wrote
	@bash scripts/check-format.sh

clients: build ## foreign Kafka clients against three nodes
	@bash scripts/clients.sh

compat: ## foreign clients and their own suites, groups and transactions too (SUITES="kafkajs java-tools", COMPATFLAGS=-grow): an hour
	@bash scripts/compat.sh $(COMPATFLAGS) $(SUITES)

clean: ## remove what build and cover made; results/ stays
	rm -rf $(BIN) coverage/*
