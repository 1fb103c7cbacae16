# Every target does the set-up that it needs; a second call does none.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format lint types layers clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(STAMP) ## make the virtual environment in .venv and install everything

demo: $(STAMP) ## train one model in six precisions, print the table, write the page (under 3 minutes)
	$(BIN)/python examples/demo.py

test: $(STAMP) ## run every test
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: format lint types layers ## formatting, lint, strict types, layers

format: $(STAMP)
	$(BIN)/ruff format --check src tests examples benchmarks

lint: $(STAMP)
	$(BIN)/ruff check src tests examples benchmarks

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/python -m pytest -q tests/meta/test_layers.py

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache demo-report.html
