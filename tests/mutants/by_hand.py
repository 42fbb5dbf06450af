"""Plants the faults that people thought up and prints those that no test notices; exit code 1 if there is one.

python -m tests.mutants.by_hand [MODULE ...]

A module's name may be cut short: `cpsched.site` stands for all modules below it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass

from tests.mutants.__main__ import Watched, read, watched
from tests.mutants.operators import Mutant
from tests.mutants.runner import Runner


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what stands in its module just once, what is put in its place, and what that means."""

    module: str
    text: str
    instead: str
    means: str

    def planted_in(self, source: str) -> Mutant:
        """The module's text with the fault. Raises `ValueError` unless what it replaces stands there just once."""
        if (times := source.count(self.text)) != 1:
            raise ValueError(f"{self.module}: {self.text!r} stands there {times} times: must be once")
        line = source[: source.index(self.text)].count("\n") + 1
        return Mutant("by hand", line, self.text, self.instead, source.replace(self.text, self.instead))


def faults() -> tuple[Fault, ...]:
    """All of them, as in the file."""
    return tuple(Fault(**entry) for entry in read("by_hand.toml")["fault"])


def module_of(name: str) -> Watched:
    """A module and its tests: those of `modules.toml`, and those that the file of faults names."""
    own = read("by_hand.toml")["tests"].get(name, [])
    known = watched().get(name)
    return Watched(name, (*(known.tests if known else ()), *own), 1.0)


def unnoticed(name: str) -> int:
    """Print the faults of a module that its tests do not notice; how many there are."""
    module, mine = module_of(name), [fault for fault in faults() if fault.module == name]
    runner = Runner(name, module.path, module.tests)
    runner.check()
    survived = 0
    for fault in mine:
        mutant = fault.planted_in(module.path.read_text())
        if not runner.judge(mutant).noticed:
            survived += 1
            print(f"  unnoticed: {name}:{mutant.line}: {fault.means}", flush=True)
    print(f"{name}: {len(mine) - survived} of {len(mine)} noticed", flush=True)
    return survived


def main() -> int:
    """Try the faults of the modules that are named, or all; each module in a process that has not imported it."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.by_hand", description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="default: all")
    wanted = parser.parse_args().modules
    names = list(dict.fromkeys(fault.module for fault in faults()))
    chosen = [name for name in names if not wanted or any(name == w or name.startswith(f"{w}.") for w in wanted)]
    if not chosen:
        parser.error(f"{' '.join(wanted)}: no module with faults; there are {', '.join(names)}")
    if len(chosen) == 1:
        return 1 if unnoticed(chosen[0]) else 0
    return max(subprocess.call([sys.executable, "-m", "tests.mutants.by_hand", name]) for name in chosen)


if __name__ == "__main__":
    sys.exit(main())
