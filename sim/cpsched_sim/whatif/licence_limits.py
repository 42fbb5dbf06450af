"""Licenses: their totals, the amounts that jobs hold, and limits in a replay.

If too few licenses are free, Slurm's main loop and backfill skip the job and continue with the next one
(`license_job_test` in `job_scheduler.c` and `backfill.c`, 22.05 to 26.05, without `bf_licenses`). Each license is
therefore another limit on a sum over the running jobs.

A license has two names. Jobs request the trackable resource `license/NAME`, if `AccountingStorageTRES` lists it.
`scontrol show license` reports the total of NAME. Slurm compares the two names in lower case.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from cpsched.errors import InvalidValue, require
from cpsched.formatting import format_count
from cpsched.model import IntArray, Snapshot
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.site.limit_checks import (
    LICENSE,
    NO_JOB_LIMITS,
    ApplicableJobLimits,
    JobLimitAttributes,
    UsageLimitCheck,
)
from cpsched.site.limit_reasons import LICENSES_REASON
from cpsched.slurm_text.tables import parse_key_values
from cpsched_sim.errors import InvalidSystem, quote_value
from cpsched_sim.input.input_limits import MAX_AMOUNT
from cpsched_sim.input.text_line_reader import read_text_lines

LICENSES_OPTION = "--licenses"
MAX_LISTED_LICENSES = 10
_LICENCE_TOTAL = re.compile(r"(.+)[=:](\d{1,18})", re.ASCII)

Amounts = tuple[tuple[str, int], ...]
"""Requested amounts of licenses, by name as in the accounting data."""
Totals = Mapping[str, int]
"""Totals of licenses, by name in lower case."""


@dataclass(frozen=True, slots=True)
class LicenceRequestsAndTotals:
    """The licenses that the jobs of a window request, and their totals.

    `asked` is by job index and omits jobs without licenses. `totals` omits licenses that no job requests.
    """

    asked: Mapping[int, Amounts] = field(default_factory=dict)
    totals: Totals = field(default_factory=dict)

    @classmethod
    def of(cls, asked: Mapping[int, Amounts], totals: Totals) -> LicenceRequestsAndTotals:
        """Return the requested licenses with the totals that apply to them."""
        wanted = {name.lower() for licences in asked.values() for name, _ in licences}
        return cls(asked, {name: totals[name] for name in sorted(wanted & totals.keys())})

    @property
    def to_licenses_option(self) -> str:
        """Return the totals in the syntax of `--licenses`."""
        return ",".join(f"{name}={total}" for name, total in self.totals.items())


# ------------------------------------------------------------------------------------------ totals


def read_licence_totals(path: Path) -> dict[str, int]:
    """Parse the output of `scontrol show license`. Raise `InvalidSystem`.

    A license is omitted if its total occurs twice or has a `Mode`. A `Mode` marks a hierarchical resource, which has an
    amount for each set of nodes.
    """
    found: dict[str, int] = {}
    layered = set[str]()
    name = ""
    for line, text in read_text_lines(path):
        words = dict(parse_key_values(text))
        name = words.get("LicenseName", name).lower()
        if "Mode" in words or ("Total" in words and name in found):
            layered.add(name)
        if "Total" not in words:
            continue
        total = words["Total"]
        if not (total.isascii() and total.isdecimal() and int(total) <= MAX_AMOUNT):
            raise InvalidSystem(path, line, "Total", total, f"must be a whole number of at most {MAX_AMOUNT:,}")
        if not name:
            raise InvalidSystem(path, line, "LicenseName", "", "must come before its Total")
        found[name] = int(total)
    return {name: total for name, total in found.items() if name not in layered}


def parse_licence_totals(text: str) -> dict[str, int]:
    """Parse `matlab=10,ansys=4`, or the form with colons of `Licenses` in slurm.conf.

    Raise `InvalidValue`.
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _LICENCE_TOTAL.fullmatch(part)
        if not match or int(match[2]) > MAX_AMOUNT:
            raise InvalidValue(LICENSES_OPTION, part, f"must be NAME=NUMBER, with a number of at most {MAX_AMOUNT:,}")
        found[match[1].removeprefix(LICENSE).lower()] = int(match[2])
    require(bool(found), LICENSES_OPTION, text, "must contain at least one license")
    return found


def why_licences_insufficient(licences: Amounts, totals: Totals) -> str:
    """Return why a job can never run, or "" if it requests no more than the totals."""
    for name, amount in licences:
        if (total := totals.get(name.lower())) is not None and amount > total:
            return f"{LICENSE}{quote_value(name)} only {total:,} exist"
    return ""


# ------------------------------------------------------------------------------------------ notes


def licence_notes(asked: Iterable[Amounts], held: Iterable[tuple[int, int, Amounts]], totals: Totals) -> Iterator[str]:
    """Yield notes on the licenses that jobs request, and on those that they held.

    Each item of `held` is (from, until, amounts).
    """
    wanted = Counter(name.lower() for licences in asked for name, _ in licences)
    if known := {name: totals[name] for name in sorted(wanted) if name in totals}:
        yield f"licenses limited in the replay: {_abbreviate_licence_names(f'{n} {t:,}' for n, t in known.items())}"
    if strange := [f"{name} ({format_count(wanted[name], 'job')})" for name in sorted(wanted) if name not in totals]:
        yield (
            f"licenses not replayed, because their totals are unknown (set {LICENSES_OPTION}): "
            f"{_abbreviate_licence_names(strange)}"
        )
    if unasked := sorted(totals.keys() - wanted.keys()):
        yield (
            "licenses that no job requests, as far as AccountingStorageTRES tracks them: "
            f"{_abbreviate_licence_names(unasked)}"
        )
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for begin_s, end_s, licences in held:
        for name, amount in licences:
            changes[name.lower()] += [(begin_s, amount), (end_s, -amount)]
    for name, total in known.items():
        if (most := peak_amount(changes[name])) > total:
            yield (
                f"license {quote_value(name)}: {most:,} were in use at once, more than the total of {total:,} in the "
                f"replay: set the real total with {LICENSES_OPTION}"
            )


def _abbreviate_licence_names(words: Iterable[str]) -> str:
    every = [quote_value(word) for word in words]
    return ", ".join(every[:MAX_LISTED_LICENSES]) + (
        f" and {len(every) - MAX_LISTED_LICENSES:,} more" * (len(every) > MAX_LISTED_LICENSES)
    )


def peak_amount(changes: Iterable[tuple[int, int]]) -> int:
    """Return the maximum amount in use, given changes as (second, amount).

    Within a second, releases are applied first.
    """
    return max(accumulate((change for _, change in sorted(changes)), initial=0))


# ------------------------------------------------------------------------------------------ in a replay


def add_licences_to_tres(claim: JobLimitAttributes, licences: Amounts) -> JobLimitAttributes:
    """Add the job's licenses to its trackable resources.

    Limits of a QOS or association may refer to them.
    """
    return claim._replace(tres=(*claim.tres, *((f"{LICENSE}{name}", amount) for name, amount in licences)))


@dataclass(frozen=True, slots=True, eq=False)
class LicenceUsage:
    """The licenses that jobs hold during a replay, for all licenses with known totals.

    - `kind`: int64[J], the row of `held` for each job. Row 0 is for jobs without licenses.
    - `held`: int64[K, L]; `totals`: int64[L].
    """

    names: tuple[str, ...]
    totals: IntArray
    kind: IntArray
    held: IntArray

    @classmethod
    def of(cls, licences: LicenceRequestsAndTotals, jobs: int) -> LicenceUsage | None:
        """Return the usage of `jobs` jobs, or None if no license has a known total."""
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

    def count_used(self, running: IntArray) -> IntArray:
        """Return the amount of each license that the running jobs hold, int64[L]."""
        used: IntArray = np.bincount(self.kind[running], minlength=len(self.held)) @ self.held
        return used

    def has_free_licences(self, slot: int, running: IntArray) -> bool:
        """Return whether enough licenses are free for a job."""
        return bool((self.count_used(running) + self.held[self.kind[slot]] <= self.totals).all())

    def add_licence_limits(
        self, limits: PendingJobLimitsAndUsage | None, snapshot: Snapshot
    ) -> PendingJobLimitsAndUsage | None:
        """Return the site's limits, plus the license limits that the queue may reach."""
        queue, jobs = snapshot.queue, snapshot.table.jobs
        kinds, used = self.kind[queue], self.count_used(snapshot.running)
        asking = np.flatnonzero(kinds)
        enough = (used + self.held[kinds].sum(axis=0) <= self.totals).all()
        if enough or not len(asking):
            return limits
        limits = limits or PendingJobLimitsAndUsage()
        known, first = limits.standings, len(limits.used)
        standings = {}
        if known:
            ids = [jobs[slot].id for slot in queue.tolist()]
            standings = {job_id: known[job_id] for job_id in ids if job_id in known}
        made: dict[tuple[int, int], ApplicableJobLimits] = {}
        for slot, kind in zip(queue[asking].tolist(), kinds[asking].tolist(), strict=True):
            before = standings.get(jobs[slot].id, NO_JOB_LIMITS)
            key = id(before), kind
            if key not in made:
                made[key] = self._add_licence_checks(before, kind, first)
            standings[jobs[slot].id] = made[key]
        return PendingJobLimitsAndUsage(standings, (*limits.used, *used.tolist()))

    def _add_licence_checks(self, before: ApplicableJobLimits, kind: int, first: int) -> ApplicableJobLimits:
        """Add one check per license that jobs of this kind request.

        The counters of the licenses start at index `first`.
        """
        rows = [(at, amount) for at, amount in enumerate(self.held[kind].tolist()) if amount]
        checks = (
            UsageLimitCheck(
                first + at, amount, int(self.totals[at]), LICENSES_REASON, "the cluster", quote_value(self.names[at])
            )
            for at, amount in rows
        )
        takes = ((first + at, amount) for at, amount in rows)
        return replace(before, takes=(*before.takes, *takes), checks=(*before.checks, *checks))
