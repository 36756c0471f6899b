# make serve    runs the default model; MODEL=<source> PORT=<port> HOST=<host> change it, and
#               CONFIG=<file> runs a configuration of your own, DASHBOARD=1 Ray's dashboard too
# make test     format, lint, types and tests: fast ones two at a time, then those that start servers
# make install  the virtual environment alone
# make bench    our server beside its peers; ARGS='--servers …' (tests/bench/README.md)
# make lock     pins the newest versions that pyproject.toml allows
# make clean    removes the virtual environment and what tools left; the model cache stays

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
CONFIG ?=
MODEL ?=
PORT ?=
HOST ?=
DASHBOARD ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
PLOTTING := $(VENV)/plotting
PIP_LOG := $(VENV)/pip.log

.PHONY: serve test install bench lock clean

serve: $(INSTALLED)
	@exec $(BIN)/python -m deployments.serve_command \
	  $(if $(CONFIG),--config "$(CONFIG)") $(if $(MODEL),--model "$(MODEL)") $(if $(HOST),--host "$(HOST)") $(if $(PORT),--port "$(PORT)") \
	  $(if $(DASHBOARD),--dashboard)

test: $(INSTALLED)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist worksteal
	$(BIN)/python -m pytest -m slow

install: $(INSTALLED)

bench: $(PLOTTING)
	$(BIN)/python -m tests.bench $(ARGS)

$(PLOTTING): $(INSTALLED)
	@$(BIN)/python -m pip install --quiet -e '.[bench]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "stepserve needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; } >&2
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(INSTALLED): requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing $$(grep -c == $<) packages; all that pip says is in $(PIP_LOG)"
	@{ $(BIN)/python -m pip install --progress-bar off -r $< \
	    && $(BIN)/python -m pip install --no-deps -e .; } 2>&1 | tee $(PIP_LOG) \
	  | awk '/^ *(Downloading|Using cached) .* MB\)/ { print "  " $$0; fflush() } \
	         /^Installing collected/ { print "  unpacking"; fflush() }' \
	  || { tail -n 20 $(PIP_LOG) >&2; exit 1; }
	@touch $@

# torch picks the packages of its GPU build by itself, so they are not pinned here.
lock:
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT \
	  && $(PYTHON) -m venv "$$fresh" \
	  && "$$fresh/bin/python" -m pip install --quiet '.[dev]' \
	  && { echo '# All that it takes to run and test, in the versions that were tested. `make lock` renews it.'; \
	       "$$fresh/bin/python" -m pip freeze --exclude stepserve \
	         | sed -E 's/\+[a-z0-9.]+$$//' | grep -vE '^(nvidia|cuda|triton)'; } > requirements.lock.new \
	  && mv requirements.lock.new requirements.lock

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
