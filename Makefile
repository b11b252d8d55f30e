# The two commands of the README are `make demo` and `make test`; the rest is for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A strict editable install lists files one by one, so a new file (a touched folder) asks for a new install.
FOLDERS := $(shell find schemas linker converters analysis predictor cli fixtures -type d -not -name __pycache__)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=strict

.PHONY: demo test lint bench score clean
demo: $(VENV)/.installed
	$(BIN)/etplus demo --output demo-out

test: $(VENV)/.tests
	$(BIN)/python -m pytest -q

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p etplus
	$(BIN)/lint-imports

bench: $(VENV)/.tests
	$(BIN)/python benchmarks/bench_link.py
	$(BIN)/python benchmarks/bench_replay.py

score: $(VENV)/.installed
	$(BIN)/python benchmarks/score_table.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml $(FOLDERS)
	$(INSTALL) -e .
	touch $@

$(VENV)/.tests: $(VENV)/.installed
	$(INSTALL) -e '.[test]'
	touch $@

$(VENV)/.lint: $(VENV)/.tests
	$(INSTALL) -e '.[lint]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info demo-out
