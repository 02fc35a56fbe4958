# Everything that is needed besides Go, make, git and root is set up by the
# targets themselves and kept in $(CACHE), outside the checkout.

# The toolchain that go.mod names, for all modules, whatever Go the machine has: the go
# command fetches it from the module proxy.
export GOTOOLCHAIN := go$(shell awk '$$1 == "go" {print $$2}' go.mod)

CACHE   := $(or $(NODEAGENT_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nodeagent)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# The chart and the manifest name it.
IMAGE   ?= ghcr.io/nodeagent-io/nodeagent:$(shell awk '$$1 == "appVersion:" {print $$2}' deploy/helm/nodeagent/Chart.yaml)
CLUSTER := $(CURDIR)/bin/cluster
LINTER  := $(CACHE)/tools/golangci-lint-v2.15.0-$(GOTOOLCHAIN)
# Debian's Prometheus and Alertmanager, which scrape and notify in the test cluster; and promtool of Prometheus 3.
PROMETHEUS := $(CACHE)/tools/prometheus-debian
PROMTOOL := $(PROMETHEUS)/promtool
PROMTOOL3 := $(CACHE)/tools/prometheus-$(shell awk '/prometheus\/prometheus v/ {print $$2}' test/prometheus/go.mod)/promtool3
# Its findings are those of the Go that builds it. The database is a module, so that it is pinned.
GOVULNCHECK := $(CACHE)/tools/govulncheck-v1.9.0-$(GOTOOLCHAIN)
KREW    := $(CACHE)/tools/krew
# Two versions of Helm, what makes the chart's README and runs its tests, and the CRDs of the Prometheus operator.
CHART_TOOLS := $(CACHE)/tools/helm-v4.3.1-v3.22.0-docs-v1.14.2-unittest-v1.1.2-operator-v0.95.2
export NODEAGENT_CRDS := $(CHART_TOOLS)/crds
export PATH := $(CACHE)/tools:$(PROMETHEUS):$(dir $(PROMTOOL3)):$(CHART_TOOLS):$(PATH)
VULNDB  := golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018

# Each package is compiled once for linters, tests and images alike, so that a first run
# does not take half an hour. Nobody debugs what is built here: it has no debug information.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false -tags=grpcnotrace

export NODEAGENT_CACHE := $(CACHE)
export NODEAGENT_CLUSTER := $(CLUSTER)
# The nodes of the test cluster; see test/cluster. What wants a node to itself goes to the
# first native one that has nothing else to do. On another kernel and runc:
# make scenario NAME=fuse-read NODES=vm,kernel=6.12,runc=1.4
NODES ?= vm native native native

# What breaks on purpose.
PROGRAMS := bin/victim bin/registry bin/fusehang bin/csidriver bin/lossyshim bin/mutewatch bin/rmpods bin/wrapper bin/runsc bin/containerd-shim-runsc-v1
# What asks about it.
PLUGIN := bin/kubectl-why_terminating
demo e2e matrix bench: $(PLUGIN)

# The release before this one, of which upgrades are tried; before the first release, a commit without the chart.
PREVIOUS := 52c7fc94
export NODEAGENT_PREVIOUS := $(CURDIR)/bin/previous-$(PREVIOUS)
PREVIOUS_IMAGE := $(NODEAGENT_PREVIOUS)/bin/nodeagent-image.tar

# Where the incidents' evidence, descriptions and the table of verdicts go.
export NODEAGENT_ARTIFACTS := $(CURDIR)/bin/e2e

# $(call need,COMMAND,PACKAGES) installs Debian packages when a command is missing.
need = command -v $(1) >/dev/null || { echo "installing $(2)"; apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2) >/dev/null; }

RACE_NEEDS = $(call need,gcc,gcc libc6-dev)

.DEFAULT_GOAL := help
.PHONY: help tools demo test unit race vuln e2e fuzz tapes matrix matrix-age scenario fixture named lint bench recall soak image cluster-build cluster-up cluster-down build
.PHONY: plugin krew chart dashboards proc-tests

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: NODES := vm native
demo: image $(PROGRAMS) $(if $(HELM),$(CHART_TOOLS)) cluster-up ## a real cluster with stuck pods, and why they are stuck. HELM=1: installed by the chart
	go run ./test/demo $(if $(HELM),-helm)

test: race vuln e2e ## unit, race, real /proc, alert rules, and the sentinels on a real cluster. CHANGED=REVISION: and the incidents near what has changed since

unit: ## the tests that take seconds
	go test -short ./...

race: $(PROMTOOL) $(PROMTOOL3) $(CHART_TOOLS) ## unit tests and those on this machine's own /proc, the agent's with the race detector
	@$(RACE_NEEDS)
	CGO_ENABLED=1 go test -race -timeout 30m ./cmd/... ./pkg/... ./deploy/...
	go test ./pkg/diagnose
	cd test/cluster && CGO_ENABLED=1 go test -race ./...
	cd deploy/grafana && go test ./...
	go test ./test/...
	cd test/prometheus && go test ./...

# UPDATE=1 NAME='why-*' writes test/e2e/testdata again.
e2e: image $(PROGRAMS) $(CHART_TOOLS) $(PROMTOOL) $(if $(findstring chart,$(NAME))$(FAILED),$(PREVIOUS_IMAGE)) $(if $(findstring proc,$(NAME))$(FAILED),proc-tests) cluster-up ## the sentinels, or NAME='fuse-*'. FAILED=1: of these what failed last
	@mkdir -p $(NODEAGENT_ARTIFACTS)
	also=$$($(if $(CHANGED),go run ./test/neighbours '$(CHANGED)')) && cd test/e2e && \
		NODEAGENT_SCENARIO='$(NAME)' NODEAGENT_ALSO="$$also" NODEAGENT_FAILED='$(FAILED)' NODEAGENT_UPDATE='$(UPDATE)' \
		go test -count=1 -timeout 60m -parallel 1000 -tags e2e,grpcnotrace

# What parses files that anybody on a node may write.
FUZZ := proc/internal/mount:FuzzMountinfo proc/internal/kernfile:FuzzParseStatus proc/internal/cgroup:FuzzCgroupFiles \
	proc/probe:FuzzMapsAndCmdline kubelet:FuzzParseCounts cri:FuzzParseProgram condition:FuzzMessage

fuzz: ## two minutes for each parser of what others write: FOR=10m
	@for target in $(FUZZ); do \
		go test -run '^$$' -fuzz "^$${target#*:}$$" -fuzztime $(or $(FOR),2m) ./pkg/$${target%:*} || exit 1; \
	done

# An agent that records tapes, which none that is for users does.
TAPE :=
COMMA := ,

# What the incidents' agents were handed, so that it can be run again without a cluster.
TAPES := $(CURDIR)/bin/tapes
NEW_TAPE = TAPE=1 NODEAGENT_TAPES=$(TAPES)

tapes: ## record anew what test/tape runs again: NAME='ignores-term' records another incident, or one of them
	@rm -rf $(TAPES)
	$(MAKE) e2e $(NEW_TAPE) NAME='$(or $(NAME),$(basename $(notdir $(wildcard test/tape/testdata/*.tape))))'
	cp $(TAPES)/*.tape test/tape/testdata
	go test ./test/tape -update

matrix: TAPE := 1
matrix: export NODEAGENT_TAPES := $(TAPES)
matrix: $(if $(PART)$(RESUME),,fuzz) image $(PROGRAMS) $(CHART_TOOLS) $(PROMTOOL) $(PREVIOUS_IMAGE) proc-tests bin/cluster ## all incidents, on three clusters one after the other, fuzz first, then the tapes, and recall last: PART=1/4 of them, RESUME=1 what is not green on this commit
	go run ./test/matrix $(PART:%=-part %) $(RESUME:1=-resume)
	$(CLUSTER) down
	$(if $(PART),,go test -count=1 ./test/tape -tapes $(TAPES))
	$(if $(PART),,NODEAGENT_TAPES= $(MAKE) recall && $(CLUSTER) down)

recall: NODES := native native
recall: image bin/wrapper cluster-up ## of everyday images whose pods burn their grace period, how many are told why: NAME='java-*'
	go run ./test/recall -name '$(NAME)'

matrix-age: ## how many commits to rules and readers have come since docs/matrix.md
	@go run ./test/matrix -age

scenario: named e2e ## one incident from edit to verdict: NAME=fuse-read, or a pattern: NAME='fuse-*'

# make itself has a variable of that name, the assembler's.
AS :=
fixture: named ## a test of pkg/diagnose from what that incident left: NAME=fuse-read [AS=file_name]
	@go run ./test/fixture '$(NAME)' '$(AS)'

named:
	@[ -n '$(NAME)' ] || { echo "give the name of an incident: make $(firstword $(MAKECMDGOALS)) NAME=fuse-read"; exit 2; }

vuln: $(GOVULNCHECK) ## known vulnerabilities in what the agent calls, of its modules and of Go itself
	$(GOVULNCHECK) -db "file://$$(go mod download -json $(VULNDB) | sed -n 's/^.*"Dir": "\(.*\)".*$$/\1/p')/data/osv" ./cmd/... ./pkg/...

dashboards: ## write the dashboards for Grafana, deploy/grafana/*.json; make chart copies them into the chart
	cd deploy/grafana && go run .

chart: $(CHART_TOOLS) ## write what is made of the chart: deploy/daemonset.yaml, the chart's README, its copies of the alerts and dashboards
	go test ./deploy -run 'TestManifestIsTheChart|TestChart' -update

lint: $(LINTER) ## linters, vet among them
	$(LINTER) run ./...
	cd test/cluster && $(LINTER) run -c $(CURDIR)/.golangci.yml ./...
	cd test/csidriver && $(LINTER) run -c $(CURDIR)/.golangci.yml ./...
	cd test/gvisor && $(LINTER) run -c $(CURDIR)/.golangci.yml ./...
	cd test/prometheus && $(LINTER) run -c $(CURDIR)/.golangci.yml ./...
	cd deploy/grafana && $(LINTER) run -c $(CURDIR)/.golangci.yml ./...

soak: image $(PROGRAMS) cluster-up ## incidents at random, with restarts of the agent, containerd and the kubelet: FOR=1h
	go run ./test/soak -for $(or $(FOR),1h)

bench: image $(PROGRAMS) cluster-up $(AGAINST:%=bin/against/%) ## speed and size, as a table: NAME='starve policy' for parts; AGAINST=REVISION by turns
	@$(call need,strace,strace)
	go run ./test/bench $(AGAINST:%=-against $(CURDIR)/bin/against/%) $(NAME)

# The readers of another commit, with the benchmark of this one.
bin/against/%:
	rm -rf $@.source && mkdir -p $@.source && git archive $* | tar -x -C $@.source
	rm -rf $@.source/test/bench && cp -r test/bench $@.source/test/bench
	cd $@.source && go build -o $(CURDIR)/$@ ./test/bench

build: ## the agent's static binary, bin/nodeagent
	go build $(if $(TAPE),-tags=grpcnotrace$(COMMA)tape) -ldflags "-s -w -X main.version=$(VERSION)" -o bin/nodeagent ./cmd/nodeagent

# go build says itself what has changed.
.PHONY: bin/kubectl-why_terminating
bin/kubectl-why_terminating:
	go build -ldflags "-s -w -X main.version=$(VERSION)" -o $@ ./cmd/kubectl-why_terminating

plugin: bin/kubectl-why_terminating ## the kubectl plugin, bin/kubectl-why_terminating

# krew takes semantic versions only.
krew: $(KREW) ## the plugin's archives for five platforms and krew's manifest of them, in bin/plugin, and krew installs it
	go run ./test/krew -tools $(CACHE)/tools -version $(or $(filter v%,$(VERSION)),v0.0.0)

image: build ## the agent's image, as bin/nodeagent-image.tar and in docker's or podman's store
	@./deploy/image.sh $(IMAGE)

$(PREVIOUS_IMAGE):
	@git cat-file -e $(PREVIOUS) || { echo "the checkout lacks commit $(PREVIOUS): git fetch --unshallow"; exit 2; }
	mkdir -p $(NODEAGENT_PREVIOUS) && git archive $(PREVIOUS) | tar -x -C $(NODEAGENT_PREVIOUS)
	cd $(NODEAGENT_PREVIOUS) && env -u MAKEFLAGS -u GOFLAGS make image VERSION=previous

cluster-build: bin/cluster ## make what the test cluster is built from, and start none
	$(CLUSTER) build

cluster-up: bin/cluster ## start the test cluster of this checkout, or the nodes that it lacks: NODES="vm native"
	$(CLUSTER) up $(NODES:%=--node %)

cluster-down: bin/cluster ## end it
	$(CLUSTER) down

bin/victim: $(wildcard test/victim/*.go test/hostile/*.go) go.mod
	go build -o $@ ./test/victim

proc-tests: ## the tests of pkg/proc as static programs, bin/*.test, which run on the kernels of virtual machines
	@rm -f bin/*.test
	go test -c -ldflags '-s -w' -o bin/ ./pkg/proc/...

# It is in the images with the programs of everyday images.
bin/wrapper: $(wildcard test/everyday/wrapper/*.go) go.mod
	go build -o $@ ./test/everyday/wrapper

bin/registry: $(wildcard test/registry/*.go) go.mod
	go build -o $@ ./test/registry

bin/fusehang: $(wildcard test/fusehang/*.go) go.mod
	go build -o $@ ./test/fusehang

bin/csidriver: $(wildcard test/csidriver/*.go) test/csidriver/go.mod
	cd test/csidriver && go build -o $(CURDIR)/$@ .

bin/lossyshim: $(wildcard test/lossyshim/*.go) go.mod
	go build -o $@ ./test/lossyshim

bin/mutewatch: $(wildcard test/mutewatch/*.go) go.mod
	go build -o $@ ./test/mutewatch

bin/rmpods: $(wildcard test/rmpods/*.go) go.mod
	go build -o $@ ./test/rmpods

# gVisor, the runtime of some pods: about a minute and a half the first time.
bin/runsc: test/gvisor/go.mod test/gvisor/go.sum
	cd test/gvisor && go build -ldflags '-s -w' -o $(CURDIR)/$@ gvisor.dev/gvisor/runsc

bin/containerd-shim-runsc-v1: $(wildcard test/gvisor/*.go) test/gvisor/go.mod test/gvisor/go.sum
	cd test/gvisor && go build -ldflags '-s -w' -o $(CURDIR)/$@ .

bin/cluster: $(shell find test/cluster -type f)
	cd test/cluster && go build -o $(CURDIR)/$@ .

tools: $(LINTER) $(PROMTOOL) $(PROMTOOL3) $(GOVULNCHECK) $(KREW) $(CHART_TOOLS) ## fetch what lint, vuln and unit tests need besides Go
	@$(RACE_NEEDS)
	go mod download
	go mod download $(VULNDB)
	cd test/cluster && go mod download
	cd test/csidriver && go mod download
	cd test/gvisor && go mod download
	cd test/helm && go mod download
	cd test/prometheus && go list -deps -test ./... >/dev/null
	cd deploy/grafana && go mod download

# Debian's packages would start a Prometheus and an Alertmanager; only the programs are wanted.
$(PROMTOOL):
	@echo "fetching Debian's prometheus and prometheus-alertmanager"
	@rm -rf $(PROMETHEUS).new && mkdir -p $(PROMETHEUS).new && cd $(PROMETHEUS).new && apt-get update -qq && \
		apt-get download -qq prometheus prometheus-alertmanager && for p in *.deb; do dpkg -x $$p .; done
	@cd $(PROMETHEUS).new && mkdir share && mv usr/share/prometheus share && mv usr/bin/* . && rm -r usr etc var lib *.deb
	@rm -rf $(PROMETHEUS) && mv $(PROMETHEUS).new $(PROMETHEUS)

$(PROMTOOL3):
	@echo "building promtool of Prometheus 3 (about five minutes, once)"
	@cd test/prometheus && go build -tags remove_all_sd,enable_kubernetes_sd -o $@ github.com/prometheus/prometheus/cmd/promtool

$(LINTER):
	@echo "building golangci-lint (about two minutes, once)"
	@mkdir -p $(@D) && GOBIN=$(@D)/new GOFLAGS=-gcflags=all=-dwarf=false go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	@mv $(@D)/new/golangci-lint $@

$(GOVULNCHECK):
	@mkdir -p $(@D) && GOBIN=$(@D)/new GOFLAGS=-gcflags=all=-dwarf=false go install golang.org/x/vuln/cmd/govulncheck@v1.9.0
	@mv $(@D)/new/govulncheck $@

$(CHART_TOOLS):
	@echo "building Helm and the chart's tools (some minutes, once)"
	@rm -rf $@.new && mkdir -p $@.new
	@GOBIN=$@.new go install helm.sh/helm/v3/cmd/helm@v3.22.0 && mv $@.new/helm $@.new/helm3
	@GOBIN=$@.new go install helm.sh/helm/v4/cmd/helm@v4.3.1
	@GOBIN=$@.new go install github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2
	@cd test/helm && go build -o $@.new/ tool
	@cd test/helm && $@.new/controller-gen crd paths=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1 output:crd:dir=$@.new/crds
	@mv $@.new $@

$(KREW):
	@mkdir -p $(@D) && GOBIN=$(@D)/new go install sigs.k8s.io/krew/cmd/krew@v0.4.3 sigs.k8s.io/krew/cmd/validate-krew-manifest@v0.4.3
	@mv $(@D)/new/validate-krew-manifest $(@D) && mv $(@D)/new/krew $@
