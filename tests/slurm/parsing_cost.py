"""What reading Slurm's text costs the bridge itself, without a cluster: `python -m tests.slurm.parsing_cost`.

A stand-in prints jobs and nodes in the form of Slurm 26.05. Prints CPU time of the bridge alone, Slurm's programs left
out: of the first reading, of one in which nothing changed, and of one in which `--changed` jobs did. Nothing is
asserted: these are measurements.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched_bridge.adapters.slurm.transport.cli.reading import Reading
from tests.unit.bridge.adapters.slurm.transport.cli.standin import NODE, Answers, Job, Programs

END = "~\0"
"""Stands for the word that each squeue is given anew."""


@dataclass
class Printed:
    """Answers that were made before; `spent_s` is the CPU time that handing them out took."""

    programs: Programs
    nodes: str
    texts: dict[str, str] = field(default_factory=dict)
    spent_s: float = 0.0

    def __call__(
        self, commands: Mapping[str, Sequence[str]], deadline_s: float, typed: Mapping[str, str] | None = None
    ) -> Answers:
        """As `AskedSlurm`."""
        began_s = time.process_time()
        found = {name: self._text(list(command)) for name, command in commands.items()}
        self.spent_s += time.process_time() - began_s
        return Answers(found)

    def _text(self, command: list[str]) -> str:
        if command[-1] == "nodes":
            return self.nodes
        word = command[-1].rpartition(":")[2] if command[0] == "squeue" and len(command) > 2 else ""
        plain = [part.replace(word, END) if word else part for part in command]
        key = " ".join(plain)
        if key not in self.texts:
            self.texts[key] = self.programs({"one": plain}, 1.0).texts()["one"]
        return self.texts[key].replace(END, word) if word else self.texts[key]


@dataclass
class Turned:
    """Programs in whose place others can be put."""

    printed: Printed

    def __call__(
        self, commands: Mapping[str, Sequence[str]], deadline_s: float, typed: Mapping[str, str] | None = None
    ) -> Answers:
        """As `AskedSlurm`."""
        return self.printed(commands, deadline_s, typed)


def jobs(count: int, changed: int = 0) -> list[Job]:
    """So many held jobs, the first of them with other priorities."""
    return [Job(at + 1, columns={"PriorityLong": "7"} if at < changed else {}) for at in range(count)]


def cpu_s(reading: Reading, printed: Printed) -> float:
    """CPU seconds of one reading, without what the stand-in took."""
    printed.spent_s, began_s = 0.0, time.process_time()
    reading.read()
    return time.process_time() - began_s - printed.spent_s


def measured(queued: int, wide: int, changed: int, rounds: int) -> tuple[float, float, float]:
    """Median CPU seconds of a first reading, of one without changes, and of one with some."""
    nodes = "".join(NODE.format(name=f"n{at}") for at in range(1, wide + 1))
    before, after = (Printed(Programs(jobs(queued, some)), nodes) for some in (0, changed))
    for printed in (before, after):
        Reading(programs=printed).read()  # the texts are made
    found = []
    for _ in range(rounds):
        now = Turned(before)
        reading = Reading(programs=now)
        took = [cpu_s(reading, before), cpu_s(reading, before)]
        now.printed = after
        found.append([*took, cpu_s(reading, after)])
    first, same, other = np.median(np.array(found), axis=0)
    return float(first), float(same), float(other)


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 500, 10000])
    parser.add_argument("--changed", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    print(f"| jobs | nodes | first reading, ms | nothing new, ms | {wanted.changed} jobs changed, ms |")
    print("|---|---|---|---|---|")
    for wide in wanted.nodes:
        for queued in wanted.queued:
            row = measured(queued, wide, min(queued, wanted.changed), wanted.rounds)
            print(f"| {queued:,} | {wide:,} | " + " | ".join(f"{1000 * each:.0f}" for each in row) + " |", flush=True)


if __name__ == "__main__":
    main()
