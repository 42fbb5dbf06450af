# The commands that do everything on a fresh machine with nothing but Python >= 3.11 and its venv module.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test kernels lint bench clean
.DEFAULT_GOAL := test

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev,report]'
	touch $@

demo: kernels                   ## control mode on a simulated cluster, live, in about a minute
	$(BIN)/cpsched demo

test: lint kernels              ## everything that CI checks, but for the live Slurm tests (make test-slurm)
	$(BIN)/python -m pytest -n 2 --ignore tests/slurm tests

kernels: $(VENV)/.installed     # compiled once, before two test processes would each do it
	$(BIN)/cpsched warm-up

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed       ## speed and memory, printed beside the reference figures
	$(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache

-include deploy/cluster.mk
