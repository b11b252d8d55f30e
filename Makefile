# The README names `make demo` and `make test`; the other targets are for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A strict editable install lists individual files, so a new file (which changes the folder's time) needs a new install.
FOLDERS := $(shell find trace schemas linker recording jobs converters timeline cli analysis report planning fixtures -type d -not -name __pycache__)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=strict
PYTEST := $(BIN)/python -m pytest -q -n auto --dist loadfile
# Empty, so Python writes bytecode: tests start hundreds of processes, and each would otherwise compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all oldest peers lint docs page page-check coverage bench score clean
demo: $(VENV)/.installed
	$(BIN)/etplus demo --output demo-out

# Fewer random examples per test.
test: $(VENV)/.tests
	$(PYTEST) -m "not slow" --hypothesis-profile=quick

# Includes tests marked `slow` and all random examples.
test-all: $(VENV)/.tests
	$(PYTEST)

# Line and branch coverage of each package, including subprocesses; fails if less than 95% of the core's lines are covered.
coverage: $(VENV)/.tests
	$(INSTALL) 'pytest-cov>=6' 'coverage>=7.10'
	$(PYTEST) -m "not slow" --hypothesis-profile=quick --cov=etplus --cov-report=json:coverage.json
	$(BIN)/python tests/coverage_by_package.py coverage.json

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/python docs/prose.py
	$(BIN)/mypy -p etplus
	$(BIN)/lint-imports

# Build the documentation: open site/index.html. Warnings, including broken links, are errors. Then run what pages show.
docs: $(VENV)/.tests
	$(INSTALL) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	$(PYTEST) tests/test_documented_commands.py tests/test_examples.py tests/test_extending.py

# Bundle the page's script into one file. The bundle is committed, so installing and testing need no Node.
page: report/page/node_modules/.package-lock.json
	npm --prefix report/page run --silent build

# Check types, run the script's tests, and check that the committed bundle matches its sources.
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

# Test with the oldest supported protobuf; `make test` uses the newest.
oldest: $(VENV)/.tests
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/oldest protobuf==4.21.0
	PYTHONPATH=$(VENV)/oldest $(BIN)/python -m pytest -q tests/schemas/test_stream.py \
	    tests/converters/test_chakra.py tests/schemas/test_chakra_reader.py -k 'not gpu-pairs'

# Install HTA (traceinsight on PyPI) in a separate environment: tests/conformance compares values with it, or skips without it.
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
