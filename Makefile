# hub-apiserver: `make help` lists what can be done.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The version of the Kubernetes libraries leads, since they derive API levels
# from it; our own follows as build metadata.
KUBE_LIBRARIES := v1.37.2
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
STAMP   := k8s.io/component-base/version
LDFLAGS := -s -w -X $(STAMP).gitVersion=$(KUBE_LIBRARIES)+hub-apiserver.$(VERSION) -X $(STAMP).gitMajor=1 -X $(STAMP).gitMinor=37 -X $(STAMP).gitCommit=$(COMMIT)
GOBUILD := go build -buildvcs=false

CLUSTERS ?= 2

export HUB_BIN := $(CURDIR)/bin

.PHONY: help
help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/apiserver, bin/agent and bin/clusteradm
	@echo "== building bin/apiserver, bin/agent and bin/clusteradm (a first build takes some minutes)"
	@mkdir -p bin
	$(GOBUILD) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/apiserver ./cmd/agent ./cmd/clusteradm
	@ln -sf clusteradm bin/kubectl-clusteradm # with bin on the PATH: kubectl clusteradm

.PHONY: devhub
devhub: ## Build bin/devhub: etcd, kube-apiserver, kube-controller-manager and kubectl in one
	@hack/build-devhub.sh

.PHONY: postgres
postgres: ## See to a PostgreSQL server for the tests
	@hack/install-postgres.sh

.PHONY: run
run: devhub build ## Start a hub with CLUSTERS=2 managed clusters and show what it does; ONCE=1 stops then, AWS=fake has the last cluster join by IAM roles
	@mkdir -p bin
	@$(GOBUILD) -o bin/run ./hack/run
	@CLUSTERS=$(CLUSTERS) ONCE=$(ONCE) AWS=$(AWS) exec bin/run

.PHONY: test
test: devhub build postgres ## Run all tests, against real servers
	@echo "== testing"
	go test -buildvcs=false -timeout 28m ./...

.PHONY: campaign
campaign: devhub build ## Run the tests that make random choices for longer than `make test` does
	REGISTRATION_SEQUENCES=150 CRASH_CREATES=1000 EXECUTOR_TRIPLES=5000 go test -buildvcs=false -count=1 -p 1 -timeout 60m \
		-run 'TestRegistrationFaults|TestCrashes|TestExecutorIsJudgedAsTheAPIServerJudges' ./test/registration ./test/server ./test/differential

.PHONY: test-skew
test-skew: devhub build ## Run the conformance tests against hubs 1.36.3 and 1.35.4
	KUBE_VERSION=1.35.4 hack/build-devhub.sh
	go test -buildvcs=false -count=1 -timeout 20m ./test/conformance/...
	HUB_KUBE_BIN=$(CURDIR)/bin/skew-1.35.4 go test -buildvcs=false -count=1 -timeout 20m ./test/conformance/...

.PHONY: bench
bench: devhub build postgres ## Measure; prints figures and judges none
	go test -buildvcs=false -run '^$$' -bench . -benchtime 1x -timeout 30m ./test/bench/...

.PHONY: hostile
hostile: devhub build ## Send hostile input to a hub and an agent, HOSTILE_INPUTS=4 of each class; fails if any costs too much
	@$(GOBUILD) -o bin/hostile ./hack/hostile
	@exec bin/hostile

.PHONY: fuzz
fuzz: ## Run every fuzz target of the repository for FUZZTIME=30s
	@hack/fuzz.sh

.PHONY: generate
generate: ## Generate code from the types in pkg/apis
	hack/update-codegen.sh

.PHONY: verify
verify: ## Check generated code, formatting, vet, lint, imports and go.mod
	hack/verify-all.sh

.PHONY: lint
lint: ## Run staticcheck and the import rules
	hack/verify-lint.sh

.PHONY: clean
clean: ## Remove what was built, and the state of make run
	rm -rf bin .run
