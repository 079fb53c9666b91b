# Two commands do everything: `make quickstart` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
SEEDS ?= 1,2,3

# Spark must run its workers with the interpreter that has the package, not with the first python3 on PATH.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

.PHONY: help quickstart test lint format typecheck bench chaos crash-matrix docs lock java delta-jars clean

help: ## list every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(RUNTIME) java ## set everything up and run the main job: create a graph, write it and read it with Spark
	@. .ci/java-env && $(BIN)/python examples/quickstart.py

test: $(DEV) java ## set everything up and run the whole test suite
	@. .ci/java-env && $(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(DEV) ## ruff: rules and format
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

format: $(DEV) ## ruff: fix what can be fixed
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

typecheck: $(DEV) ## mypy, strict
	@$(BIN)/mypy

bench: $(DEV) java ## measure: publish cost and load/read speed, side by side with raw Lance and parquet
	@. .ci/java-env && $(BIN)/python benchmarks/run.py

chaos: $(DEV) ## kill, stop and fail many writers of one graph, then ask an oracle; SEEDS=1-20 or 1,2,3
	@$(BIN)/python tests/chaos/chaos.py --seeds "$(SEEDS)"

crash-matrix: $(DEV) ## kill, fail and stop every kind of writer in every gap of the protocol; keeps docs/crash-matrix.md
	@$(BIN)/python tests/crash/matrix.py --write docs/crash-matrix.md

docs: $(DEV) ## render the reference pages that come from code (errors, command line)
	@$(BIN)/python docs/render.py

lock: $(DEV) ## resolve requirements.lock anew from pyproject.toml (versions only)
	@$(BIN)/pip install -q uv && $(BIN)/uv pip compile -q --upgrade --universal --python-version 3.10 \
	  --no-annotate --no-header --no-emit-index-url --extra dev --extra delta --extra graphframes \
	  pyproject.toml -o requirements.lock

java: ## find a Java 17+ runtime, or install one
	@.ci/ensure-java

delta-jars: $(RUNTIME) java ## fetch Delta's Python package and JARs once, for examples/delta_to_graph.py and its test
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock -e '.[delta]'
	@.ci/delta-jars $(VENV) .delta-jars

clean: ## remove the virtual environment and every cache
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist

$(BIN)/python:
	@.ci/ensure-venv $(PYTHON) $(VENV)

$(RUNTIME): pyproject.toml requirements.lock | $(BIN)/python
	@echo "Installing omnigraph-spark into $(VENV) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock -e .
	@touch $@

$(DEV): $(RUNTIME)
	@echo "Installing the development tools ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock -e '.[dev]'
	@touch $@
