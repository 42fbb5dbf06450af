"""Hypothesis profiles of this suite: `pytest --hypothesis-profile quick`, as in `make test`.

- `quick`: a tenth of a property's examples, the same in each run, so that no run fails by chance.
- `bounds`: a tenth, different in each run. `make bounds` repeats it until its time ends.
- `mutants`: a quarter, the same in each run (`make mutants`).
- `full`, the default: all.

No profile has time limits, because a busy machine may be slow.

The garbage collector runs less often, and never over what collection has made, such as 10,000 tests. It took 1.9
of 8.8 CPU seconds of a run of 600 tests, and now takes 0.7.

The command tree of an app is built once instead of for each `CliRunner().invoke`, which took nine tenths of the time of
a command that rejects its settings.

The module also sets the preloaded modules of the server that forks replays and study cases, for tests that run these in
their own process.
"""

import gc
from collections.abc import Sequence
from functools import cache
from multiprocessing import forkserver

import typer.main
from hypothesis import HealthCheck, settings

settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("full")
settings.register_profile("quick", max_examples=10, derandomize=True)  # otherwise as "full"
settings.register_profile("mutants", max_examples=25, derandomize=True)
settings.register_profile("bounds", max_examples=10, derandomize=False)  # Hypothesis derandomizes if CI is set
gc.set_threshold(50_000, 20, 100)
typer.main.get_command = cache(typer.main.get_command)  # before `typer.testing` takes it
preload = forkserver.set_forkserver_preload


def preload_and_open(names: Sequence[str]) -> None:
    preload([*names, "tests.opened"])


forkserver.set_forkserver_preload = preload_and_open


def pytest_collection_finish() -> None:
    gc.freeze()
