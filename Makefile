# The same targets for a person, a laptop and CI. `make` alone lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SHORT  := not slow and not data and not browser and not cluster and not torch and not verify
LOOPS  := hatch_build.py $(wildcard src/dissensus/compiled/*.c)
CORES  := $(shell nproc 2>/dev/null || echo 2)
# Tests start hundreds of interpreters: what one has compiled is kept for the next, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE
# A file stays in one process: what its tests share (a cluster, a browser, a fitted model) is made once.
SPREAD := -n $(CORES) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help demo check test verify lint types install browser benchmarks reproduce core docs clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-11s %s\n", $$1, $$2}'

demo: $(VENV)/core.stamp  ## simulate disagreeing annotators, refine their labels, compare with the truth
	@$(BIN)/dissensus demo -o demo-output

check: install lint types  ## lint, types and the quick tests, for every change
	$(BIN)/python -m pytest -q $(SPREAD) -m "$(SHORT)"

test: install browser lint types  ## everything a developer needs: install, lint, types, tests with coverage
	$(BIN)/python -m pytest $(SPREAD) -m "not verify" --cov --cov-report=term

verify: install browser  ## all tests, the long ones too, with every seed, size and dataset
	DISSENSUS_VERIFY=1 $(BIN)/python -m pytest $(SPREAD)

lint: install  ## ruff: style and format; names and English
	$(BIN)/ruff check src tests benchmarks experiments reproduction website hatch_build.py
	$(BIN)/ruff format --check src tests benchmarks experiments reproduction website hatch_build.py
	$(BIN)/python tests/helpers/style.py

types: install  ## mypy, strict on src/, experiments/ and reproduction/
	$(BIN)/mypy

install: $(VENV)/all.stamp  ## the package with all extras, in .venv

browser: install  ## Chromium for the report's tests, where it is missing
	@command -v chromium >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends chromium chromium-driver fonts-dejavu-core; }

docs: install  ## the documentation site, in site/, and every example on its pages; a broken link is an error
	$(BIN)/python website/gallery.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python website/check.py site
	$(BIN)/python -m pytest -q tests/docs/test_pages.py tests/docs/test_notebooks.py

core:  ## the core's own tests with VERSIONS=lowest (as pyproject.toml says) or newest, in an environment of their own
	$(PYTHON) tests/helpers/core_versions.py $(or $(VERSIONS),newest)

benchmarks: install  ## limits of speed in one table, docs/results/speed.md (half an hour); WHICH="fit search" runs some, WHICH=all everything
	$(BIN)/python -m benchmarks.speed $(WHICH)

reproduce: install  ## the paper's evaluation, an hour on two cores, with its page in docs/results/paper; QUICK=1 takes ten minutes and writes to paper-quick
	$(BIN)/python -m reproduction $(if $(QUICK),--quick -o paper-quick,--publish docs/results/paper)

clean:  ## remove the environment and what tests and the demo wrote
	rm -rf $(VENV) .venv-core site demo-output .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt --upgrade pip

$(VENV)/core.stamp: $(BIN)/python pyproject.toml constraints.txt $(LOOPS)
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/all.stamp: $(BIN)/python pyproject.toml constraints.txt $(LOOPS)
	$(BIN)/python -m pip install -q -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[all]' --group compare --group docs --group notebooks
	@touch $@ $(VENV)/core.stamp
