"""Build the values that the bridge's commands print with `--json`.

Times are in seconds: `_unix_s` on this host's clock, `_ago_s` before now, and all others on the cluster's clock. A job
has an id (`job_id`) and a label shown to users (`label`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cpsched.formatting import format_unix_time, is_unknown_time
from cpsched.model import Job, Placement
from cpsched_bridge.cycle_report import IN_FORCE_EVENT, LATE_INTERVALS, STOPPED_EVENT
from cpsched_bridge.errors import BridgeError, UnknownJob
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, ReadinessCheck
from cpsched_bridge.program.preemption_status import read_preemption_status
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import state_paths
from cpsched_bridge.store.boost_ledger import BoostLedger
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.journal_reader import (
    BACKED_OFF_KIND,
    JournalEvent,
    JournalJobRecord,
    UnscheduledJob,
    is_job_id_text,
)
from cpsched_bridge.store.ledger import MANAGED_STATES, LedgerState, ManagedJobEntry
from cpsched_bridge.store.round_records import RoundRecord
from cpsched_bridge.telemetry.reason_kinds import classify_reason, format_reason
from cpsched_bridge.web.job_explanation import explain_missing_array_task

if TYPE_CHECKING:
    from cpsched_bridge.store.round_replay import ReplayedRound

Values = dict[str, Any]
_EVENTS = 8
"""Number of events in the status."""
_SILENT_S = 60
"""Seconds without a round or event after which a bridge counts as not running."""


@dataclass(slots=True)
class RecordedJobFacts:
    """All facts about one job in the ledger and the journal.

    `unreadable` lists errors from unreadable files.
    """

    job_id: int = -1
    entry: ManagedJobEntry | None = None
    ran_s: int | None = None
    """Time at which the ledger last recorded the job as running."""
    record: RoundRecord | None = None
    """The last recorded round."""
    past: JournalJobRecord | None = None
    aside: UnscheduledJob | None = None
    advised: tuple[int, int] | None = None
    """The last boost sent to the cluster, and the cluster time at which it was sent."""
    events: list[JournalEvent] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def was_pending(self) -> bool:
        """Whether the job was pending in the last round."""
        return self.record is not None and any(job.id == self.job_id for job in self.record.queue)

    @property
    def was_running(self) -> bool:
        """Whether the job was running in the last round."""
        return self.record is not None and any(each.job.id == self.job_id for each in self.record.running)


def find_job_facts(text: str, settings: Settings) -> RecordedJobFacts:
    """Return the facts about the job with this id or label. Raise `UnknownJob`."""
    found, behind = RecordedJobFacts(), ""
    try:
        with state_paths.open_ledger(settings, read_only=True) as ledger:
            found.entry = next((e for e in ledger.list_entries() if text in (str(e.job_id), e.label)), None)
            if found.entry is not None:
                history = ledger.read_transitions(found.entry.job_id)
                found.ran_s = next(
                    (at_s for at_s, _, _, after, _ in reversed(history) if after == LedgerState.RUNNING), None
                )
    except BridgeError as error:
        found.unreadable.append(str(error))
    try:
        with state_paths.open_journal(settings) as journal:
            behind = _add_journal_facts(found, text, journal, settings)
    except BridgeError as error:
        found.unreadable.append(str(error))
    if found.entry is None and not (found.was_pending or found.was_running or found.past or found.aside):
        known = behind or "not in the ledger or the journal; `cpsched status` shows how far back they go"
        raise UnknownJob(f"job={text}: {'not in the readable files' if found.unreadable else known}")
    return found


def _add_journal_facts(found: RecordedJobFacts, text: str, journal: Journal, settings: Settings) -> str:
    """Add the journal's facts.

    Return why an array task is missing from the observation, or "".
    """
    found.job_id = find_job_id(text, journal, found.entry)
    found.record = journal.read_round(journal.last_round) if journal.list_rounds(1) else None
    found.past = journal.find_observed_job(str(found.job_id))
    found.aside = next((aside for aside in journal.list_unscheduled_jobs() if aside.job_id == found.job_id), None)
    found.events = journal.list_events(found.job_id, limit=10)
    if found.record is None:
        return ""
    if settings.mode == "advise" and found.was_pending:
        book = BoostLedger(state_paths.boost_ledger_path(settings), read_only=True).by_id
        array = found.record.get_job_name(found.job_id).partition("_")[0]  # pending tasks of an array share an id
        known = book.get(found.job_id) or (book.get(int(array)) if is_job_id_text(array) else None)
        found.advised = None if known is None else (known.points[-1], known.since_s)
    labels = [found.record.get_job_name(job.id) for job in found.record.queue]
    labels += [aside.label for aside in journal.list_unscheduled_jobs()]
    return explain_missing_array_task(text, labels)


def find_job_id(text: str, journal: Journal, entry: ManagedJobEntry | None = None) -> int:
    """Return the id of the job with this id or label, or -1 if it is unknown.

    Search the ledger and the journal.
    """
    if entry is not None:
        return entry.job_id
    named = {aside.label: aside.job_id for aside in journal.list_unscheduled_jobs()}
    if journal.list_rounds(1):
        named |= {label: id for id, label in journal.read_round(journal.last_round).labels.items()}
    if text in named:
        return named[text]
    past = journal.find_observed_job(text)
    return past.job_id if past is not None else int(text) if is_job_id_text(text) else -1


def read_easy_ratios(settings: Settings) -> tuple[Mapping[str, float], list[str]]:
    """Return the last round's `Effort.ratios` and a list of error messages.

    The list contains one message if the journal is unreadable, and is otherwise empty.
    """
    if not state_paths.journal_path(settings).exists():
        return {}, []
    try:
        with state_paths.open_journal(settings) as journal:
            return journal.read_round(journal.last_round).effort.ratios if journal.list_rounds(1) else {}, []
    except BridgeError as error:
        return {}, [str(error)]


def job_explanation_to_json(text: str, settings: Settings, answer: Mapping[str, Any] | None = None) -> Values:
    """Return the values for `cpsched why --json`, with the `answer` of the running bridge. Raise `UnknownJob`."""
    found = find_job_facts(text, settings)
    record, entry = found.record, found.entry
    waiting = [_queued_job_to_json(job, record) for job in record.queue if job.id == found.job_id] if record else []
    running = [each for each in _running_jobs_to_json(record) if each["job_id"] == found.job_id] if record else []
    return {
        "job": text,
        "bridge": answer,
        "job_id": found.job_id if entry is None else entry.job_id,
        "round": None if record is None else record.number,
        "now_s": None if record is None else record.now_s,
        "waiting": waiting[0] if waiting else None,
        "running": running[0] if running else None,
        "past": asdict(found.past) if found.past and not waiting and not running else None,
        "aside": asdict(found.aside) if found.aside else None,
        "advised": None if found.advised is None else dict(zip(("points", "since_s"), found.advised, strict=True)),
        "ledger": None if entry is None else asdict(entry) | {"nodes": dict(entry.nodes), "ran_s": found.ran_s},
        "events": [event_to_json(event, lambda _: text) for event in found.events],
        "unreadable": found.unreadable,
    }


def recorded_round_to_json(record: RoundRecord, note: str) -> Values:
    """Return the values for `cpsched journal show --json`.

    `note` is from `add_replayed_explanation`.
    """
    sent = [{"command": kind, "label": record.get_job_name(o.job_id), **asdict(o)} for kind, o in record.outcomes]
    return {
        "round": record.number,
        "at_unix_s": record.at_unix_s,
        "now_s": record.now_s,
        "mode": record.mode,
        "policy": asdict(record.policy),
        "failure": record.failure,
        "effort": asdict(record.effort),
        "seconds": dict(record.seconds),
        "note": note,
        "queue": [_queued_job_to_json(job, record) for job in record.queue],
        "running": list(_running_jobs_to_json(record)),
        "sent": sent,
    }


def _queued_job_to_json(job: Job, record: RoundRecord) -> Values:
    wait, starts = record.waits.get(job.id), job.id in record.starts
    return {
        "job_id": job.id,
        "label": record.get_job_name(job.id),
        "user": job.user,
        "position": 1 + [each.id for each in record.queue].index(job.id),
        "units": job.request.units,
        "per_unit": dict(zip(record.cluster.resources, job.request.per_unit, strict=True)),
        "submit_s": _get_known_submit_s(job, record),
        "walltime_s": _get_known_duration_s(job.walltime_s),
        "estimate_s": _get_known_duration_s(record.estimates[job.id]),
        "starts_on": _map_units_by_node(record.starts[job.id], record) if starts else None,
        "expected_s": record.now_s if starts else record.plan.get(job.id),
        "kind": None if wait is None else classify_reason(wait.reason),
        "reason": None if wait is None else format_reason(wait.reason, job.request.distinct),
        "behind": [] if wait is None else [record.get_job_name(id) for id in wait.behind],
    }


def _running_jobs_to_json(record: RoundRecord) -> Iterator[Values]:
    for each in record.running:
        duration_s = _get_known_duration_s(record.estimates[each.job.id])
        yield {
            "job_id": each.job.id,
            "label": record.get_job_name(each.job.id),
            "user": each.job.user,
            "submit_s": _get_known_submit_s(each.job, record),
            "start_s": each.start_s,
            "expected_end_s": None if duration_s is None else each.start_s + duration_s,
            "nodes": _map_units_by_node(each.placement, record),
        }


def _get_known_submit_s(job: Job, record: RoundRecord) -> int | None:
    return None if is_unknown_time(job.submit_s, record.now_s) else job.submit_s


def _get_known_duration_s(duration_s: int) -> int | None:
    """Return a limit or an estimate, or None for a job without a limit."""
    return None if duration_s == UNLIMITED_WALLTIME_S else duration_s


def _map_units_by_node(placement: Placement, record: RoundRecord) -> Mapping[str, int]:
    """Return a placement's units by node name."""
    return {record.cluster.node_names[node]: units for node, units in placement}


def check_to_json(check: ReadinessCheck) -> Values:
    """Return the values for one check in `cpsched doctor --json`."""
    return {
        "name": check.name,
        "ok": check.ok,
        "detail": check.detail,
        "mend": check.fix,
        "required": check.required,
        "may_come": check.may_pass_later,
        "mode": check.mode,
    }


def event_to_json(event: JournalEvent, name_of: Callable[[int], str]) -> Values:
    """Return the values for an event, including its job's label."""
    return asdict(event) | {"label": None if event.job_id is None else name_of(event.job_id)}


def replayed_round_to_json(found: ReplayedRound) -> Values:
    """Return the values for a replayed round."""
    differences, skipped = list(found.differences), found.skipped or None
    return {"round": found.number, "same": found.is_same_decision, "differences": differences, "skipped": skipped}


def list_events(settings: Settings, last: int, job: str, kind: str) -> list[Values]:
    """Return the values for `cpsched events --json`."""
    with state_paths.open_journal(settings) as journal:
        found = journal.list_events(find_job_id(job, journal) if job else None, last, kind)
        return [event_to_json(event, journal.get_job_name) for event in found]


def describe_stop(settings: Settings) -> str:
    """Return since when and why the bridge is not running, or "" if it runs or if the journal cannot be read."""
    try:
        with state_paths.open_journal(settings) as journal:
            last = journal.find_last_activity()
    except BridgeError:
        return ""
    begun = state_paths.startup_progress_file(settings).read_step()
    if last is None or begun is not None:
        return ""
    at = f"{format_unix_time(last.at_unix_s)} UTC"
    if last.kind == STOPPED_EVENT:
        return f"stopped at {at}: {last.detail}"
    silent_s = time.time() - last.at_unix_s
    if silent_s > max(_SILENT_S, LATE_INTERVALS * settings.cycle.interval_s):
        return f"killed or stuck since {at}"
    return ""


def collect_status(settings: Settings) -> Values:
    """Return the values for `cpsched status --json`.

    Unreadable parts are null, and `unreadable` lists the errors.
    """
    begun = state_paths.startup_progress_file(settings).read_step()
    found: Values = {
        "configured_mode": settings.mode,
        "stopped": describe_stop(settings) or None,
        "paused": state_paths.pause_file(settings).read_reason() or None,
        "paused_ago_s": state_paths.pause_file(settings).read_age_s(),
        "remembered": list_remembered_facts(settings),
        "beginning": None if begun is None else {"doing": begun[0], "ago_s": begun[1]},
        "last_good_cycle_ago_s": None,
        **dict.fromkeys(
            ("mode", "transport", "last_round", "journal", "ledger", "held", "put_off", "left", "preemption", "events")
        ),
        "unreadable": [],
    }
    with contextlib.suppress(OSError):
        found["last_good_cycle_ago_s"] = state_paths.heartbeat_age_s(settings)
    for part in (_read_ledger_status, _read_preemption_status, _read_journal_status):
        try:
            found |= part(settings)
        except BridgeError as error:
            found["unreadable"].append(str(error))
    return found


def list_remembered_facts(settings: Settings) -> list[Values]:
    """Return what the running bridge remembers against jobs, users and groups."""
    now_s = time.time()
    return [
        {"whom": fact.whom, "what": fact.what, "ago_s": max(0.0, now_s - fact.since_unix_s)}
        for fact in state_paths.memory_file(settings).read()
    ]


def _read_ledger_status(settings: Settings) -> Values:
    with state_paths.open_ledger(settings, read_only=True) as ledger:
        counts = {state: count for state, count in ledger.count_jobs_by_state().items() if count}
    return {"ledger": counts, "held": sum(counts.get(state, 0) for state in MANAGED_STATES)}


def _read_preemption_status(settings: Settings) -> Values:
    status = read_preemption_status(settings)
    return {"preemption": None if status is None else asdict(status)}


def _read_journal_status(settings: Settings) -> Values:
    with state_paths.open_journal(settings) as journal:
        first, size = journal.find_first_round(), journal.compute_used_size_bytes()
        asides = journal.list_unscheduled_jobs(BACKED_OFF_KIND)
        return {
            "mode": next((event_to_json(event, str) for event in journal.list_events(limit=1, kind="mode")), None),
            "transport": next(
                (event_to_json(event, str) for event in journal.list_events(limit=1, kind="transport")), None
            ),
            "last_round": next(
                (asdict(line) | {"ago_s": time.time() - line.at_unix_s} for line in journal.list_rounds(1)), None
            ),
            "journal": None
            if first is None
            else {
                "first_round": first[0],
                "first_at_unix_s": first[1],
                "bytes": size,
                "max_mib": settings.journal.max_mib,
            },
            "put_off": {"jobs": len(asides), "users": len({aside.user for aside in asides})},
            "left": len(journal.list_unscheduled_jobs("unsupported")),
            "events": [
                event_to_json(event, journal.get_job_name)
                for event in journal.list_events(limit=_EVENTS + 1)
                if event.kind != IN_FORCE_EVENT  # about 1,100 characters; `cpsched config` shows them
            ][-_EVENTS:],
        }
