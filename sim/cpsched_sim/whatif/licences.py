"""Licences: how many there are, how many each job holds, and a replay that never has more in use than there are.

Slurm passes over a job whose licences are short, in its main loop as in backfill, and goes on to the jobs behind it
(`license_job_test` in `job_scheduler.c` and `backfill.c`, 22.05 to 26.05, without `bf_licenses`). So each licence is
one more limit of the kind that a site sets: a bound on a sum over the jobs that run at once.

A licence has two spellings. Jobs ask for the trackable resource `license/NAME`, if `AccountingStorageTRES` names it;
of NAME there are as many as `scontrol show license` says. Slurm holds the two against each other in small letters.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from cpsched.errors import InvalidValue, require
from cpsched.formatting import many
from cpsched.model import IntArray, Snapshot
from cpsched.parsing.slurm_limits import parse_key_values
from cpsched.site.admission import QueueLimits
from cpsched.site.limit_checks import NO_JOB_LIMITS, JobLimits, LimitCheck, LimitSubject
from cpsched_sim.errors import InvalidSystem, quote_value
from cpsched_sim.input.input_limits import MAX_AMOUNT
from cpsched_sim.input.text_lines import lines_of

OPTION = "--licenses"
LICENSES = "Licenses"
"""Slurm's name for the reason why a job waits whose licences are short."""
TRES = "license/"
MOST_NAMED = 10
_ONE = re.compile(r"(.+)[=:](\d{1,18})", re.ASCII)

Amounts = tuple[tuple[str, int], ...]
"""How many of which licence, by the name that accounting has."""
Totals = Mapping[str, int]
"""How many of each licence there are, by its name in small letters."""


@dataclass(frozen=True, slots=True)
class Licences:
    """What the jobs of a window ask for, by place of the job, and how many there are.

    Jobs that ask for none are not in `asked`, licences of which no job asks for any not in `totals`.
    """

    asked: Mapping[int, Amounts] = field(default_factory=dict)
    totals: Totals = field(default_factory=dict)

    @classmethod
    def of(cls, asked: Mapping[int, Amounts], totals: Totals) -> Licences:
        """The licences that jobs ask for, and of all that there are those which matter to them."""
        wanted = {name.lower() for licences in asked.values() for name, _ in licences}
        return cls(asked, {name: totals[name] for name in sorted(wanted & totals.keys())})

    @property
    def spelled(self) -> str:
        """The totals as `--licenses` has them."""
        return ",".join(f"{name}={total}" for name, total in self.totals.items())


# ------------------------------------------------------------------------------------------ how many there are


def read_totals(path: Path) -> dict[str, int]:
    """What `scontrol show license` printed, in one line each or in several. Raises `InvalidSystem` with the line.

    No total is known of a name that comes twice, or with a `Mode`: of a hierarchical resource each set of nodes has its
    own.
    """
    found: dict[str, int] = {}
    layered = set[str]()
    name = ""
    for line, text in lines_of(path):
        words = dict(parse_key_values(text))
        name = words.get("LicenseName", name).lower()
        if "Mode" in words or ("Total" in words and name in found):
            layered.add(name)
        if "Total" not in words:
            continue
        total = words["Total"]
        if not (total.isascii() and total.isdecimal() and int(total) <= MAX_AMOUNT):
            raise InvalidSystem(path, line, "Total", total, f"must be a whole number up to {MAX_AMOUNT:,}")
        if not name:
            raise InvalidSystem(path, line, "LicenseName", "", "must come before its Total")
        found[name] = int(total)
    return {name: total for name, total in found.items() if name not in layered}


def parse_totals(text: str) -> dict[str, int]:
    """`matlab=10,ansys=4`, or with colons, as `Licenses` in slurm.conf has it. Raises `InvalidValue`."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ONE.fullmatch(part)
        if not match or int(match[2]) > MAX_AMOUNT:
            raise InvalidValue(OPTION, part, f"must be NAME=NUMBER, the number up to {MAX_AMOUNT:,}")
        found[match[1].removeprefix(TRES).lower()] = int(match[2])
    require(bool(found), OPTION, text, "must name one at least")
    return found


def too_many(licences: Amounts, totals: Totals) -> str:
    """Why a job can never run that asks for more than there are; "" where it can."""
    for name, amount in licences:
        if (total := totals.get(name.lower())) is not None and amount > total:
            return f"{TRES}{quote_value(name)} no more than {total:,} are there"
    return ""


# ------------------------------------------------------------------------------------------ what is told


def licences_told(asked: Iterable[Amounts], held: Iterable[tuple[int, int, Amounts]], totals: Totals) -> Iterator[str]:
    """What there is to say of what jobs ask for, and of what was really held: (from, until, what)."""
    wanted = Counter(name.lower() for licences in asked for name, _ in licences)
    if known := {name: totals[name] for name in sorted(wanted) if name in totals}:
        yield f"licences, of which a replay never has more in use: {_some(f'{n} {t:,}' for n, t in known.items())}"
    if strange := [f"{name} ({many(wanted[name], 'job')})" for name in sorted(wanted) if name not in totals]:
        yield f"licences not replayed, of which nobody says how many there are ({OPTION}): {_some(strange)}"
    if unasked := sorted(totals.keys() - wanted.keys()):
        yield f"licences that no job asks for, as far as AccountingStorageTRES has them counted: {_some(unasked)}"
    most = _most_at_once(held)
    for name, total in known.items():
        if most.get(name, 0) > total:
            yield (
                f"licence {quote_value(name)}: {most[name]:,} were really in use at once, of {total:,} that there are in a "  # noqa: E501
                f"replay: say with {OPTION} how many there were"
            )


def _some(words: Iterable[str]) -> str:
    every = [quote_value(word) for word in words]
    return ", ".join(every[:MOST_NAMED]) + (f" and {len(every) - MOST_NAMED:,} more" * (len(every) > MOST_NAMED))


def _most_at_once(held: Iterable[tuple[int, int, Amounts]]) -> dict[str, int]:
    """By name, the most that was in use in any second; whoever ends in a second holds nothing in it."""
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for begin_s, end_s, licences in held:
        for name, amount in licences:
            changes[name.lower()] += [(begin_s, amount), (end_s, -amount)]
    return {
        name: int(np.cumsum([change for _, change in sorted(each)]).max(initial=0)) for name, each in changes.items()
    }


# ------------------------------------------------------------------------------------------ in a replay


def with_licences(claim: LimitSubject, licences: Amounts) -> LimitSubject:
    """The job with its licences as trackable resources, on which QOS and associations may set limits."""
    return claim._replace(tres=(*claim.tres, *((f"{TRES}{name}", amount) for name, amount in licences)))


@dataclass(frozen=True, slots=True, eq=False)
class LicenceUsage:
    """Who holds which licences while jobs are replayed; only licences of which the total is known.

    - `kind`: int64[J], which row of `held` is the job's; row 0 holds nothing.
    - `held`: int64[K, L]; `totals`: int64[L].
    """

    names: tuple[str, ...]
    totals: IntArray
    kind: IntArray
    held: IntArray

    @classmethod
    def of(cls, licences: Licences, jobs: int) -> LicenceUsage | None:
        """The licences of so many jobs; None where nobody asks for one of which the total is known."""
        if not licences.totals:
            return None
        at_name = {name: at for at, name in enumerate(licences.totals)}
        rows: dict[tuple[int, ...], int] = {(0,) * len(at_name): 0}
        kind = np.zeros(jobs, np.int64)
        for at, asked in licences.asked.items():
            row = [0] * len(at_name)
            for name, amount in asked:
                if (place := at_name.get(name.lower())) is not None:
                    row[place] += amount
            kind[at] = rows.setdefault(tuple(row), len(rows))
        totals = np.array([*licences.totals.values()], np.int64)
        return cls(tuple(at_name), totals, kind, np.array([*rows], np.int64))

    def used(self, running: IntArray) -> IntArray:
        """How many of each the running jobs (slots) hold, int64[L]."""
        used: IntArray = np.bincount(self.kind[running], minlength=len(self.held)) @ self.held
        return used

    def has_room(self, slot: int, running: IntArray) -> bool:
        """Whether a job could have its licences beside what runs."""
        return bool((self.used(running) + self.held[self.kind[slot]] <= self.totals).all())

    def beside(self, limits: QueueLimits | None, snapshot: Snapshot) -> QueueLimits | None:
        """The site's limits (None: it sets none); where licences can be short, with these as limits on further sums."""
        queue, jobs = snapshot.queue, snapshot.table.jobs
        kinds, used = self.kind[queue], self.used(snapshot.running)
        asking = np.flatnonzero(kinds)
        enough = (used + self.held[kinds].sum(axis=0) <= self.totals).all()
        if enough or not len(asking):
            return limits
        limits = limits or QueueLimits()
        known, first = limits.standings, len(limits.used)
        standings = {}
        if known:
            ids = [jobs[slot].id for slot in queue.tolist()]
            standings = {job_id: known[job_id] for job_id in ids if job_id in known}
        made: dict[tuple[int, int], JobLimits] = {}
        for slot, kind in zip(queue[asking].tolist(), kinds[asking].tolist(), strict=True):
            before = standings.get(jobs[slot].id, NO_JOB_LIMITS)
            key = id(before), kind
            if key not in made:
                made[key] = self._with_row(before, kind, first)
            standings[jobs[slot].id] = made[key]
        return QueueLimits(standings, (*limits.used, *used.tolist()))

    def _with_row(self, before: JobLimits, kind: int, first: int) -> JobLimits:
        """A standing with the licences of a kind of job; their counters are from `first` on."""
        rows = [(at, amount) for at, amount in enumerate(self.held[kind].tolist()) if amount]
        checks = (
            LimitCheck(first + at, amount, int(self.totals[at]), LICENSES, "the cluster", quote_value(self.names[at]))
            for at, amount in rows
        )
        takes = ((first + at, amount) for at, amount in rows)
        return replace(before, takes=(*before.takes, *takes), checks=(*before.checks, *checks))
