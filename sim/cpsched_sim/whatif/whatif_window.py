"""Cut the weeks to replay from a history, and assign a role to each job.

- Judged jobs became eligible within the window and actually ran.
- Jobs that are running when the window begins hold their nodes until their real ends. Jobs that are waiting then remain
in the queue.
- Jobs that were cancelled while waiting leave the queue at their real cancellation. If a replay starts such a job
earlier, it runs until then.
- Jobs in a reservation start at their real times, because the replay has no reservations.
- An unavailable node is modelled as a job that uses a whole node of its type. It is placed before all other jobs as
soon as a node is free, because replayed jobs run on different nodes than the real jobs.
- Later jobs arrive until the real start of the last judged job, so that the queue behind it is not empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import compress

import numpy as np
import numpy.typing as npt

from cpsched.errors import InvalidValue, require
from cpsched.formatting import format_count
from cpsched.model import NEVER, IntArray, Job, Request, TypicalRequests
from cpsched.model.typical_requests import TYPICAL_DAYS, find_typical_requests
from cpsched_sim.cluster.simulated_accounting import LicenseRequestsAndTotals, Totals
from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.site.policy_file import SitePolicyFile
from cpsched_sim.systems import system_draft
from cpsched_sim.systems.system_file import System, SystemFile, load_bundled_system, load_system
from cpsched_sim.traces.slurm_times import parse_time_zone
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.traces.trace_record import ResourceRequest, TraceRecord, UnitsRequest
from cpsched_sim.whatif.accounting_history import AccountingHistory, UnfinishedJobRecord, find_runaway_jobs
from cpsched_sim.whatif.license_limits import license_notes, why_licenses_insufficient

DAY_S, HOUR_S = 86_400, 3_600
JUDGED, QUEUED, RUNNING, LATER, GAVE_UP, RESERVED, OUTAGE = range(7)
"""The role of a job: judged; waiting or running at the beginning of the window; arriving after the window; cancelled
while waiting; in a reservation; or a model of an unavailable node.
"""
ROLES = ("judged", "waited when the window began", "ran when the window began", "came after the window",
         "gave up waiting", "ran in a reservation", "outages of nodes")  # fmt: skip
SHORT_WINDOW_DAYS = 4
"""Maximum length of a default window that starts at any time of day. A longer window starts at midnight."""
WARM_UP_SHARE = 0.01
"""Share of a file's jobs that precede the default window, because jobs that ran at that time may be missing."""
MAX_LISTED_NAMES = 5
_OUTAGE_NUMBERS_BELOW = 10**18
"""Outages have job numbers below the negative of this number, which exceeds every job number."""


@dataclass(frozen=True, slots=True)
class WindowPeriodOptions:
    """A period as text: dates with optional times, or a number of days before the end."""

    from_: str = ""
    to: str = ""
    days: float | None = None

    def __post_init__(self) -> None:
        require(self.days is None or self.days > 0, "--days", self.days, "must be positive")
        require(
            not (self.days and self.from_),
            "--days, --from",
            (self.days, self.from_),
            "cannot be combined: set only one of them",
        )


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """A period in which a node of type `kind` was unavailable, in seconds since 1970."""

    kind: str
    begin_s: int
    end_s: int


@dataclass(frozen=True, slots=True, eq=False)
class WhatIfWindow:
    """The jobs in order of arrival, with roles and fixed times in columns, int64[J].

    `leaves_s` is the time at which a waiting job was cancelled, and `fixed_s` is a job's fixed start. Otherwise, both
    are NEVER. `real_start_s` is NEVER if a job never started. `role` is an index in `ROLES`.
    """

    name: str
    system: SystemFile
    header: Mapping[str, str]
    from_s: int
    to_s: int
    epoch_s: int
    zone: str
    jobs: list[TraceJob]
    asks: list[ResourceRequest]
    role: IntArray
    leaves_s: IntArray
    fixed_s: IntArray
    real_start_s: IntArray
    site: SitePolicyFile | None
    guessed: str
    """The source from which the system was guessed, or "" if the system was given."""
    left_out: Mapping[str, int]
    """Number of jobs omitted from the replay, by reason."""
    notes: tuple[str, ...]
    licenses: LicenseRequestsAndTotals = field(default_factory=LicenseRequestsAndTotals)
    typical: TypicalRequests | None = None
    """The typical requests for GPUs of the jobs that ended in the weeks before the window, or else of its own jobs."""
    least_stranded_gpus: bool = False
    """Whether decisions choose nodes by the typical requests."""

    @property
    def is_judged(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the judged jobs, bool[J]."""
        found: npt.NDArray[np.bool_] = self.role == JUDGED
        return found

    def judged_jobs(self) -> list[TraceJob]:
        """Return the judged jobs, in order of arrival."""
        return list(compress(self.jobs, self.is_judged.tolist()))

    def to_local_time(self, at_s: int) -> datetime:
        """Convert a second of the window to the site's local time."""
        return datetime.fromtimestamp(at_s + self.epoch_s, parse_time_zone(self.zone))


def choose_or_guess_system(history: AccountingHistory, system: str | None, name: str) -> tuple[SystemFile, str]:
    """Return the given system, else the file's own, else a guess.

    Also return what the guess is based on, or "" if the system is not a guess.
    """
    if system is not None:
        return load_system(system), ""
    if named := history.header.get("system"):
        return load_bundled_system(named), ""
    if history.header.get("MaxProcs") or history.header.get("MaxNodes"):
        return load_system("pool"), "the file's header (MaxProcs), as one pool of processors"
    draft = system_draft.draft_system_from_records(history.ran, history.reader.resources, name)
    seen = any(record.nodes for record in history.ran)
    by = (
        "the nodes that jobs ran on (NodeList), and the peak use of each node"
        if seen
        else "the peak use of the machine"
    )
    return system_draft.render_and_parse_draft(draft)[1], by


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedSite:
    """The site on which a window is replayed."""

    system: SystemFile
    guessed: str = ""
    """What the system was guessed from, or "" if it was given."""
    zone: str = ""
    policy: SitePolicyFile | None = None
    outages: Sequence[NodeOutage] = ()
    license_totals: Totals = field(default_factory=dict)
    """The known totals of licenses."""


def cut_whatif_window(history: AccountingHistory, replayed: ReplayedSite, span: WindowPeriodOptions) -> WhatIfWindow:
    """Cut a window from a history, for replay on a site.

    Raise `InputError` if the window has no job, and `InvalidValue` for an invalid period.
    """
    system, zone, totals = replayed.system, replayed.zone, replayed.license_totals
    site = replayed.policy
    from_s, to_s, notes = _find_period(history, span, zone)
    history.drop_unfinished_jobs(find_runaway_jobs(history, None if replayed.guessed else system))
    left_out: Counter[str] = Counter(history.reader.tally.dropped)
    left_out.update({f"line is broken: {why}": count for why, count in history.reader.tally.skipped.items()})
    judged = [r for r in history.ran if from_s <= r.submit_s < to_s]
    if not judged:
        first, last = (_format_time(history, at, zone) for at in _first_and_last_arrival(history))
        spoken = f"{_format_time(history, from_s, zone)} to {_format_time(history, to_s, zone)}"
        raise InputError(
            f"{history.path}: no job that ran became eligible from {spoken}; the file has jobs from {first} to {last}"
        )
    last_needed_s = max((r.start_s or 0) for r in judged)
    target = System(system, history.header)
    drafts: list[tuple[TraceJob, ResourceRequest, int, int, int, int]] = []
    too_large: Counter[str] = Counter()
    strange: Counter[str] = Counter()
    last_s = history.last_recorded_s
    everyone: list[TraceRecord | UnfinishedJobRecord] = [*history.ran, *history.open]
    for each in everyone:
        found = _job_window_times(each, from_s, to_s, last_needed_s, last_s)
        if found is None:
            continue
        try:
            request = target.request(each.ask)
        except InvalidValue as error:
            too_large[f"{error.field} {error.rule} on {target.name}"] += 1
            continue
        if why := why_licenses_insufficient(history.licenses.get(each.id, ()), totals):
            too_large[why] += 1
            continue
        if target.is_unknown_partition(each.ask.partition):
            strange[each.ask.partition] += 1
        submit_s, walltime_s, run_s, role, leaves_s, fixed_s = found
        qos = each.qos if site is not None and each.qos in site.policy.qos else ""
        job = Job(each.id, submit_s, walltime_s, request, each.user, each.name, each.queue, each.account, qos=qos)
        real_s = each.start_s if isinstance(each, TraceRecord) else None
        drafts.append(
            (TraceJob(job, run_s, real_s), each.ask, role, leaves_s, fixed_s, NEVER if real_s is None else real_s)
        )
    for number, outage in enumerate(replayed.outages):
        begin_s, end_s = max(from_s, outage.begin_s), min(outage.end_s, last_s)
        if begin_s < end_s and begin_s <= last_needed_s:
            ask = UnitsRequest(1, ((target.file.resources[0], 1),), exclusive=True, partition=outage.kind)
            job = Job(-_OUTAGE_NUMBERS_BELOW - number, begin_s, end_s - begin_s, target.request(ask))
            drafts.append((TraceJob(job, end_s - begin_s), ask, OUTAGE, NEVER, begin_s, NEVER))
    left_out.update({f"does not fit: {why}": count for why, count in too_large.items()})
    drafts.sort(key=lambda draft: draft[0].job.submit_s)
    jobs = [draft[0] for draft in drafts]
    if not any(draft[2] == JUDGED for draft in drafts):
        raise InputError(f"{history.path}: no job in the window fits {system.name}: {next(iter(too_large), '')}")
    if strange:
        names = ", ".join(quote_value(name) for name, _ in strange.most_common(MAX_LISTED_NAMES))
        notes.append(
            f"{format_count(strange.total(), 'job names', 'jobs name')} a partition ({names}) "
            f"that {system.name} does not have: these jobs may use any node"
        )
    notes += history.reader.tally.to_sentences(left_out=False)
    license_requests = history.licenses
    licenses = {at: license_requests[item.job.id] for at, item in enumerate(jobs) if item.job.id in license_requests}
    held = (
        (draft[5], max(draft[5], draft[0].job.submit_s) + draft[0].run_s, licenses[at])
        for at, draft in enumerate(drafts) if at in licenses and draft[5] != NEVER
    )  # fmt: skip
    notes += license_notes(licenses.values(), held, totals)
    if site is not None:
        site, jobs = site.with_users_of(jobs)
    roles, leaves, fixed, real = (
        np.fromiter((draft[at] for draft in drafts), np.int64, len(drafts)) for at in (2, 3, 4, 5)
    )
    return WhatIfWindow(
        quote_value(history.path.name), system, dict(history.header), from_s, to_s, history.time_zero_unix_s, zone,
        jobs, [draft[1] for draft in drafts], roles, leaves, fixed, real, site, replayed.guessed,
        dict(sorted(left_out.items(), key=lambda item: -item[1])), tuple(notes),
        LicenseRequestsAndTotals.of(licenses, totals), _find_typical_requests(history, target, from_s, jobs),
    )  # fmt: skip


def _find_typical_requests(
    history: AccountingHistory, target: System, from_s: int, jobs: Iterable[TraceJob]
) -> TypicalRequests | None:
    resources, before = target.cluster.resources, list(_requests_before(history, target, from_s))
    return find_typical_requests(before or (item.job.request for item in jobs), resources)


def _requests_before(history: AccountingHistory, target: System, from_s: int) -> Iterator[Request]:
    for each in history.ran:
        if from_s - TYPICAL_DAYS * DAY_S <= (each.start_s or 0) + each.run_s <= from_s:
            with suppress(InvalidValue):  # does not fit the system
                yield target.request(each.ask)


def _job_window_times(
    each: TraceRecord | UnfinishedJobRecord, from_s: int, to_s: int, needed_s: int, last_s: int
) -> tuple[int, ...] | None:
    """Return a job's arrival, walltime, run time, role, departure and fixed start.

    Return None if the job does not affect the window.
    """
    limit_s = each.walltime_s
    if isinstance(each, UnfinishedJobRecord):
        left_s = last_s if each.left_s is None else each.left_s
        if left_s <= from_s or each.submit_s > needed_s:
            return None
        if each.start_s is None:
            return each.submit_s, limit_s, limit_s, GAVE_UP, max(left_s, each.submit_s + 1), NEVER
        start_s, run_s = each.start_s, max(1, left_s - each.start_s)
        if start_s >= from_s:  # not judged, because its run time is unknown
            role = JUDGED if from_s <= each.submit_s < to_s else LATER if each.submit_s >= to_s else QUEUED
            return each.submit_s, limit_s, run_s, LATER if role == JUDGED else role, NEVER, NEVER
        return from_s, max(1, limit_s - (from_s - start_s)), max(1, left_s - from_s), RUNNING, NEVER, from_s
    assert each.start_s is not None, "each job that ran has a start"
    submit_s, start_s, end_s = each.submit_s, each.start_s, each.start_s + each.run_s
    if end_s <= from_s or submit_s > needed_s:
        return None
    if start_s < from_s:
        elapsed_s = from_s - start_s
        return from_s, max(1, limit_s - elapsed_s), end_s - from_s, RUNNING, NEVER, from_s
    if each.reservation:
        return submit_s, limit_s, each.run_s, RESERVED, NEVER, start_s
    role = QUEUED if submit_s < from_s else JUDGED if submit_s < to_s else LATER
    return submit_s, limit_s, each.run_s, role, NEVER, NEVER


# ------------------------------------------------------------------------------------------ period


def _first_and_last_arrival(history: AccountingHistory) -> tuple[int, int]:
    arrivals = [record.submit_s for record in history.ran]
    return min(arrivals), max(arrivals)


def _find_period(history: AccountingHistory, span: WindowPeriodOptions, zone: str) -> tuple[int, int, list[str]]:
    """Return the window's begin and end (exclusive), and the assumptions made."""
    arrivals = np.sort(np.array([record.submit_s for record in history.ran], np.int64))
    to_s = _parse_option_time(span.to, "--to", history, zone) if span.to else int(arrivals[-1]) + 1
    if span.from_:
        from_s = _parse_option_time(span.from_, "--from", history, zone)
    elif span.days is not None:
        from_s = to_s - round(span.days * DAY_S)
    else:
        from_s = int(arrivals[min(len(arrivals) - 1, int(WARM_UP_SHARE * len(arrivals)))])
        if to_s - from_s > SHORT_WINDOW_DAYS * DAY_S:
            there = _to_local_time(history, from_s, zone)
            midnight = datetime.combine(there.date() + timedelta(days=1), datetime.min.time(), there.tzinfo)
            from_s = int(midnight.timestamp()) - history.time_zero_unix_s
    if not span.to:  # keeps a window after the end of the file valid; it has no jobs
        to_s = max(to_s, from_s + 1)
    require(from_s < to_s, "--from, --to", (span.from_, span.to), "the first must be before the second")
    for at_s in (from_s, to_s):
        _to_local_time(history, at_s, zone)
    notes = []
    if not span.from_ and span.days is None:
        notes.append("The window begins after the first 1 % of the file's jobs, because some earlier jobs are unknown.")
    return from_s, to_s, notes


def _parse_option_time(text: str, option: str, history: AccountingHistory, zone: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=parse_time_zone(zone))
        return int(moment.timestamp()) - history.time_zero_unix_s
    except (ValueError, OverflowError):
        raise InvalidValue(option, text, "must be a date such as 2026-10-01, or a date and a time") from None


def _to_local_time(history: AccountingHistory, at_s: int, zone: str) -> datetime:
    """Return a time of the file as a date. Raise `InvalidValue` if it is outside the calendar."""
    unix_s = at_s + history.time_zero_unix_s
    try:
        return datetime.fromtimestamp(unix_s, parse_time_zone(zone))
    except (ValueError, OverflowError, OSError):
        rule = "must be in the years 1 to 9999, in seconds since 1970: choose the period with --from and --to"
        raise InvalidValue("time", unix_s, rule) from None


def _format_time(history: AccountingHistory, at_s: int, zone: str) -> str:
    return f"{_to_local_time(history, at_s, zone):%Y-%m-%d %H:%M}"


# ------------------------------------------------------------------------------------------ other systems


def move_window_to_system(
    window: WhatIfWindow, file: SystemFile, asks: Sequence[ResourceRequest], queues: Mapping[str, str]
) -> WhatIfWindow:
    """Return the window on another system, with the requests `asks`.

    `queues` maps queue names. Raise `InvalidValue` if a job cannot run on the system.
    """
    target, jobs = System(file, window.header), []
    for item, ask in zip(window.jobs, asks, strict=True):
        job = item.job
        jobs.append(
            replace(item, job=replace(job, request=target.request(ask), queue=queues.get(job.queue, job.queue)))
        )
    return replace(window, system=file, jobs=jobs, asks=list(asks))
