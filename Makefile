# One command each.  Everything is installed into .venv and build/, nothing else on the machine is
# touched, except that Debian's own packages of Prometheus and Alertmanager are installed where they
# are missing and this user may do so.

PYTHON ?= python3
VENV ?= .venv
# A release whose CPU build is small where pip offers one; any from 2.2 on works.
TORCH ?= torch==2.13.0
# Test files run side by side in so many processes.
WORKERS ?= 2
# Where the newer Prometheus releases are unpacked that the rules are tested on.
export ARGUS_PROMETHEUS_VERSIONS ?= $(CURDIR)/build/prometheus

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
NATIVE := $(wildcard native/*.c native/*.h native/nvtx/* native/kernels/*)

.PHONY: help demo test lint format dashboards reference bench bench-gpu bench-scale bench-accuracy bench-healthy setup prometheus prometheus-versions clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

demo: $(INSTALLED) prometheus ## Slow one rank of a real job and see it accused (ARGS="--keep" and others, see ARGS="--help")
	$(BIN)/argus demo --report build/demo-report.html $(ARGS)

test: $(INSTALLED) prometheus prometheus-versions ## Run the whole test suite (ARGS="-k reader" for a part)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(ARGS)

lint: $(INSTALLED) ## Check style, types and committed files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED) ## Rewrite the sources in the house's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dashboards: $(INSTALLED) ## Write the Grafana dashboards, dashboards/json/, anew
	$(BIN)/python -m dashboards

reference: $(INSTALLED) ## Write docs/reference.md anew
	$(BIN)/python scripts/reference

bench: $(INSTALLED) prometheus ## Measure cost and size, write benchmarks/results/
	$(BIN)/python -m benchmarks $(ARGS)

bench-gpu: $(INSTALLED) ## Measure a training step on a GPU, and whether device seconds are right there
	$(BIN)/python -m benchmarks.gpu_training $(ARGS)

bench-accuracy: $(INSTALLED) prometheus ## Judge 232 drills by the shipped rules and by the plain method
	$(BIN)/python -m benchmarks.accuracy $(ARGS)

bench-scale: $(INSTALLED) prometheus prometheus-versions ## Measure 12,960 ranks in front of one Prometheus (15 min)
	$(BIN)/python -m benchmarks.scale $(ARGS)

bench-healthy: $(INSTALLED) prometheus ## Judge a day of 1,024 healthy ranks (ARGS="--hours 2" for less)
	$(BIN)/python -m benchmarks.healthy $(ARGS)

setup: $(INSTALLED) prometheus prometheus-versions ## Install all that the other targets need

$(INSTALLED): pyproject.toml setup.py $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[torch,traces,report,dev,bench]"
	@touch $@

prometheus:
	@scripts/install-prometheus

prometheus-versions:
	@.ci/prometheus-versions "$(ARGUS_PROMETHEUS_VERSIONS)" || \
	  echo "make: no newer Prometheus could be fetched; the rules are tested on the installed one only" >&2

clean: ## Remove what was built and installed here
	rm -rf $(VENV) build dist .demo .pytest_cache .mypy_cache .ruff_cache exporter/*.egg-info exporter/argus/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
