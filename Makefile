# hub-apiserver: `make help` lists the targets.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The version of the Kubernetes libraries leads, since they derive API levels
# from it; our own follows as build metadata.
KUBE_LIBRARIES := v1.37.2
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The date of the commit, so that the same commit gives the same binaries.
EPOCH   := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
commitdate = $(shell TZ=UTC git log -1 --format=%cd --date=format-local:$(1) 2>/dev/null)
DIRTY   := $(shell [[ -z $$(git status --porcelain 2>/dev/null) ]] || echo dirty)
# Without a tag, a version as Go gives it to a commit: valid for images and charts. The hash has a fixed length,
# because git's default length depends on the number of objects in the clone.
VERSION ?= $(shell git describe --tags --abbrev=12 --match 'v[0-9]*' 2>/dev/null || echo v0.0.0-$(call commitdate,%Y%m%d%H%M%S)-$(shell echo $(COMMIT) | cut -c1-12))$(addprefix -,$(DIRTY))
STAMP   := k8s.io/component-base/version
LDFLAGS := -s -w -X $(STAMP).gitVersion=$(KUBE_LIBRARIES)+hub-apiserver.$(VERSION) -X $(STAMP).gitMajor=1 -X $(STAMP).gitMinor=37 \
	-X $(STAMP).gitCommit=$(COMMIT) -X $(STAMP).gitTreeState=$(or $(DIRTY),clean) -X $(STAMP).buildDate=$(call commitdate,%Y-%m-%dT%H:%M:%SZ)
RELEASE  = -version='$(VERSION)' -commit='$(COMMIT)' -epoch='$(EPOCH)' -ldflags='$(LDFLAGS)'
# Without the request log of gRPC, which nobody serves: it makes the linker keep unused code, 24 MB in the agent.
TAGS := -tags=grpcnotrace
# Compilers and linkers are short processes: collect garbage less often.
GOBUILD := GOGC=400 go build -buildvcs=false $(TAGS)
# Tests start many servers and link many binaries: collect garbage less often, and omit the symbols for debuggers.
GOTEST := GOGC=400 go test -buildvcs=false $(TAGS) -vet=off -ldflags=-w

CLUSTERS ?= 2

export HUB_BIN := $(CURDIR)/bin
# The program that runs the unit tests of the console's modules: Node.js 20.11 or later, or none.
ifndef HUB_NODE
HUB_NODE := $(shell node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 11) ? 0 : 1)' 2>/dev/null && echo node || echo none)
endif
export HUB_NODE
# The seed of random tests: other values in each commit, and the same in all runs of a commit.
ifndef TEST_SEED
TEST_SEED := $(if $(filter-out unknown,$(COMMIT)),0x$(shell echo $(COMMIT) | cut -c1-8))
endif
export TEST_SEED
without_node = @[[ "$(HUB_NODE)" != none ]] || echo "== NOT TESTED: the modules of the console (pkg/console/unit), because Node.js 20.11 is missing" >&2
without_root = @[[ "$$(id -u)" = 0 ]] || echo "== NOT TESTED: full disks, wrong clocks, networks that fail, and containers, because these tests require root" >&2
# Static programs, as in the images: tests run them in containers without files of this machine.
export CGO_ENABLED := 0

.PHONY: help
help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/apiserver, bin/agent and bin/clusteradm, and the program of make run
	@echo "== building bin/apiserver, bin/agent and bin/clusteradm (the first build takes some minutes)"
	@mkdir -p bin
	$(GOBUILD) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/apiserver ./cmd/agent ./cmd/clusteradm ./hack/run ./examples/clusterclient
	@ln -sf clusteradm bin/kubectl-clusteradm # with bin on the PATH: kubectl clusteradm

.PHONY: devhub
devhub: ## Build bin/devhub: etcd, kube-apiserver, kube-controller-manager and kubectl in one binary
	@hack/build-devhub.sh

.PHONY: node
node: ## Install containerd, runc and what else real nodes need, and build bin/devnode: kubelet, kube-proxy and kube-scheduler
	@hack/install-node.sh
	@PROGRAMS=node hack/build-devhub.sh

.PHONY: programs
programs: ## Build bin/devhub and the programs of build at once, in less time
	@hack/build-devhub.sh $(MAKE) --no-print-directory build

.PHONY: postgres
postgres: ## Install PostgreSQL for the tests, if it is missing
	@hack/install-postgres.sh

.PHONY: chromium
chromium: ## Install Chromium for the tests of the console, if it is missing
	@hack/install-chromium.sh

.PHONY: run
run: programs $(if $(NODES),node) ## Start a hub with CLUSTERS=2 managed clusters and show a session; ONCE=1 stops afterwards; AWS=fake registers the last cluster with an IAM role; DEMO=1 adds 40 simulated clusters; NODES=real starts clusters with real nodes
	@CLUSTERS=$(CLUSTERS) ONCE=$(ONCE) AWS=$(AWS) DEMO=$(DEMO) NODES=$(NODES) GOGC=400 exec bin/run # most of the programs have just started

.PHONY: image
image: ## Build OCI images of the server and the agent into dist/; PUSH=registry.example.com/project pushes them
	@cd hack/release && $(GOBUILD) -o ../../bin/release .
	@bin/release $(RELEASE) -only=images $(if $(PUSH),-push='$(PUSH)')

.PHONY: release
release: ## Build programs, images, manifests, charts and checksums into dist/; PUSH as for image
	@cd hack/release && $(GOBUILD) -o ../../bin/release .
	@bin/release $(RELEASE) $(if $(PUSH),-push='$(PUSH)')

.PHONY: test-unit
test-unit: ## Run the tests of pkg, cmd and hack, which start no server
	$(GOTEST) ./pkg/... ./cmd/... ./hack/...
	$(without_node)

.PHONY: integration
integration: programs postgres $(if $(filter browser console,$(PKG)),chromium) ## Run the tests of one area on real servers: PKG=search; RUN=TestName selects tests
	@[[ -n "$(PKG)" ]] || { echo "integration: set PKG to one of:" $$(ls test) >&2; exit 2; }
	$(GOTEST) -count=1 -parallel 4 -timeout 60m $(if $(RUN),-run '$(RUN)') ./test/$(PKG)/...
	$(without_root)

.PHONY: test
test: test-programs ## Run the tests that a change needs: all except those of test-long; browser tests only with Chromium
	@echo "== testing"; $(without_chromium); $(MAKE) --no-print-directory --jobs=2 --keep-going test-short test-release; $(report_untested)
	$(without_node)
	$(without_root)

.PHONY: test-long
test-long: test-programs ## Run the long tests of test/tiers/long: installations, outages, alerts and others; LONG='test/backup hack/monitoring' selects packages
	@echo "== testing"; $(without_chromium); $(MAKE) --no-print-directory --jobs=2 --keep-going test-long-main $(if $(filter hack/monitoring,$(or $(LONG),hack/monitoring)),test-monitoring); $(report_untested)
	$(without_root)

.PHONY: test-programs
test-programs: programs postgres
without_chromium = hack/install-chromium.sh || export HUB_CHROMIUM=none
report_untested = [[ "$${HUB_CHROMIUM:-}" != none ]] || echo "== NOT TESTED: the console in a browser (test/console), because Chromium is missing" >&2

# Most packages wait for the slots of test/localhub, which bound the load, or for their servers. So more of them run at
# once than there are processors, and the limit of a package is high.
.PHONY: test-short
test-short:
	$(GOTEST) -p 3 -parallel 4 -timeout 60m $$(hack/tests.sh short)

.PHONY: test-release
test-release:
	cd hack/release && $(GOTEST) ./...

.PHONY: test-long-main
test-long-main: export LONG := $(LONG)
test-long-main:
	packages=$$(hack/tests.sh packages); [[ -z $$packages ]] || $(GOTEST) -p 3 -parallel 4 -timeout 60m $$packages || failed=1; \
	some=$$(hack/tests.sh some); [[ -z $$some ]] || $(GOTEST) -p 3 -parallel 4 -timeout 60m $$some || failed=1; \
	[[ -z $${failed:-} ]]

.PHONY: test-node
test-node: programs ## Run the long tests on clusters with real nodes (root)
	@if ! hack/install-node.sh; then \
		echo "NOT TESTED: real nodes (test/node), because their programs are missing" >bin/test-node.log; \
	else \
		PROGRAMS=node hack/build-devhub.sh; \
		$(GOTEST) -count=1 -timeout 30m -v ./test/node/... | tee bin/test-node.log || failed=1; \
	fi; $(untested_nodes); [[ -z $${failed:-} ]]
untested_nodes = { grep -ho 'NOT TESTED: .*' bin/test-node.log || true; } | sort -u | sed 's/^/== /' >&2

.PHONY: test-monitoring
test-monitoring:
	cd hack/monitoring && $(GOTEST) -timeout 60m ./...

.PHONY: campaign
campaign: programs postgres ## Run the failure matrix and write docs/reliability.md (hours, root); ROW=etcd selects rows; see docs/reliability.md
	CAMPAIGN=1 ROW='$(ROW)' $(if $(DURATION),DURATION='$(DURATION)') $(GOTEST) -count=1 -timeout 5h -v -run TestCampaign ./test/campaign
	@$(if $(ROW),,$(MAKE) --no-print-directory campaign-random)

.PHONY: campaign-random
campaign-random: # with other seeds than the tests of a commit
	export TEST_SEED=$$((RANDOM << 15 | RANDOM)); echo "== TEST_SEED=$$TEST_SEED"; \
	REGISTRATION_SEQUENCES=150 CRASH_CREATES=1000 CRASH_ROUNDS=4 SCALE_CLUSTERS=100 SCALE_IDLE_SECONDS=60 EXECUTOR_TRIPLES=5000 ACCESS_REVIEWS=200000 SEARCH_DECISIONS=100000 HISTORY_KILLS=12 HISTORY_CALLS=2000 REHOMED=100 \
		$(GOTEST) -count=1 -p 1 -timeout 60m \
		-run 'TestRegistrationFaults|TestCrashes|TestManyPermissions|TestExecutorDecisionsMatchAPIServer|TestFleetAccessMatchesAPIServer|TestVisibilityIsExact|TestHistory|TestHubLost' \
		./test/registration ./test/server ./test/differential ./test/search ./test/history ./test/rehoming

.PHONY: test-skew
test-skew: programs test-skew-release ## Run test-skew-release, and the conformance tests on hubs with Kubernetes 1.36.3 and 1.35.4
	for version in 1.36.3 1.35.4; do \
		KUBE_VERSION=$$version hack/build-devhub.sh; \
		HUB_KUBE_BIN=$(CURDIR)/bin/kube-$$version go test -buildvcs=false -count=1 -timeout 20m ./test/conformance/...; \
	done

.PHONY: test-skew-release
test-skew-release: programs ## Test this version together with another one: PREVIOUS=v0.1.0 names it; see hack/build-previous.sh for the default
	@PREVIOUS='$(PREVIOUS)' hack/build-previous.sh
	$(GOTEST) -tags skew -count=1 -timeout 20m ./test/skew

.PHONY: bench
bench: programs postgres chromium ## Run the benchmarks and print their figures: RUN=Sizing selects some; SIZING=large measures large fleets
	go test -buildvcs=false -run '^$$' -bench '$(or $(RUN),.)' -benchtime 1x -timeout 90m ./test/bench/... ./test/install/...

.PHONY: hostile
hostile: programs ## Send hostile input to a hub and an agent, and fail if one costs too much; HOSTILE_INPUTS=4 of each class
	@$(GOBUILD) -o bin/hostile ./hack/hostile
	@exec bin/hostile

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME=30s
	@hack/fuzz.sh

.PHONY: generate
generate: ## Generate code from the types in pkg/apis
	hack/update-codegen.sh

.PHONY: verify
verify: ## Check generated code, formatting, vet, lint, imports and go.mod
	hack/verify-all.sh

.PHONY: lint
lint: ## Run golangci-lint with the import rules of .golangci.yaml
	hack/verify-lint.sh

.PHONY: clean
clean: ## Remove bin/, dist/ and the state of make run in .run/
	rm -rf bin dist .run
