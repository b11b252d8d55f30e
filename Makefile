# The two commands of the README are `make demo` and `make test`; the rest is for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A strict editable install lists files one by one, so a new file (a touched folder) asks for a new install.
FOLDERS := $(shell find trace schemas linker recording jobs converters timeline cli analysis report planning fixtures -type d -not -name __pycache__)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=strict
PYTEST := $(BIN)/python -m pytest -q -n auto --dist loadfile
# Empty, which allows bytecode: tests start hundreds of processes, and without it each compiles the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all oldest peers lint docs page page-check coverage bench score clean
demo: $(VENV)/.installed
	$(BIN)/etplus demo --output demo-out

# With fewer random examples a test.
test: $(VENV)/.tests
	$(PYTEST) -m "not slow" --hypothesis-profile=quick

# With the tests marked `slow`, and all examples.
test-all: $(VENV)/.tests
	$(PYTEST)

# Line and branch coverage of each package, processes included; fails below 95% of the core's lines.
coverage: $(VENV)/.tests
	$(INSTALL) 'pytest-cov>=6' 'coverage>=7.10'
	$(PYTEST) -m "not slow" --hypothesis-profile=quick --cov=etplus --cov-report=json:coverage.json
	$(BIN)/python tests/coverage_by_package.py coverage.json

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy -p etplus
	$(BIN)/lint-imports

# The site, in site/: open site/index.html. Warnings, broken links among them, are errors.
docs: $(VENV)/.installed
	$(INSTALL) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# The page's script in one file, which is committed, so that installing and testing need no Node.
page: report/page/node_modules/.package-lock.json
	npm --prefix report/page run --silent build

# Types, the script's own tests, and that the committed file is what its sources give.
page-check: report/page/node_modules/.package-lock.json
	npm --prefix report/page run --silent check

report/page/node_modules/.package-lock.json: report/page/package.json report/page/package-lock.json
	npm --prefix report/page ci --ignore-scripts --no-audit --no-fund
	touch $@

bench: $(VENV)/.tests
	$(BIN)/python benchmarks/bench_link.py
	$(BIN)/python benchmarks/bench_threads.py
	$(BIN)/python benchmarks/bench_big.py
	$(BIN)/python benchmarks/bench_convert.py
	$(BIN)/python benchmarks/bench_commands.py
	$(BIN)/python benchmarks/bench_batch.py
	$(BIN)/python benchmarks/bench_job.py
	$(BIN)/python benchmarks/bench_replay.py
	-$(BIN)/python benchmarks/bench_hta.py
	-$(BIN)/python benchmarks/bench_record.py
	$(BIN)/python benchmarks/bench_network.py
	$(BIN)/python benchmarks/bench_rates.py --before benchmarks/rates_before.json
	$(BIN)/python benchmarks/findings.py
	$(BIN)/python benchmarks/bench_predict.py

# The oldest protobuf that is supported; `make test` takes the newest.
oldest: $(VENV)/.tests
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/oldest protobuf==4.21.0
	PYTHONPATH=$(VENV)/oldest $(BIN)/python -m pytest -q tests/schemas/test_stream.py \
	    tests/converters/test_chakra.py tests/schemas/test_chakra_reader.py -k 'not gpu-pairs'

# HTA (traceinsight on PyPI), with which tests/conformance compares values, in an environment of its own; without it those tests skip.
peers: $(BIN)/python
	$(BIN)/python -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip install --quiet --disable-pip-version-check traceinsight

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
	rm -rf $(VENV) build dist site *.egg-info demo-out report/page/node_modules
