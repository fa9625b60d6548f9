# Everything runs in .venv, made from constraints.txt; `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
RUN ?= runs/quick
JOBS ?= 2

.PHONY: help setup bench test lint format mutants docs clean

help:
	@echo "make setup   create .venv with everything pinned in constraints.txt"
	@echo "make bench   run the quick benchmark, print its table, write report/index.html"
	@echo "make test    run all tests"
	@echo "make lint    ruff, mypy, import layers"
	@echo "make mutants change the code a little, 200 times, and show what no test notices"
	@echo "make clean   remove .venv and caches"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

bench: setup
	$(BIN)/cel run quick --out $(RUN) -j $(JOBS)
	$(BIN)/cel report $(RUN) --out report

test: setup
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# COUNT changes, drawn with SEED, judged by JOBS processes; ONLY="--only search" for one package.
COUNT ?= 200
SEED ?= 1
mutants: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mutants.py --count $(COUNT) --seed $(SEED) \
		--jobs $(JOBS) --wide $(ONLY)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist
