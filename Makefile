# Commands for a fresh machine with only Python >= 3.11 and its venv module.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Test processes: for two cores, because many tests wait (306 s with 3, 254 with 4, 242 with 5, 243 with 6). Each needs 5
# CPU seconds to collect the tests.
PROCESSES ?= 5

.PHONY: help demo test bytecode nightly corpus corpus-check fuzz damages bounds chaos soak mutants kernels lint style types coverage test-newest test-oldest bundle packages image release release-check test-packages test-readme test-role formats test-pbs bench studies docs docs-serve man example-settings picture clean
.DEFAULT_GOAL := test

# Images set it; without bytecode each of the thousand processes that tests start would compile the packages again.
unexport PYTHONDONTWRITEBYTECODE

help:                           ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name sentence; do printf '%-17s %s\n' "$$name" "$$sentence"; done

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev,docs,report]' || $(BIN)/pip install --quiet --editable '.[dev,docs,report]'  # uv ignores pip.conf
	touch $@

# The demo needs no extras, and bytecode only of what it imports.
$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --editable .
	touch $@

demo: $(or $(wildcard $(VENV)/.installed),$(VENV)/.demo) ## control mode on a simulated cluster, live, beside the twin of Slurm: a minute or two
	$(BIN)/cpsched demo

test: $(VENV)/.installed        ## all CI checks except the site and the live tests; COVERAGE=1: unit tests as in make coverage; COVERAGE=measured: after it
	$(MAKE) --no-print-directory --jobs 2 --output-sync kernels bytecode lint
	$(if $(filter 1,$(COVERAGE)),$(MAKE) coverage)
	$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal --reruns 1 --hypothesis-profile quick -m "not slow" --ignore tests/slurm --ignore tests/pbs/live --ignore tests/monitoring $(if $(COVERAGE),--ignore tests/unit) tests

nightly: kernels                ## the tests that make test omits: more real processes, longer replays, hundreds of kills, HISTORIES=10000 of two bridges
	CPSCHED_HISTORIES=$(or $(HISTORIES),10000) $(BIN)/python -m pytest -q -n $(PROCESSES) --dist worksteal --reruns 1 --hypothesis-profile quick -m slow $$(grep -rl --include='test_*.py' mark.slow tests)

corpus: kernels                 ## record what must not change: facts, and journals that this code decides differently
	$(BIN)/python -m tests.corpus record

corpus-check: kernels           ## compare with the recorded corpus; AREAS="commands json" selects areas
	$(BIN)/python -m tests.corpus check $(AREAS)

fuzz: $(VENV)/.installed        ## run the command line on mutated files, different each time; CASES=N per kind of file
	CPSCHED_FUZZ_CASES=$(or $(CASES),20000) $(BIN)/python -m pytest -n 2 tests/fuzz

damages: kernels                ## damage each file of a bridge at random; COUNT=2000 per file, starting at FIRST=0
	CPSCHED_FUZZ_DAMAGES=$(or $(COUNT),2000) CPSCHED_FUZZ_FIRST=$(or $(FIRST),0) $(BIN)/python -m pytest -q -n 2 tests/fuzz/test_stored.py

bounds: $(VENV)/.installed      ## random examples of all properties for BUDGET_S=600, with index checks in kernels (make test runs a tenth, always the same)
	PYTHON=$(BIN)/python BUDGET_S=$(BUDGET_S) tests/bounds

chaos: kernels                  ## kill the bridge at random moments among random faults; KILLS=1000 SEED=1
	$(BIN)/python -m tests.chaos --kills $(or $(KILLS),1000) --seed $(or $(SEED),1)
	$(BIN)/python -m tests.chaos --kills $(or $(KILLS),1000) --seed $(or $(SEED),1) --blind

soak: kernels                   ## run a bridge on an accelerated site and measure memory, files, ledger and journal; HOURS=1
	$(BIN)/python -m tests.soak --hours $(or $(HOURS),1)

mutants: kernels                ## mutation tests of the critical modules, one or two hours for all; MODULE=cpsched/feasibility.py EVERY=5
	tests/mutate $(MODULE)

kernels: $(VENV)/.installed     # compiled once, so that test processes do not repeat it
	$(BIN)/cpsched warm-up

bytecode: $(VENV)/.installed    # of the tests, compiled once, so that each test process does not spend 16 CPU seconds on it
	-$(BIN)/python -m pytest --collect-only -qqq --ignore tests/slurm --ignore tests/pbs/live --ignore tests/monitoring tests >/dev/null

lint: types style               ## linters, formatting, types, import contracts, language and Markdown

types: $(VENV)/.installed
	$(BIN)/mypy

style: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/lint_words.py
	$(BIN)/codespell
	git ls-files -z '*.md' | xargs -0 $(BIN)/pymarkdown scan

coverage: kernels bytecode      ## coverage of the unit tests; fails below the minimum in pyproject.toml
	$(BIN)/python -m pytest -q -n $(PROCESSES) --dist worksteal --reruns 1 --hypothesis-profile quick -m "not slow" --cov --cov-report=term:skip-covered tests/unit

test-newest: RESOLUTION := highest        ## unit tests with the newest releases that pyproject.toml allows, in build/newest
test-oldest: RESOLUTION := lowest-direct  ## unit tests with the oldest releases, in build/oldest
test-newest test-oldest: test-%: $(VENV)/.installed
	rm -rf build/$*
	$(BIN)/uv venv --seed --quiet --python $(BIN)/python build/$*
	$(BIN)/uv pip install --quiet --python build/$*/bin/python --resolution $(RESOLUTION) --editable '.[dev,report]'
	build/$*/bin/cpsched warm-up
	build/$*/bin/python -m pytest -q -n $(PROCESSES) --dist worksteal --reruns 1 tests/unit

bundle:                         ## archive of all wheels for a host without a network, for PYTHON=python3.11 and this platform
	$(PYTHON) deploy/bundle/build.py build/bundle

release-check: $(VENV)/.installed ## build and check wheel, sdist and bundle, and test them on each Python 3.11 to 3.14 found here or in a container
	$(BIN)/python -m tests.release $(PYTHONS)

packages: $(VENV)/.installed    ## deb and rpm with their own Python, in build/packages; needs a Docker engine
	PYTHON=$(BIN)/python deploy/packaging/build packages

image: $(VENV)/.installed       ## image of the bridge for `docker load`, in build/packages; SUITE=bookworm, trixie or forky (Slurm 22.05, 24.11, 26.05)
	PYTHON=$(BIN)/python deploy/packaging/build image

release: $(VENV)/.installed     ## check and build release VERSION=x.y.z in build/dist, and print the commands that publish it
	$(BIN)/python -m deploy.release $(VERSION)

formats: $(VENV)/.installed     ## record the formats that releases freeze, after a change
	$(BIN)/python -m tests.formats

test-packages: packages         ## install, start, upgrade and remove deb and rpm in containers of Debian
	tests/packages/run

test-readme:                    ## run the README's commands on a bare Debian 12 and 13, in containers; TARGETS="demo test", default: demo
	tests/packages/readme $(TARGETS)

test-role: packages             ## apply the Ansible role twice to two hosts with systemd, in containers
	tests/packages/role

test-pbs: kernels               ## live tests on the PBS on the path, which must be otherwise unused; CPSCHED_PBS_USER submits the jobs
	CPSCHED_PBS=1 $(BIN)/python -m pytest -q tests/pbs/live

bench: $(VENV)/.installed       ## measure speed and memory, and print them with the reference figures
	$(BIN)/python -m tests.benchmarks

studies: kernels                ## rerun the papers' studies and compare with the committed results; STUDY="mod17 cp19", else those of under an hour
	$(BIN)/python studies/rerun.py $(STUDY)

docs: $(VENV)/.installed        ## build the site in build/site; every warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(VENV)/.installed  ## serve the site at localhost:8000 while editing
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

man: $(VENV)/.installed         ## manual pages of all commands, in build/man; the wheel installs them in share/man
	$(BIN)/python -m docs.scripts.man build/man

example-settings: $(VENV)/.installed  ## the example settings files in deploy, from the models of the settings
	$(BIN)/python -m deploy.examples

picture: $(VENV)/.installed     ## record the demo's picture for README, from a real run of half a minute
	$(BIN)/python -m docs.scripts.picture

clean:                          ## delete all generated files
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .coverage

-include deploy/cluster.mk
-include deploy/monitoring.mk
