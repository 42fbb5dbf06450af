"""Hypothesis profiles of this suite: `pytest --hypothesis-profile quick`, as in `make test`.

With this profile, a property tries a quarter of its examples; `make bounds` and the unit tests of `make coverage` try
all. No profile has time limits, because a busy machine may be slow.

The command tree of an app is built once instead of for each `CliRunner().invoke`, which took nine tenths of the time of
a command that rejects its settings.

The module also sets the preloaded modules of the server that forks replays and study cases, for tests that run these in
their own process.
"""

from collections.abc import Sequence
from functools import cache
from multiprocessing import forkserver

import typer.main
from hypothesis import HealthCheck, settings

settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("full")
settings.register_profile("quick", max_examples=25)  # otherwise as "full"
typer.main.get_command = cache(typer.main.get_command)  # before `typer.testing` takes it
preload = forkserver.set_forkserver_preload


def preload_and_open(names: Sequence[str]) -> None:
    preload([*names, "tests.opened"])


forkserver.set_forkserver_preload = preload_and_open
