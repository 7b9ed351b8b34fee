# The two commands of the README, and what they are made of.
#
#   make demo     install into .venv and look at a fixture
#   make test     install into .venv with the test tools, then lint, types and tests
#   make bench    measure against TensorFlow
#
# Another interpreter: make test PYTHON=python3.12   Another place: make test VENV=/tmp/venv

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test install install-test lint types tests bench clean

# Where make writes into a pipe (a CI log), the demo still shows what people see.
DEMO_COLOR = $(if $(MAKE_TERMOUT),auto,always)

# What a user installs: a copy of the package, byte-compiled.
demo: install
	@echo
	$(BIN)/ckpttool inspect fixtures/mlp-v1 --color $(DEMO_COLOR)
	@echo
	$(BIN)/ckpttool list fixtures/mlp-v1 --sort bytes --color $(DEMO_COLOR)

test: install-test
	@$(MAKE) --no-print-directory lint types tests

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

install: $(BIN)/python
	@echo "Installing into $(VENV) (the first time this downloads TensorFlow: 600 MB)"
	$(PIP) install --quiet --constraint constraints.txt .

# Editable: tests, mypy and an edit-and-run loop all look at this tree, never at a stale
# copy. What a wheel holds is tested on its own (tests/test_light_install.py).
install-test: $(BIN)/python
	@echo "Installing into $(VENV) (the first time this downloads TensorFlow: 600 MB)"
	$(PIP) install --quiet --constraint constraints.txt --editable '.[test]'

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

tests:
	$(BIN)/python -m pytest -n 2 --dist loadfile

bench: install-test
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) dist benchmarks/.cache .mypy_cache .pytest_cache .ruff_cache
