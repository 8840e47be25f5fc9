.DEFAULT_GOAL := help
.PHONY: help servers lab faults tidb lab-tidb test-tidb up judge bench-locks pictures explored record test test-all \
	test-short lint build

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 20

servers: ## install what is missing: MySQL or MariaDB, Redis, nginx, etcd, ZooKeeper, PostgreSQL (Debian, Ubuntu)
	@sh internal/servers/install.sh

# The lab gets Ctrl-C and SIGTERM through make. With setpriv (Linux), it also ends when make is killed.
WITH_MAKE := exec $(shell setpriv --pdeathsig TERM true 2>/dev/null && echo setpriv --pdeathsig TERM)

lab: servers build ## run and judge every strategy on private servers, and compare them (6 minutes; LAB=--help)
	@$(WITH_MAKE) bin/loadtest run $(LAB)

faults: servers build ## play every fault scenario for every strategy (1 minute; FAULTS=--help)
	@$(WITH_MAKE) bin/loadtest faults $(FAULTS)

tidb: ## build bin/tidb-server, one node of TiDB with its own store (10 minutes, then cached)
	GOFLAGS=-mod=readonly CGO_ENABLED=0 go -C internal/servers/tidb build -trimpath \
		-ldflags="-X github.com/pingcap/tidb/pkg/parser/mysql.TiDBReleaseVersion=$(TIDB_VERSION)" \
		-o $(CURDIR)/bin/ github.com/pingcap/tidb/cmd/tidb-server

# The date and the commit. The Go module's version number is not that of TiDB.
TIDB_VERSION = $(shell go -C internal/servers/tidb list -m -f '{{.Version}}' github.com/pingcap/tidb | \
	sed 's/.*\.\(........\)......-/\1-/')

lab-tidb: tidb servers build ## as lab, on TiDB instead of MySQL (LAB=--help)
	@$(WITH_MAKE) bin/loadtest run --tidb bin/tidb-server $(LAB)

test-tidb: tidb servers ## test every strategy on TiDB instead of MySQL
	STOCK_TIDB=$(CURDIR)/bin/tidb-server go test -race -run TiDB ./internal/servers ./internal/stock/mysql \
		./loadtest/internal/tenant ./loadtest/internal/fault
	STOCK_TIDB=$(CURDIR)/bin/tidb-server go test -race -run EveryStrategyKeepsItsClaim ./internal/stock/catalogue

up: servers build ## start two replicas behind nginx, their servers and a page for the browser, until Ctrl-C
	@$(WITH_MAKE) bin/loadtest up

judge: servers build ## test the judge: it must find each planted bug, and no other (8 minutes; JUDGE=--help)
	@$(WITH_MAKE) bin/loadtest plant $(JUDGE)

# The benchmark of the locks is a module of its own, which ./... does not include.
BENCH_MODULE := internal/locks/bench

bench-locks: servers ## compare the Redis locks with other libraries (6 minutes; BENCH=-help)
	cd $(BENCH_MODULE) && go build -trimpath -o $(CURDIR)/bin/bench-locks .
	@$(WITH_MAKE) bin/bench-locks $(BENCH)

# The newest report of a run. That of make faults has no rows.
REPORT = $(shell ls -t out/*/report.json 2>/dev/null | xargs grep -l share_of_noop 2>/dev/null | head -n 1)

pictures: ## update the tables and pictures of the documents from a run (REPORT=FILE; default: the newest)
	@report='$(REPORT)'; test -f "$$report" || { echo "no report $$report: run make lab, or give REPORT=FILE" >&2; exit 1; }
	go test . -count=1 -run '^TestTablesAreUpToDate$$' -update -lab '$(REPORT)'
	@ls docs/*.svg

EXPLORED = out/explore/explore.json
explored: build ## explore every strategy, and update its page (20 minutes; or EXPLORED=FILE of an earlier run)
	@test -f '$(EXPLORED)' || $(WITH_MAKE) bin/loadtest explore --out out/explore \
		--workloads one,one-key,enough,last,two-keys,too-many,same-key
	go test . -count=1 -run '^(TestEveryStrategyHasAPage|TestTablesAreUpToDate)$$' -update -explored '$(EXPLORED)'

record: servers build ## explore the checkout of real shops, from PyPI and npm (1.5 hours; or RECORD=NAME)
	@$(WITH_MAKE) sh loadtest/record/run.sh $(RECORD)

# Packages that start goroutines, or whose tests do: in the others, there is nothing for the race detector to find.
CONCURRENT = $(shell grep -rlE --include='*.go' '^\s+go |\.Go\b|httptest' cmd internal loadtest migrations nginx | \
	grep -v '^$(BENCH_MODULE)' | sed 's|^|./|; s|[^/]*$$||' | sort -u)
# The detector doubles the time of a test. It watches the short tests, and of the others each mechanism once: what the
# clients of locks do besides a request, batches and what is written behind, and the explorer's lanes.
MECHANISMS := TestConformance/redis-(watchdog|queue|pubsub)$$|TestConformance/redlock$$|TestConformance/etcd$$
MECHANISMS := $(MECHANISMS)|TestOneHolderAtATimeUnderFaults/redis-queue$$|TestCloseLeavesNothingRunning
MECHANISMS := $(MECHANISMS)|TestEveryStrategyKeepsItsClaim/batch$$|TestEveryStrategyKeepsItsClaim/redis-stream$$
MECHANISMS := $(MECHANISMS)|TestALostLeaseEndsTheDeduction|TestScripts$$/replay|TestScripts$$/waits
MECHANISMS := $(MECHANISMS)|TestScriptsOnPostgres/isolation|TestAStrategyThatIsWrong|TestRequestsOneByOne|TestFaultsFinds

# The servers of the tests keep their files in memory if it has room: on a disk, most tests would wait for it.
IN_MEMORY = $(shell awk '$$2 == "/dev/shm" && $$4 !~ /noexec/' /proc/mounts 2>/dev/null | grep -q . && \
	df -Pk /dev/shm | awk 'END { if ($$4 > 4e6) print "GOTMPDIR=$${TMPDIR:-/tmp} TMPDIR=/dev/shm" }')

# make lint has run vet. Without DWARF, a test is linked in half the time.
GO_TEST = $(IN_MEMORY) go test -vet=off -ldflags=-w -timeout 30m

# The tests that take longest begin first.
LONG := ./loadtest ./loadtest/internal/explore ./cmd/stock ./internal/stock/catalogue

test: servers ## run all tests on real servers, and some of each kind with the race detector (8 minutes)
	$(GO_TEST) $(LONG) ./...
	$(GO_TEST) -race -short $(CONCURRENT)
	$(GO_TEST) -race -run '$(MECHANISMS)' $(LONG) ./internal/locks ./internal/stock/guard
	cd $(BENCH_MODULE) && go test -race ./...

test-short: servers ## run the tests that need no more than MySQL and Redis (1 minute)
	$(GO_TEST) -short ./...

test-all: ## as test, and also the examples in all languages, a run on clusters, and the whole console in a browser
	STOCK_TEST_ALL=1 $(MAKE) test

# golangci-lint comes from a module of its own, so that its dependencies stay out of the service's.
GOLANGCI_LINT := "$$(go -C $(CURDIR)/tools tool -n golangci-lint)"

# Compile with the flags of make build, so that tests that build the programs find them compiled. With GOGC, lint is a
# sixth faster, for twice the memory.
lint: export GOGC = 300
lint: export GOFLAGS += -trimpath
lint: export CGO_ENABLED = 0
lint: ## check both modules with golangci-lint, as configured in .golangci.yml
	$(GOLANGCI_LINT) run ./...
	cd $(BENCH_MODULE) && $(GOLANGCI_LINT) run ./...

# The commit, with +dirty if files were changed. The Go command does not record it with -buildvcs=false in GOFLAGS, nor
# in a worktree. It is empty without git, and set once a build needs it.
REVISION = $(shell git describe --always --abbrev=40 --dirty=+dirty --exclude '*' 2>/dev/null)
GO_BUILD = CGO_ENABLED=0 go build -trimpath -ldflags='-X main.revision=$(REVISION)'

build: ## build bin/stock and bin/loadtest
	$(GO_BUILD) -o bin/ ./cmd/stock ./loadtest
