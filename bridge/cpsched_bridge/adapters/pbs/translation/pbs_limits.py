"""PBS's limits on what runs at once, of the server and of queues, as counters; `qrun` itself heeds none of them.

- `max_run` counts jobs, `max_run_res.R` an amount of R. Each has entries `[o:PBS_ALL=N]` (all jobs together),
  `[u:NAME=N]` (a user), `[g:NAME=N]` (a group), `[p:NAME=N]` (a project); NAME may be `PBS_GENERIC`, which means each
  one that has no entry of its own.
- The older `max_running`, `max_user_run`, `max_group_run` say the same in fewer words.
- `resources_available.R` of the server, or of a queue, bounds the sum over all jobs there.

Limits on what waits, and soft limits, keep no job from starting. Source: OpenPBS's manual pages
`pbs_server_attributes(7B)` and `pbs_queue_attributes(7B)`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from cpsched.parsing.pbs_select import parse_size_bytes
from cpsched.site.admission import QueueLimits
from cpsched.site.limit_checks import JobLimits, LimitCheck
from cpsched_bridge.adapters.pbs.pbs_records import Record, Value, all_of, text_of, texts_of
from cpsched_bridge.adapters.pbs.translation.pbs_units import amount
from cpsched_bridge.adapters.shared.not_modelled import UNREADABLE

_ENTRY = re.compile(r"\[\s*([ougp])\s*:\s*(\"[^\"]*\"|'[^']*'|[^=\]]+?)\s*=\s*([^\]\s]+)\s*\]")
ALL, GENERIC = "PBS_ALL", "PBS_GENERIC"
_OLD = {"max_running": ("o", ALL), "max_user_run": ("u", GENERIC), "max_group_run": ("g", GENERIC)}
JOBS = ""
"""Stands for the resource of a limit that counts jobs."""
_WHOSE = {"u": "user", "g": "group", "p": "project"}


@dataclass(frozen=True, slots=True)
class PbsLimit:
    """At most `most` of `resource` for jobs of `who`, each one by itself where that is `GENERIC`."""

    scope: str
    """The queue's name; empty: the server."""
    kind: str
    who: str
    resource: str
    most: int


@dataclass(slots=True)
class PbsLimits:
    """The limits of one reading."""

    limits: tuple[PbsLimit, ...] = ()
    notes: list[str] = field(default_factory=list)
    _named: set[tuple[str, str, str, str]] = field(default_factory=set)

    @classmethod
    def of(cls, server: Record, queues: Mapping[str, Record]) -> PbsLimits:
        """The limits that server and queues set; entries that cannot be read are told in `notes`."""
        found = cls()
        kept: list[PbsLimit] = []
        for scope, record in (("", server), *queues.items()):
            for name, resource, value in _said(record):
                try:
                    kept += _limits(scope, name, resource, value)
                except UNREADABLE as error:
                    found.notes.append(f"{name} of {scope or 'the server'} cannot be read: {error}")
        found.limits = tuple(kept)
        found._named = {(each.scope, each.kind, each.who, each.resource) for each in kept}
        return found

    def now(self, running: Iterable[Record], waiting: Mapping[int, Record]) -> QueueLimits | None:
        """How the waiting jobs, by number, stand to the limits beside what runs; None where there are no limits."""
        if not self.limits:
            return None
        counters: dict[tuple[str, str, str, str], int] = {}
        used: list[int] = []

        def counter(key: tuple[str, str, str, str]) -> int:
            if key not in counters:
                counters[key] = len(used)
                used.append(0)
            return counters[key]

        for record in running:
            for limit, whose in self._about(record):
                used[counter((limit.scope, limit.kind, whose, limit.resource))] += _takes(record, limit.resource)
        standings = {}
        for number, record in waiting.items():
            takes, checks = [], []
            for limit, whose in self._about(record):
                at = counter((limit.scope, limit.kind, whose, limit.resource))
                taken = _takes(record, limit.resource)
                takes.append((at, taken))
                checks.append(_check(limit, whose, at, taken))
            if takes:
                standings[number] = JobLimits(tuple(takes), tuple(checks))
        return QueueLimits(standings, used)

    def _about(self, record: Record) -> Iterable[tuple[PbsLimit, str]]:
        """The limits that hold for a job, each with the one whom it counts."""
        try:
            names = counted_as(record)
        except UNREADABLE:  # of a job that runs: such a job that waits is left to PBS
            names = {"o": ALL, "u": "", "g": "", "p": ""}
        queue = str(record.get("queue", ""))
        for limit in self.limits:
            name = names[limit.kind]
            own = (limit.scope, limit.kind, name, limit.resource) in self._named
            if limit.scope in ("", queue) and name and (limit.who == name or (limit.who == GENERIC and not own)):
                yield limit, name


def counted_as(record: Record) -> dict[str, str]:
    """Whom a job counts for, by the letters of limits. Raises `ValueError` where one of them cannot be read."""
    return {"o": ALL, "u": owner_of(record), "g": text_of(record, "egroup"), "p": text_of(record, "project")}


def owner_of(record: Record) -> str:
    """The user of a job, without the host."""
    return text_of(record, "euser") or text_of(record, "Job_Owner").partition("@")[0]


def _said(record: Record) -> Iterable[tuple[str, str, Sequence[str]]]:
    """(attribute, resource, values) of the limits in a record."""
    for name in ("max_run", *_OLD):
        if name in record:
            yield name, JOBS, all_of(record[name])
    for name in ("max_run_res", "resources_available"):
        value: Value | None = record.get(name)
        for resource, each in (value if isinstance(value, dict) else {}).items():
            yield name, resource, all_of(each)


def _limits(scope: str, name: str, resource: str, values: Sequence[str]) -> list[PbsLimit]:
    if name == "resources_available":
        numbers = [value for value in values if _is_amount(value)]
        return [PbsLimit(scope, "o", ALL, resource, _most(value)) for value in numbers]
    if name in _OLD:
        kind, who = _OLD[name]
        return [PbsLimit(scope, kind, who, JOBS, int(value)) for value in values]
    found = []
    for value in values:
        entries = _ENTRY.findall(value)
        if not entries or _ENTRY.sub("", value).strip(" ,"):
            raise ValueError(repr(value[:60]))
        found += [PbsLimit(scope, kind, who.strip("\"'"), resource, _most(most)) for kind, who, most in entries]
    return found


def _is_amount(text: str) -> bool:
    try:
        _most(text)
    except UNREADABLE:
        return False
    return True


def _most(text: str) -> int:
    """A limit in whole amounts: a number as it is, a size in bytes."""
    return math.floor(_exactly(text))


def _exactly(text: str) -> Fraction:
    try:
        return amount(text, False)
    except ValueError:
        return Fraction(parse_size_bytes(text))


def _takes(record: Record, resource: str) -> int:
    """What a job adds to a sum: 1 where jobs are counted, else what it asks for in all, in whole amounts."""
    if resource == JOBS:
        return 1
    try:
        return math.ceil(_exactly(texts_of(record, "Resource_List").get(resource, "0")))
    except UNREADABLE:
        return 0


def _check(limit: PbsLimit, whose: str, at: int, taken: int) -> LimitCheck:
    what = limit.resource or "jobs"
    reason = f"max_run_res.{what}" if limit.resource else "max_run"
    owner = " ".join(
        word
        for word in (
            "all jobs" if limit.kind == "o" else f"{_WHOSE[limit.kind]} {whose}",
            f"in queue {limit.scope}" if limit.scope else "",
        )
        if word
    )
    return LimitCheck(at, taken, limit.most, reason, owner, what)
