"""Runs the tests of a module against one mutant after the other, each in a forked process of its own.

The process that forks has imported the heavy libraries, and those modules of the project that do not need the one under
test: every child imports the rest anew, with the mutant in the module's place.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operators import Mutant

HEAVY = (
    *("numpy", "numba", "numba.experimental", "pydantic", "yaml", "structlog", "prometheus_client", "rich.console"),
    *("rich.table", "typer", "pytest", "hypothesis", "hypothesis.extra.numpy", "pytest_mock", "sqlite3"),
)
PLUGINS = ("-p", "pytest_mock", "-p", "_hypothesis_pytestplugin")
PROJECT = ("cpsched", "cpsched_sim", "cpsched_bridge")
_KILLED_AFTER = 4.0
"""A mutant that takes so many times as long as the tests without one, and some seconds, hangs: it is noticed."""
_SPARE_S = 10.0
_MOST_BYTES = 3 << 30
"""A mutant that fills a list without end runs out of this: it is noticed, before the machine runs out of memory."""
_PASSED = 77
"""The exit status of tests that pass: a mutant that ends the process early must not look like it."""


class Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a text instead of its file."""

    def __init__(self, name: str, path: Path, text: str, first: Callable[[], None] = lambda: None) -> None:
        self._name, self._path, self._text, self._first = name, path, text, first

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self._name:
            return None
        places = [str(self._path.parent)] if self._path.name == "__init__.py" else None
        spec = importlib.util.spec_from_loader(fullname, self, origin=str(self._path), is_package=places is not None)
        spec.submodule_search_locations = places
        spec.has_location = True
        return spec

    def exec_module(self, module):
        self._first()
        exec(self.get_code(self._name), module.__dict__)

    def get_code(self, fullname):
        """For `runpy`, which runs a module as a program."""
        return compile(self._text, str(self._path), "exec")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the tests noticed a mutant, and how long they took."""

    noticed: bool
    seconds: float


class Runner:
    """Runs `tests` against texts of the module `name`."""

    def __init__(self, name: str, path: Path, tests: Sequence[str]) -> None:
        self._name, self._path, self._tests = name, path, list(tests)
        for heavy in HEAVY:
            importlib.import_module(heavy)
        loaded = sorted(set(sys.modules) & set(PROJECT))
        if loaded:
            raise RuntimeError(f"{', '.join(loaded)}: must not be imported yet")
        self._limit_s = 600.0

    def check(self) -> float:
        """Run the tests without a fault; how long they take. Raises `RuntimeError` if they fail."""
        text = self._path.read_text()
        self._import_what_does_not_need_it(text)
        verdict = self._run(text)
        if verdict.noticed:
            raise RuntimeError(f"{self._name}: its tests fail without any mutant")
        self._limit_s = _KILLED_AFTER * verdict.seconds + _SPARE_S
        return verdict.seconds

    def judge(self, mutant: Mutant) -> Verdict:
        """What the tests say to a mutant."""
        return self._run(mutant.text)

    def _import_what_does_not_need_it(self, text: str) -> None:
        """What one child has imported when it comes to the module cannot depend on it."""
        here, there = os.pipe()
        self._run(text, lambda: _tell(there))
        os.close(there)
        with os.fdopen(here) as told:
            names = told.read().split()
        for name in names:
            importlib.import_module(name)
        if self._name in sys.modules:
            raise RuntimeError(f"{self._name}: must not be imported yet")

    def _run(self, text: str, first: Callable[[], None] = lambda: None) -> Verdict:
        began_s = time.monotonic()
        child = os.fork()
        if child == 0:
            self._be_tested(text, first)
        until_s = began_s + self._limit_s
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > until_s:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                status = -1
                break
            time.sleep(0.02)
        return Verdict(status != _PASSED << 8, time.monotonic() - began_s)

    def _be_tested(self, text: str, first: Callable[[], None]) -> None:
        code = 1
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            sys.meta_path.insert(0, Planted(self._name, self._path, text, first))
            import pytest

            # Without pytest's rewriting of assertions, which would import plug-ins' packages itself, from their files.
            os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # looking for them takes as long as many a test
            options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *PLUGINS]
            code = _PASSED if pytest.main([*options, *self._tests]) == 0 else 1
        finally:
            os._exit(code)


def _tell(pipe: int) -> None:
    """Write down which modules of the project are imported to their end, with the packages they are in, and go."""
    half = {name for name, module in sys.modules.items() if getattr(module.__spec__, "_initializing", False)}
    done = [
        name
        for name in sys.modules
        if name.partition(".")[0] in PROJECT and not any(f"{name}.".startswith(f"{each}.") for each in half)
    ]
    os.write(pipe, "\n".join(done).encode())
    os._exit(0)
