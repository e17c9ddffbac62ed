SHELL := /bin/bash
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

.DEFAULT_GOAL := help
.PHONY: help build test lint demo clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build bin/pgrelay
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/pgrelay ./cmd/pgrelay

test: ## Run all tests with the race detector; installs PostgreSQL, promtool and Node.js if they are not there
	.ci/install server compiler alerts stranger
	go test -race -timeout 20m ./...

lint: ## Run the linters; builds golangci-lint into bin if it is not there
	.ci/install linter
	bin/golangci-lint run --build-tags aws

demo: build ## Show pgrelay at work; installs PostgreSQL if there is none
	.ci/install server
	go run ./internal/demo

clean: ## Remove what was built
	rm -rf bin
