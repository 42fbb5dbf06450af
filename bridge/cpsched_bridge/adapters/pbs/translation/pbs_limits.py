"""Translate the run limits of PBS's server and queues, which `qrun` ignores.

- `max_run` limits the number of running jobs, and `max_run_res.R` their total amount of R. Entries are `[o:PBS_ALL=N]`
  (all jobs together), `[u:NAME=N]` (a user), `[g:NAME=N]` (a group), and `[p:NAME=N]` (a project). The NAME
  `PBS_GENERIC` applies to each user, group or project without its own entry.
- `max_running`, `max_user_run` and `max_group_run` are older forms of `max_run`, and `max_user_res.R` and
  `max_group_res.R` of `max_run_res.R`.
- `resources_available.R` on the server or a queue limits the total for its running jobs.

Limits on waiting jobs and soft limits do not prevent a start, so this module ignores them. Any other `max_` attribute
is reported. Source: OpenPBS's manual pages `pbs_server_attributes(7B)` and `pbs_queue_attributes(7B)`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from cpsched.errors import escape_controls
from cpsched.pbs_text import parse_pbs_select, parse_size_bytes
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.site.limit_checks import ApplicableJobLimits, UsageLimitCheck
from cpsched_bridge.adapters.pbs.pbs_objects import PbsJob, Value, list_text_values, parse_resource_amount
from cpsched_bridge.adapters.shared.adapter_errors import UNREADABLE_FIELD_ERRORS

_ENTRY = re.compile(r"\[\s*([ougp])\s*:\s*(\"[^\"]*\"|'[^']*'|[^=\]]+?)\s*=\s*([^\]\s]+)\s*\]")
ALL_ENTITY, GENERIC_ENTITY = "PBS_ALL", "PBS_GENERIC"
_OLD_LIMITS = {
    "max_running": ("o", ALL_ENTITY),
    "max_user_run": ("u", GENERIC_ENTITY),
    "max_group_run": ("g", GENERIC_ENTITY),
}
_OLD_RESOURCE_LIMITS = {"max_user_res": ("u", GENERIC_ENTITY), "max_group_res": ("g", GENERIC_ENTITY)}
_ATTRIBUTES_WITHOUT_EFFECT = frozenset({
    "max_array_size", "max_concurrent_provision", "max_group_res_soft", "max_group_run_soft", "max_job_sequence_id",
    "max_queuable", "max_queued", "max_queued_res", "max_run_res_soft", "max_run_soft", "max_user_res_soft",
    "max_user_run_soft",
})  # fmt: skip
"""Attributes beginning with `max_` that do not prevent a start."""
JOB_COUNT = ""
"""Resource name used for limits on the number of jobs."""
_ENTITY_NAMES = {"u": "user", "g": "group", "p": "project"}


@dataclass(frozen=True, slots=True)
class PbsRunLimit:
    """A limit of `most` units of `resource` for `who`.

    `GENERIC_ENTITY` applies to each name without its own limit.
    """

    scope: str
    """Name of the queue, or empty for a limit on the server."""
    kind: str
    who: str
    resource: str
    most: int


@dataclass(slots=True)
class PbsRunLimitTable:
    """The run limits in one reading."""

    limits: tuple[PbsRunLimit, ...] = ()
    notes: list[str] = field(default_factory=list)
    _named: set[tuple[str, str, str, str]] = field(default_factory=set)

    @classmethod
    def from_attributes(
        cls, server: Mapping[str, Value], queues: Mapping[str, Mapping[str, Value]]
    ) -> PbsRunLimitTable:
        """Return the limits on the server and the queues, from their attributes `limits`.

        `notes` lists the unreadable entries.
        """
        found = cls()
        kept: list[PbsRunLimit] = []
        for scope, attributes in (("", server), *queues.items()):
            found.notes += [
                f"{name} on {escape_controls(scope) or 'the server'} is not kept: this version has no rule for it"
                for name in _list_unknown_limits(attributes)
            ]
            for name, resource, value in _list_limits(attributes):
                try:
                    kept += _build_limits(scope, name, resource, value)
                except UNREADABLE_FIELD_ERRORS as error:
                    found.notes.append(f"{name} on {scope or 'the server'} cannot be read: {error}")
        found.limits = tuple(kept)
        found._named = {(each.scope, each.kind, each.who, each.resource) for each in kept}
        return found

    def compute_limits_of_waiting_jobs(
        self, running: Iterable[PbsJob], waiting: Mapping[int, PbsJob]
    ) -> PendingJobLimitsAndUsage | None:
        """Return the limits that apply to waiting jobs, by job number, and their usage.

        Return None if there are no limits.
        """
        if not self.limits:
            return None
        counters: dict[tuple[str, str, str, str], int] = {}
        used: list[int] = []

        def get_counter_index(key: tuple[str, str, str, str]) -> int:
            if key not in counters:
                counters[key] = len(used)
                used.append(0)
            return counters[key]

        for job in running:
            for limit, whose in self._find_limits_for_job(job):
                index = get_counter_index((limit.scope, limit.kind, whose, limit.resource))
                used[index] += _compute_limit_usage_of_job(job, limit.resource)
        standings = {}
        for number, job in waiting.items():
            takes, checks = [], []
            for limit, whose in self._find_limits_for_job(job):
                at = get_counter_index((limit.scope, limit.kind, whose, limit.resource))
                taken = _compute_limit_usage_of_job(job, limit.resource)
                takes.append((at, taken))
                checks.append(_make_limit_check(limit, whose, at, taken))
            if takes:
                standings[number] = ApplicableJobLimits(tuple(takes), tuple(checks))
        return PendingJobLimitsAndUsage(standings, used)

    def _find_limits_for_job(self, job: PbsJob) -> Iterable[tuple[PbsRunLimit, str]]:
        """Yield (limit, name) for each limit that applies to a job.

        The usage is counted under this name. An unreadable name of a running job is empty, and no limit applies to it.
        """
        names = {"o": ALL_ENTITY, "u": job.owner, "g": job.group, "p": job.project}
        for limit in self.limits:
            name = names[limit.kind]
            own = (limit.scope, limit.kind, name, limit.resource) in self._named
            if (
                limit.scope in ("", job.queue)
                and name
                and (limit.who == name or (limit.who == GENERIC_ENTITY and not own))
            ):
                yield limit, name


def _list_unknown_limits(attributes: Mapping[str, Value]) -> list[str]:
    """Return the attributes of a server or a queue that look like limits, but have no rule here."""
    known = {"max_run", "max_run_res", *_OLD_LIMITS, *_OLD_RESOURCE_LIMITS} | _ATTRIBUTES_WITHOUT_EFFECT
    return sorted(name for name in attributes if name.startswith("max_") and name not in known)


def _list_limits(attributes: Mapping[str, Value]) -> Iterable[tuple[str, str, Sequence[str]]]:
    """Yield (attribute, resource, values) for each limit."""
    for name in ("max_run", *_OLD_LIMITS):
        if name in attributes:
            yield name, JOB_COUNT, list_text_values(attributes[name])
    for name in ("max_run_res", *_OLD_RESOURCE_LIMITS, "resources_available"):
        value = attributes.get(name)
        for resource, each in (value if isinstance(value, dict) else {}).items():
            yield name, resource, list_text_values(each)


def _build_limits(scope: str, name: str, resource: str, values: Sequence[str]) -> list[PbsRunLimit]:
    if name == "resources_available":
        numbers = [value for value in values if _is_valid_amount(value)]
        return [PbsRunLimit(scope, "o", ALL_ENTITY, resource, _parse_limit(value)) for value in numbers]
    if name in _OLD_LIMITS:
        kind, who = _OLD_LIMITS[name]
        return [PbsRunLimit(scope, kind, who, JOB_COUNT, int(value)) for value in values]
    if name in _OLD_RESOURCE_LIMITS:
        kind, who = _OLD_RESOURCE_LIMITS[name]
        return [PbsRunLimit(scope, kind, who, resource, _parse_limit(value)) for value in values]
    found = []
    for value in values:
        entries = _ENTRY.findall(value)
        if not entries or _ENTRY.sub("", value).strip(" ,"):
            raise ValueError(repr(value[:60]))
        found += [
            PbsRunLimit(scope, kind, who.strip("\"'"), resource, _parse_limit(most)) for kind, who, most in entries
        ]
    return found


def _is_valid_amount(text: str) -> bool:
    try:
        _parse_limit(text)
    except UNREADABLE_FIELD_ERRORS:
        return False
    return True


def _parse_limit(text: str) -> int:
    """Return a limit as an integer, with sizes in bytes."""
    return math.floor(_parse_exact_amount(text))


def _parse_exact_amount(text: str) -> Fraction:
    try:
        return parse_resource_amount(text, False)
    except ValueError:
        return Fraction(parse_size_bytes(text))


def _compute_limit_usage_of_job(job: PbsJob, resource: str) -> int:
    """Return how much a job adds to a limit's usage.

    This is 1 for `JOB_COUNT`, otherwise the amount that the job requests, in total or in its chunks.
    """
    if resource == JOB_COUNT:
        return 1
    try:
        requested = _parse_exact_amount(job.requested.get(resource, "0"))
        chunks = parse_pbs_select(job.select) if job.select else []
        in_chunks = sum(chunk.count * _parse_exact_amount(chunk.asked.get(resource, "0")) for chunk in chunks)
        return math.ceil(max(requested, in_chunks))
    except UNREADABLE_FIELD_ERRORS:
        return 0


def _make_limit_check(limit: PbsRunLimit, whose: str, at: int, taken: int) -> UsageLimitCheck:
    what = limit.resource or "jobs"
    reason = f"max_run_res.{what}" if limit.resource else "max_run"
    owner = " ".join(
        word
        for word in (
            "all jobs" if limit.kind == "o" else f"{_ENTITY_NAMES[limit.kind]} {whose}",
            f"in queue {limit.scope}" if limit.scope else "",
        )
        if word
    )
    return UsageLimitCheck(at, taken, limit.most, reason, owner, what)
