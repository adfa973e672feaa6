# make help lists the targets. Everything that a target needs and that is not Go, make or git is built from
# the modules pinned in hack/ and test/assets.

SHELL := /usr/bin/env bash -o pipefail
.DEFAULT_GOAL := help

TOOL   := go tool -modfile=hack/tools/go.mod
LINTER := go tool -modfile=hack/lint/go.mod golangci-lint

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
IMAGE   ?= routing-operator:$(VERSION)

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Development

.PHONY: build
build: ## Build the manager and the command-line tools into bin/.
	go build -o bin/ ./cmd/...

.PHONY: generate
generate: ## Generate deep copies and CRDs from the API types.
	$(TOOL) controller-gen object paths=./api/... crd output:crd:dir=config/crd/bases

.PHONY: fmt
fmt: ## Format the code.
	gofmt -w api cmd controllers internal test webhooks

.PHONY: assets
assets: ## Build the control plane and the Helms that the tests run against (minutes, the first time).
	@test/assets/build.sh etcd kube-apiserver kube-controller-manager kubectl helm3 helm4 >/dev/null

##@ Checks

.PHONY: test
test: assets ## Run every test, those against a real API server included.
	go vet ./...
	go test -timeout 20m ./api/... ./cmd/... ./config/... ./controllers/... ./docs ./internal/... ./webhooks/...
	@# Each suite has a control plane of its own. Two that wait a lot run beside each other, the longest first; the last two
	@# load the machine by themselves, or measure.
	go test -timeout 40m -p 2 ./test/envtest/rollout $$(go list ./test/... | grep -vE '/(rollout|faults|scale)$$')
	go test -timeout 40m -p 1 ./test/envtest/faults ./test/envtest/scale

.PHONY: test-short
test-short: ## Run the tests that need no API server.
	go test -short ./docs ./api/... ./internal/... ./webhooks/... ./controllers/... ./cmd/... ./config/...

.PHONY: bench
bench: ## Run the benchmarks.
	go test -run '^$$' -bench . -benchmem ./internal/...

.PHONY: lint
lint: ## Lint.
	$(LINTER) run

.PHONY: verify
verify: ## Check that formatted, generated and module files are up to date. Writes nothing to the work tree.
	hack/verify.sh

.PHONY: vulncheck
vulncheck: ## Check the dependencies for known vulnerabilities (needs vuln.go.dev).
	$(TOOL) govulncheck ./...

##@ Running

.PHONY: demo
demo: ## Run the whole operator against a real control plane on this machine, and show what it does.
	go run ./test/demo

.PHONY: install
install: ## Install CRDs, access rights, webhook and manager into the current cluster. IMAGE names the image.
	$(TOOL) kustomize build config/default | sed 's|image: routing-operator:latest|image: $(IMAGE)|' | kubectl apply --server-side -f -
