"""Check a PBS by its accounting log only, independent of any bridge.

- No job starts while it runs, and each runs to its end the expected number of times: once, plus once per requeue.
- Each chunk has what it requested, and no vnode is overbooked.
- Scattered chunks are on different vnodes; a job that requests exclusive vnodes has them alone.
- Grouped chunks are on vnodes of one group.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cpsched_sim.traces.pbs_lines import PbsAccountingLine, PbsRecordFields, parse_pbs_line
from tests.pbs.server import Amounts, chunks_of, kib

REFUSED_BY_MOM = "-3"
"""Exit status of a run that a mom rejected: the job has not begun."""
COUNTED = ("ncpus", "mem", "ngpus")


@dataclass
class Run:
    """A run: by chunk, the amounts of each vnode."""

    chunks: list[list[tuple[str, Amounts]]]
    alone: bool

    @property
    def vnodes(self) -> set[str]:
        """Return the run's vnodes."""
        return {name for chunk in self.chunks for name, _ in chunk}

    def on(self, vnode: str) -> Amounts:
        """Return the run's amounts on one vnode."""
        return sum((used for chunk in self.chunks for name, used in chunk if name == vnode), Counter())


@dataclass
class Judge:
    """Reads a log line by line.

    `vnodes` has the amounts of each: ncpus, mem (KiB), ngpus. `groups` has the group of each, for the resource by which
    jobs request grouping.
    """

    vnodes: Mapping[str, Amounts]
    groups: Mapping[str, str] = field(default_factory=dict)
    wrongs: list[str] = field(default_factory=list)
    starts: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    requeues: Counter[str] = field(default_factory=Counter)
    _running: dict[str, Run] = field(default_factory=dict)

    def read(self, lines: Iterable[str]) -> Judge:
        """Read all lines."""
        for text in lines:
            line = parse_pbs_line(text)
            if "[]" in line.id or line.kind not in "SER":
                continue
            fields = PbsRecordFields(line.text)
            if line.kind == "S":
                self._starts(line, fields)
            else:
                self._ends(line, fields)
        return self

    def once(self, jobs: Iterable[str]) -> list[str]:
        """Return the errors, given that each of these jobs must have run to its end."""
        found = list(self.wrongs)
        for id in jobs:
            wanted = 1 + self.requeues[id]
            if (self.starts[id], self.ends[id]) != (wanted, 1):
                found.append(f"{id} began {self.starts[id]} times and ended {self.ends[id]} times, not {wanted} and 1")
        return found

    def _starts(self, line: PbsAccountingLine, fields: PbsRecordFields) -> None:
        run = Run(_given(fields.get("exec_vnode", "")), "excl" in fields.get("Resource_List.place", "").split(":"))
        if line.id in self._running:
            self.wrongs.append(f"{line.at}: {line.id} starts while it runs")
        self.starts[line.id] += 1
        self._running[line.id] = run
        self._check_chunks(line, fields, run)
        for vnode in run.vnodes:
            there = {id: other for id, other in self._running.items() if vnode in other.vnodes}
            used = sum((other.on(vnode) for other in there.values()), Counter[str]())
            if vnode not in self.vnodes or used - self.vnodes[vnode]:
                self.wrongs.append(f"{line.at}: {line.id} starts on {vnode}, which has no room: {dict(used)}")
            if len(there) > 1 and any(other.alone for other in there.values()):
                self.wrongs.append(f"{line.at}: {line.id} starts on {vnode}, which one of {sorted(there)} has alone")

    def _check_chunks(self, line: PbsAccountingLine, fields: PbsRecordFields, run: Run) -> None:
        asked = list(chunks_of(_countable(fields.get("Resource_List.select", "1:ncpus=1"))))
        had: list[Amounts] = [sum((used for _, used in chunk), Counter()) for chunk in run.chunks]
        if len(asked) != len(had) or any(wish - has for wish, has in zip(asked, had, strict=False)):
            self.wrongs.append(f"{line.at}: {line.id} asked for {fields.get('Resource_List.select')}, and starts with "
                               f"{fields.get('exec_vnode')}")  # fmt: skip
        if "scatter" in fields.get("Resource_List.place", "") and len(run.vnodes) < len(run.chunks):
            self.wrongs.append(f"{line.at}: {line.id} is to be scattered, and is on {sorted(run.vnodes)}")

        if (
            "group=" in fields.get("Resource_List.place", "")
            and len({self.groups.get(name) for name in run.vnodes}) > 1
        ):
            self.wrongs.append(f"{line.at}: {line.id} is to be in one group, and is on {sorted(run.vnodes)}")

    def _ends(self, line: PbsAccountingLine, fields: PbsRecordFields) -> None:
        if self._running.pop(line.id, None) is None:
            self.wrongs.append(f"{line.at}: {line.id} ends, and did not run")
        elif line.kind == "E":
            self.ends[line.id] += 1
        elif fields.get("Exit_status") == REFUSED_BY_MOM:
            self.starts[line.id] -= 1
            self.wrongs.append(f"{line.at}: {line.id} was started in a way that its host refused")
        else:
            self.requeues[line.id] += 1


def _given(exec_vnode: str) -> list[list[tuple[str, Amounts]]]:
    """Parse `(a:ncpus=2)+(b:ncpus=1:mem=10kb+c:ncpus=1)` by chunk."""
    found = []
    for chunk in re.findall(r"\(([^()]*)\)", exec_vnode):
        parts = []
        for part in chunk.split("+"):
            name, *words = part.split(":")
            said = dict(word.split("=", 1) for word in words)
            amounts = {what: kib(n) if what == "mem" else int(n) for what, n in said.items() if what in COUNTED}
            parts.append((name, Counter(amounts)))
        found.append(parts)
    return found


def _countable(select: str) -> str:
    """Return a select without the parts that are not amounts."""
    return re.sub(r":(?!(?:ncpus|mem|ngpus)=)[A-Za-z_]\w*=[^:+]*", "", select)
