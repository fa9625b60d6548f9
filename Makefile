# Everything runs in .venv, made from constraints.txt; `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
BENCH_STAMP := $(VENV)/.bench-done
BENCH_EXTRAS := bayes,convex,report
RUN ?= runs/quick
JOBS ?= 2

.PHONY: help setup bench test lint lint-page format mutants docs pages lowest clean

help:
	@echo "make setup   create .venv with everything pinned in constraints.txt"
	@echo "make bench   run the quick benchmark, print its table, write report/index.html"
	@echo "make test    run all tests"
	@echo "make lint    ruff, mypy, import layers, the scripts of the report"
	@echo "make docs    the site, strictly, into site/"
	@echo "make pages   write the pages of docs/ that come from code"
	@echo "make lowest  the tests that matter with every dependency at its lower bound"
	@echo "make mutants change the code a little, 200 times, and show what no test notices"
	@echo "make clean   remove .venv and caches"

# pip compiles every module of every package, one after the other; most are never imported. Those that are, Python
# compiles when it first does, and keeps: also where the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=

define install
test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e ".[$(1)]"
endef

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(call install,dev)
	touch $(BENCH_STAMP) $(STAMP)

# What the benchmark needs, without the tools of developers and the oracles of tests.
$(BENCH_STAMP): pyproject.toml constraints.txt
	$(call install,$(BENCH_EXTRAS))
	touch $(BENCH_STAMP)

bench: $(BENCH_STAMP)
	$(BIN)/cel run quick --out $(RUN) -j $(JOBS)
	$(BIN)/cel report $(RUN) --out report

test: setup
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory lint-page

# Node's own parser reads the scripts of the report; nothing is installed for it.
lint-page:
	@if command -v node >/dev/null; then node --expose-internals tools/check_page.js; \
	else echo "page: node is not installed, its scripts are not checked"; fi

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

pages: setup
	$(BIN)/python -c "from cel.metrics.docs import render; print(render(), end='')" > docs/metrics.md
	$(BIN)/python benchmarks/fidelity.py
	$(BIN)/python tools/modules.py > docs/modules.md

# torch stays at the version of constraints.txt: its wheels are large and tied to drivers. The tools of the
# tests stay at theirs.
LOWEST := .venv-lowest
LOWEST_TESTS ?= tests/unit tests/properties tests/contract/test_metric_contract.py tests/methods/artelt \
	tests/methods/cearm tests/benchmark/test_front_door.py tests/benchmark/test_spec_and_plan.py \
	tests/benchmark/test_store.py
lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(PYTHON) tools/lowest.py > $(LOWEST)/lowest.txt
	grep -E "^(torch|pytest|pytest-xdist|hypothesis|build|hatchling)==" constraints.txt > $(LOWEST)/tools.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/lowest.txt \
		-c $(LOWEST)/tools.txt -e ".[all]" pytest pytest-xdist hypothesis build hatchling entmax mlxtend zuko \
		"scikit-posthocs>=0.17"
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -q -n $(JOBS) --dist worksteal \
		--deselect tests/unit/test_mutants.py $(LOWEST_TESTS)

# COUNT changes, drawn with SEED, judged by JOBS processes; ONLY="--only search" for one package.
COUNT ?= 200
SEED ?= 1
mutants: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mutants.py --count $(COUNT) --seed $(SEED) \
		--jobs $(JOBS) $(ONLY)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(LOWEST) site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist
