# Everything that the README names. `make servers` runs by itself wherever real servers are needed.
.DEFAULT_GOAL := help
.PHONY: help servers lab up bench bench-locks test lint build

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 20

servers: ## install MySQL or MariaDB, Redis, nginx, etcd and ZooKeeper from the distribution's packages, where missing
	@sh internal/servers/install.sh

# Ctrl-C and SIGTERM reach the lab through make. Where setpriv knows how (Linux), the lab also ends when make is killed.
WITH_MAKE := exec $(shell setpriv --pdeathsig TERM true 2>/dev/null && echo setpriv --pdeathsig TERM)

lab: servers build ## run every strategy on private servers, judge each, print and write the comparison (5 minutes)
	@$(WITH_MAKE) bin/loadtest run $(LAB)

up: servers build ## start the lab's topology and leave it running until Ctrl-C
	@$(WITH_MAKE) bin/loadtest up

bench: servers build ## compare the fastest strategies with what the machine allows (4 minutes; see BENCH=--help)
	@$(WITH_MAKE) bin/loadtest bench $(BENCH)

# A module of its own, which ./... of this one leaves out.
BENCH_MODULE := internal/locks/bench

bench-locks: servers ## compare the Redis locks with the libraries that do the same (6 minutes; see BENCH=-help)
	cd $(BENCH_MODULE) && go build -trimpath -o $(CURDIR)/bin/bench-locks .
	@$(WITH_MAKE) bin/bench-locks $(BENCH)

test: servers ## run all tests, with the race detector, on real servers
	go test -race ./...
	@# What the race detector would find in ZooKeeper's client is not ours: see internal/locks/race_test.go.
	go test -run 'ZooKeeper|/zookeeper' ./internal/locks
	cd $(BENCH_MODULE) && go test -race ./...

# golangci-lint comes from a module of its own, so that its dependencies stay out of the service's.
GOLANGCI_LINT := "$$(go -C $(CURDIR)/tools tool -n golangci-lint)"

lint: ## run golangci-lint on both modules, as .golangci.yml says
	$(GOLANGCI_LINT) run ./...
	cd $(BENCH_MODULE) && $(GOLANGCI_LINT) run ./...

build: ## build the two programs into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/stock ./loadtest
