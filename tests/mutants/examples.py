"""Plants faults and tells which are noticed by a quarter of a property's examples, and which by all of them.

python -m tests.mutants.examples [--seeds N] [--limit SECONDS] [NUMBER ...]

Each fault of `examples.toml` is planted into a copy of the packages and tried against the one property that watches
over it: under Hypothesis's profile `quick` with `--seeds` seeds, then once with all examples. A run that takes more
than `--limit` seconds of CPU time says nothing, and its fault counts as not tried. A number is a fault's place in the
file, from 1 on; default: all.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.__main__ import HERE, ROOT, Watched
from tests.mutants.by_hand import Fault
from tests.mutants.runner import PLUGINS

COPIED = ("cpsched", "sim", "bridge", "tests", "pyproject.toml")
QUICK = ("--hypothesis-profile", "quick")
_WAITS = 20
"""A run may last so many times its limit of CPU time: the machine may be busy."""


@dataclass(frozen=True, slots=True)
class WatchedFault(Fault):
    """A fault, and the property that should notice it."""

    property: str

    @property
    def file(self) -> Path:
        """The file of its module, from the root of the repository."""
        return Watched(self.module, (), 0.0).path.relative_to(ROOT)


def faults() -> tuple[WatchedFault, ...]:
    """All of them, as in the file."""
    return tuple(WatchedFault(**entry) for entry in tomllib.loads((HERE / "examples.toml").read_text())["fault"])


def copied(folder: Path) -> Path:
    """A copy of the packages and their tests, compiled kernels included."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def noticed(tree: Path, tests: str, options: tuple[str, ...], limit_s: int) -> bool | None:
    """Whether a test fails in a tree; None where it takes longer. Raises `RuntimeError` where it cannot be run."""
    with tempfile.TemporaryDirectory() as remembered:  # so that no run knows of the failures of another
        environment = {
            **{name: value for name, value in os.environ.items() if name != "CI"},  # which turns seeds off
            "PYTHONPATH": os.pathsep.join(str(tree / name) for name in ("sim", "bridge")),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": remembered,
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *PLUGINS, *options, tests]
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, check=False,
                timeout=_WAITS * limit_s,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s)),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
    if done.returncode < 0:
        return None
    if done.returncode > 1:
        raise RuntimeError(f"{tests}: {done.stdout}{done.stderr}")
    return done.returncode == 1


def verdicts(tree: Path, fault: WatchedFault, seeds: int, limit_s: int) -> tuple[list[bool | None], bool | None]:
    """What a quarter of the examples says to a fault, seed by seed, and what all of them say."""
    file = tree / fault.file
    sound = file.read_text()
    file.write_text(fault.planted_in(sound).text)
    try:
        quick = [
            noticed(tree, fault.property, (*QUICK, "--hypothesis-seed", str(seed)), limit_s)
            for seed in range(1, seeds + 1)
        ]
        return quick, noticed(tree, fault.property, ("--hypothesis-seed", "1"), limit_s)
    finally:
        file.write_text(sound)


def row(fault: WatchedFault, quick: list[bool | None], whole: bool | None) -> str:
    """The row of a fault in the study's table."""
    tried = [each for each in quick if each is not None]
    by_quick = f"{sum(tried)} of {len(tried)}" if tried else "not tried"
    by_all = "not tried" if whole is None else "yes" if whole else "no"
    test = fault.property.partition("::")[2].removeprefix("test_")
    return f"| `{fault.module}`: {fault.means} | {test.replace('_', ' ')} | {by_quick} | {by_all} |"


def main() -> None:
    """Print a row for each fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.examples", description=__doc__.partition("\n")[0])
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=300, metavar="SECONDS")
    given = parser.parse_args()
    every = dict(enumerate(faults(), start=1))
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        for number in given.numbers or every:
            fault = every[number]
            print(row(fault, *verdicts(tree, fault, given.seeds, given.limit)), flush=True)


if __name__ == "__main__":
    main()
