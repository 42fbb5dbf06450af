"""Report what the bridge's files say about a job, a round, events and the bridge's status.

The commands print a report as text or, with `--json`, as JSON. Times are in seconds: `_unix_s` on this host's clock,
`_ago_s` before now, and all others on the cluster's clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cpsched.formatting import format_unix_time
from cpsched.model import to_pending_reason
from cpsched_bridge.cycle_report import LATE_INTERVALS, SETTINGS_EVENT, STOPPED_EVENT
from cpsched_bridge.effective_config import EffectiveConfig, EffectiveSetting
from cpsched_bridge.errors import BridgeError, UnknownJob
from cpsched_bridge.program.state_checks import PreemptionStatus, read_preemption_status
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import state_paths
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.journal_reader import (
    BACKOFF_KIND,
    JournalEvent,
    JournalJobRecord,
    RoundSummary,
    UnscheduledJob,
    is_job_id_text,
)
from cpsched_bridge.store.ledger import MANAGED_STATES, LedgerState, ManagedJobEntry
from cpsched_bridge.store.lock_and_request_files import (
    LeadershipFile,
    LeadershipStatus,
    MemoryFile,
    PauseFile,
    RememberedFact,
    StartupProgressFile,
)
from cpsched_bridge.store.round_records import RoundRecord
from cpsched_bridge.telemetry.reason_kinds import UNMANAGED
from cpsched_bridge.views.job_explanation import Explanation, explain_job, explain_missing_array_task
from cpsched_bridge.views.job_view import JobState, JobView, job_to_json, view_recorded_jobs

if TYPE_CHECKING:
    from cpsched_bridge.store.round_replay import ReplayedRound

Values = dict[str, Any]
_EVENTS = 8
"""Number of events in the status."""
_SILENT_S = 60
"""Seconds without a round or event after which a bridge counts as not running."""


@dataclass(frozen=True, slots=True)
class SentBoost:
    """The last boost that the bridge sent to the cluster."""

    value: int
    since_s: int


@dataclass(frozen=True, slots=True)
class EventReport(JournalEvent):
    """An event of the journal, with its job's label."""

    label: str | None


@dataclass(slots=True)
class JobReport:
    """What the bridge's files say about one job."""

    job: str
    """The id or label that was requested."""
    bridge: Mapping[str, Any] | None = None
    """The answer of the running bridge."""
    job_id: int = -1
    entry: ManagedJobEntry | None = None
    ran_s: int | None = None
    """Time at which the ledger last recorded the job as running."""
    record: RoundRecord | None = None
    """The last recorded round."""
    explanation: Explanation | None = None
    """The explanation from that round, if the job was in it."""
    past: JournalJobRecord | None = None
    boost: SentBoost | None = None
    events: list[EventReport] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Errors from unreadable files."""

    @property
    def recorded_state(self) -> JobState:
        """The job's state in the last recorded round."""
        return JobState.UNKNOWN if self.explanation is None else self.explanation.job.state

    def to_json(self) -> Values:
        """Return the value that `cpsched why --json` prints."""
        ended = self.recorded_state in (JobState.ENDED, JobState.UNKNOWN)
        return {
            "job": self.job,
            "bridge": self.bridge,
            "job_id": self.job_id,
            "round": None if self.record is None else self.record.number,
            "now_s": None if self.record is None else self.record.now_s,
            "recorded": None if self.explanation is None else job_to_json(self.explanation.job),
            "past": asdict(self.past) if self.past and ended else None,
            "boost": None if self.boost is None else asdict(self.boost),
            "ledger": None
            if self.entry is None
            else asdict(self.entry) | {"nodes": dict(self.entry.nodes), "ran_s": self.ran_s},
            "events": list(map(asdict, self.events)),
            "unreadable": self.unreadable,
        }


def report_job(text: str, settings: Settings) -> JobReport:
    """Return the report on the job with this id or label. Raise `UnknownJob`."""
    report, missing_task = JobReport(text), ""
    try:
        with state_paths.open_ledger(settings, read_only=True) as ledger:
            report.entry = next((e for e in ledger.list_entries() if text in (str(e.job_id), e.label)), None)
            if report.entry is not None:
                history = ledger.read_transitions(report.entry.job_id)
                running = (at_s for at_s, _, _, after, _ in reversed(history) if after == LedgerState.RUNNING)
                report.job_id, report.ran_s = report.entry.job_id, next(running, None)
    except BridgeError as error:
        report.unreadable.append(str(error))
    try:
        with state_paths.open_journal(settings) as journal:
            missing_task = _add_journal_facts(report, journal, settings)
    except BridgeError as error:
        report.unreadable.append(str(error))
    if report.entry is None and report.past is None and report.explanation is None:
        known = missing_task or "not in the ledger or the journal; `cpsched status` shows how far back they go"
        raise UnknownJob(f"job={text}: {'not in the readable files' if report.unreadable else known}")
    return report


def _add_journal_facts(report: JobReport, journal: Journal, settings: Settings) -> str:
    """Add the journal's facts.

    Return why an array task is missing from the observation, or "".
    """
    report.job_id = find_job_id(report.job, journal, report.entry)
    report.past = journal.find_observed_job(str(report.job_id))
    report.events = [_report_event(event, report.job) for event in journal.list_events(report.job_id, limit=10)]
    if not journal.list_rounds(1):
        return ""
    record = report.record = journal.read_round(journal.last_round)
    unscheduled = journal.list_unscheduled_jobs()
    jobs = replace(
        view_recorded_jobs(record),
        unscheduled=[_view_unscheduled_job(job) for job in unscheduled if job.job_id == report.job_id],
        ended=[] if report.past is None else _view_past_job(report.past),
    )
    explanation = explain_job(jobs, str(report.job_id))
    report.explanation = None if explanation.job.state is JobState.UNKNOWN else explanation
    if settings.mode == "advise" and report.recorded_state is JobState.WAITING:
        boosts = state_paths.read_boosts(settings)
        array = record.get_job_name(report.job_id).partition("_")[0]  # pending tasks of an array share an id
        boost = boosts.get(report.job_id) or (boosts.get(int(array)) if is_job_id_text(array) else None)
        report.boost = None if boost is None else SentBoost(boost.points[-1], boost.since_s)
    labels = [job.label for job in jobs.waiting] + [job.label for job in unscheduled]
    return explain_missing_array_task(report.job, labels)


def _view_unscheduled_job(job: UnscheduledJob) -> JobView:
    reason, label = to_pending_reason(job.reason), job.label or str(job.job_id)
    return JobView(id=job.job_id, label=label, state=JobState.UNSCHEDULED, user=job.user, kind=job.kind, reason=reason)


def _view_past_job(past: JournalJobRecord) -> list[JobView]:
    if past.end_s is None:
        return []
    label = past.label or str(past.job_id)
    return [JobView(
        id=past.job_id, label=label, state=JobState.ENDED, user=past.user, start_s=past.start_s, end_s=past.end_s
    )]  # fmt: skip


def find_job_id(text: str, journal: Journal, entry: ManagedJobEntry | None = None) -> int:
    """Return the id of the job with this id or label, or -1 if it is unknown.

    Search the ledger and the journal.
    """
    if entry is not None:
        return entry.job_id
    named = {job.label: job.job_id for job in journal.list_unscheduled_jobs()}
    if journal.list_rounds(1):
        named |= {label: id for id, label in journal.read_round(journal.last_round).labels.items()}
    if text in named:
        return named[text]
    past = journal.find_observed_job(text)
    return past.job_id if past is not None else int(text) if is_job_id_text(text) else -1


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """Every effective setting, and the results of recent jobs relative to EASY."""

    policy: str
    fallback: str | None
    settings: Sequence[EffectiveSetting]
    easy_targets: Mapping[str, float]
    easy_ratios: Mapping[str, float]
    unreadable: list[str]
    """One error message if the journal cannot be read."""


def report_config(effective: EffectiveConfig, settings: Settings) -> ConfigReport:
    """Return the effective settings with the last round's ratios to EASY."""
    ratios: Mapping[str, float] = {}
    unreadable: list[str] = []
    if state_paths.journal_path(settings).exists():
        try:
            with state_paths.open_journal(settings) as journal:
                if journal.list_rounds(1):
                    ratios = journal.read_round(journal.last_round).effort.ratios
        except BridgeError as error:
            unreadable = [str(error)]
    fallback = None if effective.fallback is None else str(effective.fallback)
    return ConfigReport(
        str(effective.policy), fallback, effective.rows, effective.easy_ratio_targets, ratios, unreadable
    )


@dataclass(frozen=True, slots=True)
class RoundReport:
    """A recorded round, with the plan and the reasons of its jobs."""

    record: RoundRecord
    note: str
    """Where the plan and the reasons come from, if they are not stored."""

    def to_json(self) -> Values:
        """Return the value that `cpsched journal show --json` prints."""
        record, jobs = self.record, view_recorded_jobs(self.record)
        sent = [{"command": kind, "label": record.get_job_name(o.job_id), **asdict(o)} for kind, o in record.outcomes]
        return {
            "round": record.number,
            "at_unix_s": record.at_unix_s,
            "now_s": record.now_s,
            "mode": record.mode,
            "policy": asdict(record.policy),
            "failure": record.failure,
            "statistics": asdict(record.effort),
            "seconds": dict(record.seconds),
            "note": self.note,
            "waiting": list(map(job_to_json, jobs.waiting)),
            "running": list(map(job_to_json, jobs.running)),
            "sent": sent,
        }


def report_round(record: RoundRecord) -> RoundReport:
    """Return the round with its plan and reasons. Replay the decision if they are no longer stored."""
    if record.explained or record.failure:
        return RoundReport(record, "")
    from cpsched_bridge.store.round_replay import replay_round
    from cpsched_sim.file_io import read_setting_file

    again = replay_round(record, read_setting_file)
    if not again.is_same_decision:
        why = again.skipped or again.differences[0]
        return RoundReport(record, f"plan and reasons are no longer stored, and the decision cannot be replayed: {why}")
    return RoundReport(
        replace(record, plan=again.plan, waits=again.waits), "plan and reasons: from a replay with the same result"
    )


def replay_recorded_rounds(journal: Journal, numbers: Sequence[int]) -> list[ReplayedRound]:
    """Repeat recorded decisions and return the results."""
    from cpsched_bridge.store.round_replay import replay_round
    from cpsched_sim.file_io import read_setting_file

    return [replay_round(journal.read_round(number), read_setting_file) for number in numbers]


def replays_to_json(replays: Sequence[ReplayedRound]) -> list[Values]:
    """Return the value that `cpsched journal replay --json` prints."""
    return [
        {
            "round": replay.number,
            "same": replay.is_same_decision,
            "differences": list(replay.differences),
            "skipped": replay.skipped or None,
        }
        for replay in replays
    ]


def report_events(settings: Settings, last: int, job: str, kind: str) -> list[EventReport]:
    """Return the newest events, oldest first, of a job and of a kind if these are given."""
    with state_paths.open_journal(settings) as journal:
        events = journal.list_events(find_job_id(job, journal) if job else None, last, kind)
        return [_report_event(event, _get_event_label(event, journal)) for event in events]


def _report_event(event: JournalEvent, label: str | None = None) -> EventReport:
    return EventReport(**asdict(event), label=label)


def _get_event_label(event: JournalEvent, journal: Journal) -> str | None:
    return None if event.job_id is None else journal.get_job_name(event.job_id)


def describe_stop(settings: Settings) -> str:
    """Return since when and why the bridge is not running, or "" if it runs or if the journal cannot be read."""
    try:
        with state_paths.open_journal(settings) as journal:
            last = journal.find_last_activity()
    except BridgeError:
        return ""
    begun = StartupProgressFile(settings.state_dir).read_step()
    if last is None or begun is not None:
        return ""
    at = f"{format_unix_time(last.at_unix_s)} UTC"
    if last.kind == STOPPED_EVENT:
        return f"stopped at {at}: {last.detail}"
    silent_s = time.time() - last.at_unix_s
    if silent_s > max(_SILENT_S, LATE_INTERVALS * settings.cycle.interval_s):
        return f"killed or stuck since {at}"
    return ""


@dataclass(frozen=True, slots=True)
class StartupStep:
    """What a bridge does before its first cycle."""

    step: str
    ago_s: float


@dataclass(frozen=True, slots=True)
class JournalExtent:
    """How far back the journal goes, and its size."""

    first_round: int
    first_at_unix_s: float
    bytes: int
    max_mib: float


@dataclass(frozen=True, slots=True)
class BackoffCounts:
    """The jobs in backoff after failed starts, and their users."""

    jobs: int
    users: int


@dataclass(slots=True)
class StatusReport:
    """The status of a bridge. A part is None if its file cannot be read."""

    configured_mode: str
    stopped: str | None = None
    """Since when and why the bridge is not running."""
    paused: str | None = None
    """Why the bridge is paused."""
    paused_ago_s: float | None = None
    remembered: list[RememberedFact] = field(default_factory=list)
    leadership: LeadershipStatus | None = None
    """Which bridge leads, as of the last cycle."""
    startup: StartupStep | None = None
    """What the bridge does before its first cycle."""
    last_good_cycle_ago_s: float | None = None
    heartbeat_error: str | None = None
    """Why the time of the last good cycle cannot be read."""
    mode: EventReport | None = None
    """The last change of the mode, which may differ from the settings."""
    transport: EventReport | None = None
    last_round: RoundSummary | None = None
    last_round_ago_s: float | None = None
    journal: JournalExtent | None = None
    ledger: dict[str, int] | None = None
    """Jobs by state."""
    held: int | None = None
    backoff: BackoffCounts | None = None
    unmanaged: int | None = None
    preemption: PreemptionStatus | None = None
    """Preemptions, if the bridge chooses victims."""
    events: list[EventReport] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Errors from unreadable files."""


def report_status(settings: Settings) -> StatusReport:
    """Return the bridge's status."""
    pause, step = PauseFile(settings.state_dir), StartupProgressFile(settings.state_dir).read_step()
    status = StatusReport(
        settings.mode,
        stopped=describe_stop(settings) or None,
        paused=pause.read_reason() or None,
        paused_ago_s=pause.read_age_s(),
        remembered=MemoryFile(settings.state_dir).read(),
        leadership=LeadershipFile(settings.state_dir).read(),
        startup=None if step is None else StartupStep(*step),
    )
    try:
        status.last_good_cycle_ago_s = state_paths.heartbeat_age_s(settings)
    except OSError as error:
        status.heartbeat_error = error.strerror or str(error)
    for add_part in (_add_ledger_status, _add_preemption_status, _add_journal_status):
        try:
            add_part(status, settings)
        except BridgeError as error:
            status.unreadable.append(str(error))
    return status


def _add_ledger_status(status: StatusReport, settings: Settings) -> None:
    with state_paths.open_ledger(settings, read_only=True) as ledger:
        status.ledger = {state: count for state, count in ledger.count_jobs_by_state().items() if count}
    status.held = sum(status.ledger.get(state, 0) for state in MANAGED_STATES)


def _add_preemption_status(status: StatusReport, settings: Settings) -> None:
    status.preemption = read_preemption_status(settings)


def _add_journal_status(status: StatusReport, settings: Settings) -> None:
    with state_paths.open_journal(settings) as journal:
        if first := journal.find_first_round():
            status.journal = JournalExtent(*first, journal.compute_used_size_bytes(), settings.journal.max_mib)
        if rounds := journal.list_rounds(1):
            status.last_round, status.last_round_ago_s = rounds[0], time.time() - rounds[0].at_unix_s
        for event in journal.list_events(limit=1, kind="mode"):
            status.mode = _report_event(event)
        for event in journal.list_events(limit=1, kind="transport"):
            status.transport = _report_event(event)

        backed_off = journal.list_unscheduled_jobs(BACKOFF_KIND)
        status.backoff = BackoffCounts(len(backed_off), len({job.user for job in backed_off}))
        status.unmanaged = len(journal.list_unscheduled_jobs(UNMANAGED))
        status.events = [
            _report_event(event, _get_event_label(event, journal))
            for event in journal.list_events(limit=_EVENTS + 1)
            if event.kind != SETTINGS_EVENT  # about 1,100 characters; `cpsched config` shows them
        ][-_EVENTS:]
