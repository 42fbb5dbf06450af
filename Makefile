# The commands that do everything on a fresh machine with nothing but Python >= 3.11 and its venv module.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Test processes: on two cores twice as many, because tests wait for a third of their time for children and clocks.
PROCESSES ?= 4

.PHONY: help demo test corpus corpus-check fuzz damages bounds chaos soak mutants kernels lint coverage test-newest test-oldest bundle release-check test-pbs bench studies docs docs-serve man example-settings picture clean
.DEFAULT_GOAL := test

# Images set it; without bytecode each of the thousand processes that tests start would compile the packages again.
unexport PYTHONDONTWRITEBYTECODE

help:                           ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name sentence; do printf '%-17s %s\n' "$$name" "$$sentence"; done

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev,docs,report]'
	touch $@

# The demo needs no extras, and bytecode only of what it imports.
$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --editable .
	touch $@

demo: $(or $(wildcard $(VENV)/.installed),$(VENV)/.demo) ## control mode on a simulated cluster, live, beside the twin of Slurm: a minute or two
	$(BIN)/cpsched demo

test: lint kernels $(if $(filter 1,$(COVERAGE)),coverage) ## everything that CI checks, but for the site and the live tests; COVERAGE=1: the unit tests as in make coverage; COVERAGE=measured: after it
	$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal --reruns 1 --hypothesis-profile quick --ignore tests/slurm --ignore tests/pbs/live --ignore tests/monitoring $(if $(COVERAGE),--ignore tests/unit) tests

corpus: kernels                 ## record what must not change: facts, and those journals that this code decides otherwise
	$(BIN)/python -m tests.corpus record

corpus-check: kernels           ## compare with the recorded corpus; AREAS="commands json" for a part of it
	$(BIN)/python -m tests.corpus check $(AREAS)

fuzz: $(VENV)/.installed        ## mutated files through the command line, others each time; CASES=N for each kind of file
	CPSCHED_FUZZ_CASES=$(or $(CASES),20000) $(BIN)/python -m pytest -n 2 tests/fuzz

damages: kernels                ## random damages of each file of a bridge; COUNT=2000 of each, from FIRST=0 on
	CPSCHED_FUZZ_DAMAGES=$(or $(COUNT),2000) CPSCHED_FUZZ_FIRST=$(or $(FIRST),0) $(BIN)/python -m pytest -q -n 2 tests/fuzz/test_stored.py

bounds: $(VENV)/.installed      ## all examples of the properties and of mutated files (make test tries a quarter), every index of the kernels checked
	NUMBA_BOUNDSCHECK=1 CPSCHED_CACHE_DIR=$(CURDIR)/build/bounds $(BIN)/python -m pytest -q tests/properties tests/fuzz/test_files.py

chaos: kernels                  ## kills at random moments among random faults, KILLS=1000 SEED=1
	$(BIN)/python -m tests.chaos --kills $(or $(KILLS),1000) --seed $(or $(SEED),1)
	$(BIN)/python -m tests.chaos --kills $(or $(KILLS),1000) --seed $(or $(SEED),1) --blind

soak: kernels                   ## a bridge beside an accelerated site: memory, files, ledger and journal; HOURS=1
	$(BIN)/python -m tests.soak --hours $(or $(HOURS),1)

mutants: kernels                ## small faults planted into the modules that must not fail: do tests notice? MODULE=cpsched/feasibility.py; an hour or two for all
	tests/mutate $(MODULE)

kernels: $(VENV)/.installed     # compiled once, before two test processes would each do it
	$(BIN)/cpsched warm-up

lint: $(VENV)/.installed        ## linters, formatting, types, import contracts, language and Markdown
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/lint_words.py
	$(BIN)/codespell
	git ls-files -z '*.md' | xargs -0 $(BIN)/pymarkdown scan

coverage: kernels               ## coverage of the unit tests; fails below the minimum in pyproject.toml
	$(BIN)/python -m pytest -q -n $(PROCESSES) --dist worksteal --reruns 1 --cov --cov-report=term:skip-covered tests/unit

test-newest: RESOLUTION := highest        ## the unit tests with the newest releases that pyproject.toml allows, in build/newest
test-oldest: RESOLUTION := lowest-direct  ## the same with the oldest releases
test-newest test-oldest: test-%: $(VENV)/.installed
	rm -rf build/$*
	$(BIN)/uv venv --seed --quiet --python $(BIN)/python build/$*
	$(BIN)/uv pip install --quiet --python build/$*/bin/python --resolution $(RESOLUTION) --editable '.[dev,report]'
	build/$*/bin/cpsched warm-up
	build/$*/bin/python -m pytest -q -n $(PROCESSES) --dist worksteal --reruns 1 tests/unit

bundle:                         ## all wheels that a host without a network needs, in one archive, for PYTHON=python3.11 and this platform
	$(PYTHON) deploy/bundle/build.py build/bundle

release-check: $(VENV)/.installed ## wheel, sdist and bundle built, looked over, and tried on each Python from 3.11 to 3.14 that is here or in a container
	$(BIN)/python -m tests.release $(PYTHONS)

test-pbs: kernels               ## the live tests against the PBS whose commands are on the path, which they want for themselves; CPSCHED_PBS_USER names whose jobs they are
	CPSCHED_PBS=1 $(BIN)/python -m pytest -q tests/pbs/live

bench: $(VENV)/.installed       ## speed and memory, printed beside the reference figures
	$(BIN)/python -m tests.benchmarks

studies: kernels                ## rerun the papers' studies and compare with the committed results; STUDY="mod17 cp19", else those of under an hour
	$(BIN)/python studies/rerun.py $(STUDY)

docs: $(VENV)/.installed        ## the site, in build/site; every warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(VENV)/.installed  ## the site at localhost:8000, while it is written
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

man: $(VENV)/.installed         ## manual pages of all commands, in build/man; the wheel installs them in share/man
	$(BIN)/python -m docs.scripts.man build/man

example-settings: $(VENV)/.installed  ## the example settings files in deploy, from the models of the settings
	$(BIN)/python -m deploy.examples

picture: $(VENV)/.installed     ## the demo's picture for README, from a real run of half a minute
	$(BIN)/python -m docs.scripts.picture

clean:                          ## everything that these commands made
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .coverage

-include deploy/cluster.mk
-include deploy/monitoring.mk
