SHELL := /bin/bash
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

.DEFAULT_GOAL := help
# The versions of PostgreSQL that `make test-matrix` and `make test-core` run on.
VERSIONS ?= 13 14 15 16 17 18

.PHONY: help build test test-matrix test-core chaos lint demo example-calendar example-booking example-booking-full clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build bin/pgrelay
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/pgrelay ./cmd/pgrelay

test: ## Run all tests with the race detector; installs PostgreSQL, promtool, Node.js and aiosmtpd if they are not there
	.ci/install server compiler alerts stranger mail
	GORACE=atexit_sleep_ms=0 go test -race -timeout 60m ./...

# Whatever talks to PostgreSQL; and of that what a version could change, without what only takes long.
INTEGRATION := ./migrations ./replication ./poller ./relay ./internal/pgtest ./internal/check ./internal/deploytest ./internal/e2e
CORE := ./migrations ./replication ./poller ./relay ./internal/check
CORE_E2E := Slot|Stream|Standby|Leader|Instance|Deploy|Network|Session|Server|Crash|Killed|Connections|LogicalWAL|RowLocked|Migrate|Body|Table|Settings|Rights|Cutover

test-matrix: ## Run the integration tests on each of VERSIONS of PostgreSQL; installs them
	.ci/install alerts stranger
	.ci/versions "$(VERSIONS)" go test -count 1 -timeout 60m $(INTEGRATION)

test-core: ## Run the core of the integration tests on each of VERSIONS of PostgreSQL; installs them
	.ci/versions "$(VERSIONS)" go test -count 1 -timeout 60m $(CORE)
	.ci/versions "$(VERSIONS)" go test -count 1 -timeout 60m -run '$(CORE_E2E)' ./internal/e2e

chaos: export CHAOS_MINUTES := $(or $(CHAOS_MINUTES),5)
chaos: export CHAOS_SEED := $(or $(CHAOS_SEED),$(shell date +%s))
chaos: ## Break everything at once for CHAOS_MINUTES, shared out among the seeds in CHAOS_SEED
	.ci/install server compiler
	go test -race -count=1 -v -timeout 0 -run InChaos ./internal/chaos

lint: ## Run the linters; builds golangci-lint into bin if it is not there
	.ci/install linter
	bin/golangci-lint run --build-tags aws

demo: build ## Show pgrelay at work; installs PostgreSQL if there is none
	.ci/install server
	go run ./internal/demo

example-calendar: build ## Show a calendar back end on pgrelay: outboxes without a column of ours
	.ci/install server
	go run ./examples/calendar

example-booking: build ## Show a booking service on pgrelay: mail that nobody gets twice
	.ci/install server
	go run ./examples/booking

example-booking-full: export BOOKING_EVENTS := $(or $(BOOKING_EVENTS),1000)
example-booking-full: ## Break everything while BOOKING_EVENTS bookings invite three guests each
	.ci/install server compiler
	go test -race -count=1 -v -timeout 0 -run Guest ./examples/booking

clean: ## Remove what was built or installed here
	rm -rf bin .cache
