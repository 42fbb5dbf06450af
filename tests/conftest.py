"""Profiles of Hypothesis for this suite: `pytest --hypothesis-profile quick`, which `make test` takes.

Under it a property tries a quarter of its examples; `make bounds`, and the unit tests of `make coverage`, try them all.

And the command tree of an app is built once, not for each `CliRunner().invoke`: that took nine tenths of what a command
takes that refuses its settings.

And the order of tests where several processes share them: see `tests.slow_first`. And what the server has loaded that
forks the replays of a comparison and the cases of a study, where a test asks for these in its own process.
"""

from collections.abc import Sequence
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

import pytest
import typer.main
from hypothesis import settings

from tests.slow_first import dealt

settings.register_profile("quick", max_examples=25)
typer.main.get_command = cache(typer.main.get_command)  # before `typer.testing` takes it
preload = forkserver.set_forkserver_preload


def preload_and_open(names: Sequence[str]) -> None:
    preload([*names, "tests.opened"])


forkserver.set_forkserver_preload = preload_and_open


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deal slow files to the processes of xdist; a process alone runs tests as they were collected."""
    shared = getattr(config, "workerinput", None)
    if shared:
        root = Path(__file__).parent
        files = [item.path.relative_to(root).as_posix() if item.path.is_relative_to(root) else "" for item in items]
        items[:] = [items[index] for index in dealt(files, shared["workercount"])]
