# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
UV := $(shell command -v uv || echo .tools/bin/uv)
OWN_UV := $(filter .tools/%,$(UV))
RUN := $(UV) run --no-sync
E2E := PYTHONPATH=e2e $(RUN) python
# The last one kills the cluster, again and again.
SCENARIOS := $(addprefix e2e/test_,cluster.py first_slice.py bad_input.py cluster_lifecycle.py)
export PYTHONUNBUFFERED := 1
# Where no uv is installed, the one of .tools is: programs that call uv must find it as well.
export PATH := $(PATH):$(CURDIR)/.tools/bin

.DEFAULT_GOAL := help
.PHONY: help setup format lint type crd test e2e cluster cluster-down images demo demo-down

help: ## List every target
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(OWN_UV) .venv/.synced ## Install the tools and the locked Python packages into .venv

.tools/bin/uv:
	python3 -m venv .tools && .tools/bin/pip install --quiet uv

.venv/.synced: pyproject.toml uv.lock | $(OWN_UV)
	$(UV) sync --locked --all-extras --quiet
	@touch $@

format: setup ## Format the code and sort its imports
	$(RUN) ruff check --fix --quiet
	$(RUN) ruff format

lint: setup ## Check style, import rules and the generated CRDs
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) lint-imports
	$(RUN) python -m headway_api --check

type: setup ## Check the types of every package
	$(RUN) mypy

crd: setup ## Write the CRDs from the pydantic kinds
	$(RUN) python -m headway_api

test: lint type ## Do all set-up, then run every test that needs no whole cluster
	$(E2E) -m cluster packages
	$(E2E) -m cluster build kubernetes etcd helm kubeconform
	$(E2E) -m smollm2
	$(RUN) pytest

cluster: setup ## Start a real one-node Kubernetes on this machine (root)
	$(E2E) -m cluster up

cluster-down: setup ## Stop that Kubernetes and leave nothing of it behind
	$(E2E) -m cluster down

images: setup ## Build the images and load them into the cluster
	$(E2E) -m images build
	$(E2E) -m images load

e2e: setup ## Run the scenarios on the real cluster
	$(RUN) pytest -s $(SCENARIOS)

demo: setup ## From a bare machine to a pool that serves and tunes itself
	$(E2E) -m demo run

demo-down: setup ## Undo the demo: release, pools and cluster
	$(E2E) -m demo down
