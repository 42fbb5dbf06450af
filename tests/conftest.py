"""Profiles of Hypothesis for this suite: `pytest --hypothesis-profile quick`, which `make test` takes.

Under it a property tries a quarter of its examples; `make bounds`, and the unit tests of `make coverage`, try them all.

And the command tree of an app is built once, not for each `CliRunner().invoke`: that took nine tenths of what a command
takes that refuses its settings.

And what the server has loaded that forks the replays of a comparison and the cases of a study, where a test asks for
these in its own process.
"""

from collections.abc import Sequence
from functools import cache
from multiprocessing import forkserver

import typer.main
from hypothesis import settings

settings.register_profile("quick", max_examples=25)
typer.main.get_command = cache(typer.main.get_command)  # before `typer.testing` takes it
preload = forkserver.set_forkserver_preload


def preload_and_open(names: Sequence[str]) -> None:
    preload([*names, "tests.opened"])


forkserver.set_forkserver_preload = preload_and_open
