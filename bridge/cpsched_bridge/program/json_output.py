"""Values of the bridge's commands with `--json`.

Times are in seconds: `_unix_s` by this host's clock, other seconds by the cluster's, `_ago_s` before now.
A job has a number (`job_id`) and the name that users see (`label`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cpsched.model import Job, Placement
from cpsched_bridge.errors import BridgeError, UnknownJob
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import state_paths
from cpsched_bridge.store.boost_ledger import BoostLedger
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.journal_reader import BACKED_OFF, JournalEvent, JournalJobRecord, UnscheduledJob, is_id
from cpsched_bridge.store.ledger import KEPT, LedgerEntry, LedgerState
from cpsched_bridge.store.round_records import RoundRecord
from cpsched_bridge.telemetry.reason_kinds import kind_of, text_of
from cpsched_bridge.web.explain import behind_its_array

if TYPE_CHECKING:
    from cpsched_bridge.store.round_replay import ReplayedRound

Values = dict[str, Any]


@dataclass(slots=True)
class RecordedJobFacts:
    """Everything that ledger and journal contain on one job, and the errors of unreadable files."""

    job_id: int = -1
    entry: LedgerEntry | None = None
    ran_s: int | None = None
    """When the ledger last recorded it as running."""
    record: RoundRecord | None = None
    """The last round."""
    past: JournalJobRecord | None = None
    aside: UnscheduledJob | None = None
    advised: tuple[int, int] | None = None
    """The last boost sent to the cluster, and its time."""
    events: list[JournalEvent] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def queued(self) -> bool:
        """Whether the job was pending in the last round."""
        return self.record is not None and any(job.id == self.job_id for job in self.record.queue)

    @property
    def is_running(self) -> bool:
        """Whether the job was running in the last round."""
        return self.record is not None and any(each.job.id == self.job_id for each in self.record.running)


def job_facts(text: str, settings: Settings) -> RecordedJobFacts:
    """Collect the facts of the job with this name. Raise `UnknownJob` if there are none."""
    found, behind = RecordedJobFacts(), ""
    try:
        with state_paths.opened_ledger(settings, read_only=True) as ledger:
            found.entry = next((e for e in ledger.entries() if text in (str(e.job_id), e.label)), None)
            if found.entry is not None:
                history = ledger.history(found.entry.job_id)
                found.ran_s = next(
                    (at_s for at_s, _, _, after, _ in reversed(history) if after == LedgerState.RUNNING), None
                )
    except BridgeError as error:
        found.unreadable.append(str(error))
    try:
        with state_paths.opened_journal(settings) as journal:
            behind = _look_up(found, text, journal, settings)
    except BridgeError as error:
        found.unreadable.append(str(error))
    if found.entry is None and not (found.queued or found.is_running or found.past or found.aside):
        known = behind or "neither ledger nor journal knows it; `cpsched status` says how far back they go"
        raise UnknownJob(f"job={text}: {'not in what can be read' if found.unreadable else known}")
    return found


def _look_up(found: RecordedJobFacts, text: str, journal: Journal, settings: Settings) -> str:
    """Add the journal's facts. Return why a pending array task is not in the observation, if that is so."""
    found.job_id = job_id_of(text, journal, found.entry)
    found.record = journal.read(journal.last_round) if journal.lines(1) else None
    found.past = journal.past(str(found.job_id))
    found.aside = next((aside for aside in journal.asides() if aside.job_id == found.job_id), None)
    found.events = journal.events(found.job_id, limit=10)
    if found.record is None:
        return ""
    if settings.mode == "advise" and found.queued:
        book = BoostLedger.readable(state_paths.advice_path(settings)).by_id
        array = found.record.name_of(found.job_id).partition("_")[0]  # pending tasks of an array share a number
        known = book.get(found.job_id) or (book.get(int(array)) if is_id(array) else None)
        found.advised = None if known is None else (known.points[-1], known.since_s)
    return behind_its_array(text, [found.record.name_of(job.id) for job in found.record.queue])


def job_id_of(text: str, journal: Journal, entry: LedgerEntry | None = None) -> int:
    """Return the number of the job with this name in the ledger, the last round, or earlier; -1 if none."""
    if entry is not None:
        return entry.job_id
    named = {aside.label: aside.job_id for aside in journal.asides()}
    if journal.lines(1):
        named |= {label: id for id, label in journal.read(journal.last_round).labels.items()}
    if text in named:
        return named[text]
    past = journal.past(text)
    return past.job_id if past is not None else int(text) if is_id(text) else -1


def why(text: str, settings: Settings) -> Values:
    """Return `cpsched why --json`. Raise `UnknownJob`."""
    found = job_facts(text, settings)
    record, entry = found.record, found.entry
    waiting = [_queued(job, record) for job in record.queue if job.id == found.job_id] if record else []
    running = [each for each in _running(record) if each["job_id"] == found.job_id] if record else []
    return {
        "job": text,
        "job_id": found.job_id if entry is None else entry.job_id,
        "round": None if record is None else record.number,
        "now_s": None if record is None else record.now_s,
        "waiting": waiting[0] if waiting else None,
        "running": running[0] if running else None,
        "past": asdict(found.past) if found.past and not waiting and not running else None,
        "aside": asdict(found.aside) if found.aside else None,
        "advised": None if found.advised is None else dict(zip(("points", "since_s"), found.advised, strict=True)),
        "ledger": None if entry is None else asdict(entry) | {"nodes": dict(entry.nodes), "ran_s": found.ran_s},
        "events": [_event(event, lambda _: text) for event in found.events],
        "unreadable": found.unreadable,
    }


def round_of(record: RoundRecord, note: str) -> Values:
    """Return `cpsched journal show --json`; `note` names the source of plan and reasons if not the journal."""
    sent = [{"command": kind, "label": record.name_of(o.job_id), **asdict(o)} for kind, o in record.outcomes]
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
        "queue": [_queued(job, record) for job in record.queue],
        "running": list(_running(record)),
        "sent": sent,
    }


def _queued(job: Job, record: RoundRecord) -> Values:
    wait, starts = record.waits.get(job.id), job.id in record.starts
    return {
        "job_id": job.id,
        "label": record.name_of(job.id),
        "user": job.user,
        "position": 1 + [each.id for each in record.queue].index(job.id),
        "units": job.request.units,
        "per_unit": dict(zip(record.cluster.resources, job.request.per_unit, strict=True)),
        "submit_s": job.submit_s,
        "walltime_s": job.walltime_s,
        "estimate_s": record.estimates[job.id],
        "starts_on": _nodes(record.starts[job.id], record) if starts else None,
        "expected_s": record.now_s if starts else record.plan.get(job.id),
        "kind": None if wait is None else kind_of(wait.reason),
        "reason": None if wait is None else text_of(wait.reason, job.request.distinct),
        "behind": [] if wait is None else [record.name_of(id) for id in wait.behind],
    }


def _running(record: RoundRecord) -> Iterator[Values]:
    for each in record.running:
        yield {
            "job_id": each.job.id,
            "label": record.name_of(each.job.id),
            "user": each.job.user,
            "submit_s": each.job.submit_s,
            "start_s": each.start_s,
            "expected_end_s": each.start_s + record.estimates[each.job.id],
            "nodes": _nodes(each.placement, record),
        }


def _nodes(placement: Placement, record: RoundRecord) -> Mapping[str, int]:
    """Return units by node name."""
    return {record.cluster.node_names[node]: units for node, units in placement}


def _event(event: JournalEvent, name_of: Callable[[int], str]) -> Values:
    return asdict(event) | {"label": None if event.job_id is None else name_of(event.job_id)}


def replay_of(found: ReplayedRound) -> Values:
    """A round that was decided again."""
    differences, skipped = list(found.differences), found.skipped or None
    return {"round": found.number, "same": found.same, "differences": differences, "skipped": skipped}


def events(settings: Settings, last: int, job: str, kind: str) -> list[Values]:
    """Return `cpsched events --json`."""
    with state_paths.opened_journal(settings) as journal:
        found = journal.events(job_id_of(job, journal) if job else None, last, kind)
        return [_event(event, journal.name_of) for event in found]


def status(settings: Settings) -> Values:
    """Return `cpsched status --json`. Unreadable parts are null, with the errors in `unreadable`."""
    begun = state_paths.beginning_file(settings).told()
    found: Values = {
        "configured_mode": settings.mode,
        "paused": state_paths.pause_file(settings).reason() or None,
        "beginning": None if begun is None else {"doing": begun[0], "ago_s": begun[1]},
        "last_good_cycle_ago_s": None,
        **dict.fromkeys(("mode", "transport", "last_round", "journal", "ledger", "held", "put_off", "left", "events")),
        "unreadable": [],
    }
    with contextlib.suppress(OSError):
        found["last_good_cycle_ago_s"] = state_paths.heartbeat_age_s(settings)
    for part in (_of_ledger, _of_journal):
        try:
            found |= part(settings)
        except BridgeError as error:
            found["unreadable"].append(str(error))
    return found


def _of_ledger(settings: Settings) -> Values:
    with state_paths.opened_ledger(settings, read_only=True) as ledger:
        counts = {state: count for state, count in ledger.counts().items() if count}
    return {"ledger": counts, "held": sum(counts.get(state, 0) for state in KEPT)}


def _of_journal(settings: Settings) -> Values:
    with state_paths.opened_journal(settings) as journal:
        first, size = journal.first_round(), journal.size_bytes()
        asides = journal.asides(BACKED_OFF)
        return {
            "mode": next((_event(event, str) for event in journal.events(limit=1, kind="mode")), None),
            "transport": next((_event(event, str) for event in journal.events(limit=1, kind="transport")), None),
            "last_round": next(
                (asdict(line) | {"ago_s": time.time() - line.at_unix_s} for line in journal.lines(1)), None
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
            "left": len(journal.asides("unsupported")),
            "events": [_event(event, journal.name_of) for event in journal.events(limit=8)],
        }
