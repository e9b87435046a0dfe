.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Hundreds of processes are started by the tests alone: each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

# The Python that makes .venv: the first of these that is new enough and can make one. Or say PYTHON=/path/to/python.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$python" && break; done)

BIN := .venv/bin
READY := .venv/.ready
# Those that exist: a missing folder is an error to mypy and ruff.
SOURCES = $(wildcard src tests bench examples scripts/*.py)
PYTEST := $(BIN)/pytest
ARGS ?=
# Tests of processes and servers wait most of their time, so twice as many run at once as there are processors.
AT_ONCE := $(shell n=$$((2 * $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2))); echo $$((n < 4 ? 4 : n > 12 ? 12 : n)))

.PHONY: help
help: ## List the targets
	@awk -F '[ :].*## ' '/^[a-z ]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(READY) ## Make .venv from the lock (every other target does so when needed)

$(BIN)/uv: requirements/bootstrap.txt
	@test -n "$(PYTHON)" || { echo >&2 \
		"No Python 3.11 or newer that can make a virtual environment was found on PATH." \
		"Install one (on Debian and Ubuntu: python3 and python3-venv) or run make with PYTHON=/path/to/python."; exit 1; }
	"$(PYTHON)" -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(READY): $(BIN)/uv requirements/dev.txt pyproject.toml
	scripts/uv pip sync --quiet --require-hashes requirements/bootstrap.txt requirements/dev.txt
	scripts/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Quick when nothing has changed. Without Node or npm's registry it says so and goes on, except in CI.
DASHBOARD := $(BIN)/python scripts/build_dashboard.py

.PHONY: dashboard
dashboard: $(READY) ## Build the dashboard from its source
	@$(DASHBOARD)

.PHONY: run
run: $(READY) ## Start fairlead: server, dashboard and a worker on an embedded store
	@$(DASHBOARD) --lenient
	$(BIN)/fairlead up $(ARGS)

# One after the other, cheapest first; the first failure ends it, whatever -j or -k says.
.PHONY: test
test: $(READY) ## Everything CI checks: lint, types, imports, all tests
	@$(MAKE) lint
	@$(MAKE) types
	@$(MAKE) imports
	@$(DASHBOARD) --lenient
	@$(DASHBOARD) test --lenient
	$(PYTEST) -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: unit
unit: $(READY) ## The fast tests only (ARGS='-k word' narrows them)
	$(PYTEST) -m "not slow and not soak" $(ARGS)

.PHONY: soak
soak: $(READY) ## The long tests under load and faults
	$(PYTEST) -m soak --timeout 7200 -n 2 --dist load $(ARGS)

.PHONY: kills
kills: $(READY) ## Kill processes amid their work on every store and count what is wrong after it (ARGS='--kills 120')
	$(BIN)/python -m tests.chaos.campaign.campaign $(ARGS)

.PHONY: bench
bench: $(READY) ## Measure fairlead beside its peers and the bare servers (ARGS=--quick: a first impression)
	$(BIN)/python -m bench.peers $(ARGS)

.PHONY: alone
alone: $(READY) ## Measure fairlead alone: its stores, its engine and a worker (ARGS=--quick)
	$(BIN)/python -m bench $(ARGS)

.PHONY: screenshots
screenshots: $(READY) ## Take pictures of every page of the dashboard for the documentation
	@$(DASHBOARD)
	$(BIN)/python -m tests.dashboard.screenshots

.PHONY: lint
lint: $(READY) ## Check style and formatting
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	@$(DASHBOARD) check --lenient

.PHONY: format
format: $(READY) ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
	@$(DASHBOARD) format --lenient

.PHONY: types
types: $(READY) ## Check types
	$(BIN)/mypy $(SOURCES)
	@$(DASHBOARD) types --lenient

.PHONY: imports
imports: $(READY) ## Check that imports respect the layers
	$(BIN)/lint-imports

.PHONY: map
map: $(READY) ## Draw the imports and list the packages in docs/contributing/map.md
	$(BIN)/python scripts/code_map.py

# Existing pins stay unless they must move: `make lock ARGS=--upgrade` takes the newest of everything.
COMPILE = scripts/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command 'make lock' $(ARGS)

.PHONY: lock
lock: $(BIN)/uv ## Pin every development dependency with its hashes
	printf 'pip\nuv\n' | $(COMPILE) --no-annotate --output-file requirements/bootstrap.txt -
	$(COMPILE) --all-extras --group dev --output-file requirements/dev.txt pyproject.toml

.PHONY: dist
dist: $(READY) ## Build the wheel and the source distribution into dist/
	$(BIN)/python -m build --no-isolation --outdir dist

.PHONY: clean
clean: ## Remove all that these targets made, .venv included
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist \
		dashboard/node_modules src/fairlead/server/dashboard_assets
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
