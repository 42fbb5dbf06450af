# The commands that do everything on a fresh machine with nothing but Python >= 3.11 and its venv module.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test fuzz kernels lint bench clean
.DEFAULT_GOAL := test

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev,report]'
	touch $@

demo: kernels                   ## control mode on a simulated cluster, live, in about a minute
	$(BIN)/cpsched demo

test: lint kernels              ## everything that CI checks, but for the live Slurm tests (make test-slurm)
	$(BIN)/python -m pytest -n 2 --ignore tests/slurm tests

fuzz: $(VENV)/.installed        ## mutated files through the command line, others each time; CASES=N for each kind of file
	CPSCHED_FUZZ_CASES=$(or $(CASES),20000) $(BIN)/python -m pytest -n 2 tests/fuzz

kernels: $(VENV)/.installed     # compiled once, before two test processes would each do it
	$(BIN)/python -c 'import cpsched.dispatchers.cp.positions, cpsched_sim.cluster.replay'

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
