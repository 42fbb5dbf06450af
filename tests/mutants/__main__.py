"""Plants faults into modules and prints which share of them the tests notice; exit code 1 below a module's goal.

python -m tests.mutants [--sample N] [--seed N] [MODULE ...]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from tests.mutants.operators import Mutant, mutants
from tests.mutants.runner import Runner

FEW = 20
"""A share of fewer mutants than this says too little to fail by it."""
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDERS = {"cpsched": ROOT, "cpsched_sim": ROOT / "sim", "cpsched_bridge": ROOT / "bridge", "docs": ROOT}


@dataclass(frozen=True, slots=True)
class Watched:
    """A module, the tests that watch over it, and which share of its mutants they are to notice."""

    name: str
    tests: tuple[str, ...]
    goal: float
    kernels: bool = False
    """Whether the tests run the module's kernels as plain Python, so that faults of these can be noticed."""

    @property
    def path(self) -> Path:
        """The module's file."""
        place = FOLDERS[self.name.partition(".")[0]].joinpath(*self.name.split("."))
        return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def read(name: str) -> dict[str, Any]:
    """The content of a file of this folder, read once. It is everybody's: nobody changes it."""
    return tomllib.loads((HERE / name).read_text())


@cache
def watched() -> dict[str, Watched]:
    """The modules of `modules.toml`; the same for everybody."""
    content = read("modules.toml")
    return {
        name: Watched(name, tuple(entry["tests"]), entry["goal"], entry.get("kernels", False))
        for name, entry in content.items()
    }


def equivalents(module: Watched) -> set[tuple[str, str]]:
    """The mutants of a module, as (line, mutated line), that mean the same as the module.

    Raises `ValueError` for one whose line the module has no more: its reason may not hold for what stands there now.
    """
    content = read("equivalent.toml")
    lines = {line.strip() for line in module.path.read_text().splitlines()}
    same = {(entry["line"], entry["mutated"]) for entry in content["mutant"] if entry["module"] == module.name}
    if gone := sorted(line for line, _ in same if line not in lines):
        raise ValueError(f"equivalent.toml: {module.name} has no line {gone[0]!r}")
    return same


def chosen(module: Watched, sample: int, seed: int) -> list[Mutant]:
    """The mutants to be tried: all, or so many of them at random; none that is known to mean the same."""
    same = equivalents(module)
    order = random.Random(seed) if sample else None
    found = (m for m in mutants(module.path.read_text(), order, module.kernels) if (m.before, m.after) not in same)
    return list(islice(found, sample or None))


def try_module(module: Watched, sample: int, seed: int) -> bool:
    """Print the survivors and the share of a module; whether it reaches its goal."""
    runner = Runner(module.name, module.path, module.tests)
    alone_s = runner.check()
    found = chosen(module, sample, seed)
    noticed, total_s = 0, 0.0
    for mutant in found:
        verdict = runner.judge(mutant)
        noticed += verdict.noticed
        total_s += verdict.seconds
        if not verdict.noticed:
            print(f"  survived: {module.name}:{mutant.line} {mutant.operator}", flush=True)
            print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)
    share = noticed / len(found) if found else 1.0
    print(
        f"{module.name}: {noticed} of {len(found)} noticed ({100 * share:.0f} %, goal {100 * module.goal:.0f} %); "
        f"{total_s / max(1, len(found)):.1f} s each, {alone_s:.1f} s without a fault",
        flush=True,
    )
    return share >= module.goal or len(found) < FEW


def main() -> int:
    """Try the modules that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="modules of modules.toml; default: all")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants of each module, at random; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    known = watched()
    unknown = [name for name in given.modules if name not in known]
    if unknown:
        parser.error(f"{unknown[0]}: must be one of {', '.join(known)}")
    names = given.modules or list(known)
    if len(names) == 1:
        return 0 if try_module(known[names[0]], given.sample, given.seed) else 1
    options = ["--sample", str(given.sample), "--seed", str(given.seed)]
    codes = [subprocess.call([sys.executable, "-m", "tests.mutants", *options, name]) for name in names]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
