# Every target does the set-up that it needs; a second call does none.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
CODE   := $(wildcard src tests examples benchmarks docs/*.py .ci/*.py)

.DEFAULT_GOAL := help
.PHONY: help setup demo bench score test docs tutorial dist check format lint types layers clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "mixprec needs Python 3.10 or later; $(PYTHON) is %d.%d. Try: make PYTHON=python3.12 ..." % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV), once. Most of the time goes to downloading torch."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(STAMP) ## make the virtual environment in .venv and install everything

demo: $(STAMP) ## train one model in six precisions, print the table, write the page (under 3 minutes)
	@$(BIN)/python examples/demo.py

bench: $(STAMP) ## measure beside the peers (under 10 minutes; ARGS=--quick: under 2; ARGS=--help)
	@$(BIN)/python -m benchmarks $(ARGS)

score: $(STAMP) ## examine every planted fault, beside anomaly mode and DebugUnderflowOverflow (an hour)
	@$(BIN)/python -m benchmarks.doctor_score --peers --output benchmarks/results/doctor_score.json $(ARGS)

# Two test processes on two cores: one thread each is faster than two that wait for each other.
test: export OMP_NUM_THREADS ?= 1
test: $(STAMP) ## run every test
	$(BIN)/python -m pytest -n 2 --dist worksteal

docs: $(STAMP) ## write what is generated and build the manual in build/site (ARGS=--check: only tell what is stale)
	@for script in docs/generate_*.py; do $(BIN)/python $$script $(ARGS) || exit 1; done
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

tutorial: $(STAMP) ## run the tutorial's broken scripts and the README's verdict again (a few minutes)
	@$(BIN)/python docs/run_tutorial.py $(ARGS)
	@$(BIN)/python docs/run_verdict.py

dist: $(STAMP) ## build wheel and sdist in dist/, check them, install them into an empty environment
	@$(BIN)/python .ci/dist.py

check: format lint types layers ## formatting, lint, strict types, layers

format: $(STAMP) ## is everything formatted?
	$(BIN)/ruff format --check $(CODE)

lint: $(STAMP) ## ruff's lint rules
	$(BIN)/ruff check $(CODE)

types: $(STAMP) ## mypy --strict on src
	$(BIN)/mypy

layers: $(STAMP) ## no module imports from a layer above its own
	$(BIN)/python -m pytest -q tests/meta/test_layers.py

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-report.html demo-report.json bench.json
