"""Preempt the running jobs that lose the least work, and start the preemptor.

The ledger records each preemption before a victim is stopped. In every cycle, even after a crash, the observation alone
determines the next step. The step is to stop a victim that still runs, to start the preemptor, or to close the
preemption. `docs/cycle.md` lists the cases. If the bridge does not choose victims for a job, Slurm may preempt for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from cpsched.formatting import format_count
from cpsched.model import Job, PendingCode, PendingReason, Placement, RunningJob
from cpsched.site.preemption_plans import verify_preemption
from cpsched_bridge.cycle.cluster_state import ClusterReading, SelectedPreemptions
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder, describe_failure
from cpsched_bridge.cycle_report import BridgeRole
from cpsched_bridge.ports import (
    Backend,
    Hold,
    Observation,
    PendingJob,
    PreemptionOffer,
    PreemptionOptions,
    PreemptionUnderWay,
    SupportsPreemption,
)
from cpsched_bridge.settings import PreemptionSettings, Settings
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import LedgerState, ManagedJobEntry
from cpsched_bridge.store.state_file import StateFile
from cpsched_bridge.store.state_tables import PreemptionEntry, PreemptionLedger

COMMAND_KIND = "preempt"
"""Name of the command in the journal and the metrics."""
VICTIMS_END_S = 60
"""Seconds that victims may take to end, or twice `KillWait` if that is longer. Then `start.timeout_s` begins."""
PAUSE_S = 600
"""Seconds without new preemptions after a preemption whose job did not run in time."""
REPEAT_S = 10
"""Seconds after which a victim that still runs is stopped again."""
HOUR_S = 3600
WAITS_FOR_VICTIMS = PendingReason(PendingCode.OTHER, ("the jobs stopped for it are ending",))
"""Why a preemptor waits if an earlier process decided the preemption."""


@dataclass(slots=True)
class PreemptionExecutor:
    """A component that carries out preemptions in control mode."""

    backend: SupportsPreemption
    ledger: PreemptionLedger
    settings: PreemptionSettings
    start_timeout_s: int
    """Seconds from the end of the victims until the job must run."""
    keep_s: int = 30 * 86_400
    """Seconds for which closed preemptions are kept."""
    _offers: dict[int, PreemptionOffer] = field(default_factory=dict)
    """The verified offers of this cycle for open and new preemptions, by job id."""
    _reasons: dict[int, PendingReason] = field(default_factory=dict)
    """Why the preemptors of open preemptions wait, by job id."""
    _asked_s: dict[int, int] = field(default_factory=dict)
    """Cluster time of the last command for each victim, by job id."""
    _may_miss_entries: bool = False
    """Whether the ledger may have lost preemptions, before the first observation."""
    _unknown_victims_s: int | None = None
    """Cluster time at which victims that this ledger does not know may still have been ending.

    They are those of another bridge in control, or of preemptions that the ledger lost.
    """

    @staticmethod
    def from_settings(
        backend: Backend, settings: Settings, file: StateFile, journal: Journal
    ) -> PreemptionExecutor | None:
        """Return the chooser, or None if the bridge does not choose victims."""
        if settings.mode != "control" or not settings.preemption.choose or not isinstance(backend, SupportsPreemption):
            return None
        keep_s = int(settings.journal.keep_jobs_days * 86_400)
        return PreemptionExecutor(
            backend, PreemptionLedger(file), settings.preemption, settings.start.timeout_s, keep_s,
            _may_miss_entries=not file.whole and journal.last_round > 0,
        )  # fmt: skip

    def set_backend_preemption_options(self) -> None:
        """Pass the open preemptions and the spared jobs to the backend's next observation."""
        stops, most = self.ledger.count_victim_choices_by_job(), self.settings.max_per_job
        spared = frozenset(job_id for job_id, times in stops.items() if times >= most)
        under_way = {job_id: entry.what for job_id, entry in self.ledger.open_by_job_id.items()}
        self.backend.preemption_options = PreemptionOptions(under_way, spared)

    def close_and_select_preemptions(
        self, reading: ClusterReading, role: BridgeRole, entries: Mapping[int, ManagedJobEntry], recorder: CycleRecorder
    ) -> SelectedPreemptions:
        """Close finished preemptions, and select offers. If the ledger cannot be written, select no offers."""
        self._offers = {}
        seen = reading.observation
        if role.other_leader is not None or self._may_miss_entries:
            self._unknown_victims_s, self._may_miss_entries = seen.now_s, False
        new = dict[int, PreemptionOffer]()
        try:
            if role.mode != "control":
                self._drop_all(f"the bridge is in mode {role.mode}", seen.now_s, recorder)
                return SelectedPreemptions()
            self.ledger.prune(seen.now_s - self.keep_s)
            self._close_finished(reading, entries, recorder)
        except sqlite3.Error as error:
            recorder.add_event("preemption_failed", describe_failure(error))
        else:
            new = {each.pending.job.id: each for each in self._select_new_offers(seen, entries)}
            self._offers = new | {
                each.pending.job.id: each
                for each in seen.preemptions
                if each.pending.job.id in self.ledger.open_by_job_id and can_start_after_victims_end(each, seen)
            }
        under_way = self.ledger.open_by_job_id
        left = {each.job_id: each for each in seen.unmanaged}
        self._reasons |= {job_id: left[job_id].reason for job_id in new}
        held = {each.job.id for each in seen.pending if _is_held_preemptor(each, under_way)}
        return SelectedPreemptions(
            {job_id: offer.pending for job_id, offer in new.items()},
            {job_id: self._reasons.get(job_id, WAITS_FOR_VICTIMS) for job_id in sorted(held | new.keys())},
        )

    def _close_finished(
        self, reading: ClusterReading, entries: Mapping[int, ManagedJobEntry], recorder: CycleRecorder
    ) -> None:
        """Close preemptions whose job runs, no longer waits, or has waited too long."""
        seen = reading.observation
        pending = {each.job.id: each for each in seen.pending}
        ran = {each.job.id for each in seen.running} | {each.job.id for each in reading.ended}
        for job_id, entry in self.ledger.open_by_job_id.items():
            if job_id in ran:
                self.ledger.close_entry(entry, "started", seen.now_s)
            elif why := _start_not_permitted_reason(pending.get(job_id), entries.get(job_id)):
                self._drop(entry, why, seen.now_s, recorder)
            elif seen.now_s - entry.since_s > _max_ending_s(seen) + self.start_timeout_s:
                self.ledger.close_entry(entry, "ineffective", seen.now_s)
                text = f"not running {seen.now_s - entry.since_s} s after the decision to preempt other jobs for it"
                recorder.add_event("preemption_ineffective", text, job_id)
                recorder.add_event("preemption_paused", f"the bridge chooses no victims for {PAUSE_S} s")
        self._reasons = {
            job_id: reason for job_id, reason in self._reasons.items() if job_id in self.ledger.open_by_job_id
        }

    def _select_new_offers(self, seen: Observation, entries: Mapping[int, ManagedJobEntry]) -> list[PreemptionOffer]:
        """Return the new offers that the limits permit."""
        left = {each.job_id for each in seen.unmanaged}
        if find_victim_choice_pause_end_s(self.ledger, seen.now_s) is not None:
            return []
        if self._unknown_victims_s is not None and 0 <= seen.now_s - self._unknown_victims_s < _max_ending_s(seen):
            return []
        failed_s = self.ledger.find_last_end_s_by_job("ineffective", "dropped")
        recent, found = self.ledger.count_by_user_since(seen.now_s - HOUR_S), list[PreemptionOffer]()
        under_way = self.ledger.open_by_job_id
        for offer in seen.preemptions:
            job = offer.pending.job
            entry = entries.get(job.id)
            if job.id in under_way or job.id not in left or not offer.victims:
                continue
            if _start_not_permitted_reason(offer.pending, entry) or (entry is not None and entry.unmanaged_reason):
                continue
            if job.id in failed_s and 0 <= seen.now_s - failed_s[job.id] < HOUR_S:
                continue
            limits = self.settings
            full = recent[job.user] >= limits.max_per_user_per_hour or recent.total() >= limits.max_per_hour
            if not full and can_start_after_victims_end(offer, seen):
                found.append(offer)
                recent[job.user] += 1
        return found

    def keep_offers_of_held_jobs(
        self, entries: Mapping[int, ManagedJobEntry], is_backed_off: Callable[[int], bool]
    ) -> None:
        """Keep this cycle's offers only for jobs that are still held after reconciliation and may be tried now."""
        self._offers = {
            job_id: offer
            for job_id, offer in self._offers.items()
            if _is_entry_held(entries.get(job_id)) and not is_backed_off(job_id)
        }

    def stop_victims(self, seen: Observation, now_s: int, recorder: CycleRecorder) -> None:
        """Record the new preemptions at cluster time `now_s`, then stop the victims that still run.

        Raise `sqlite3.Error` if the ledger cannot be written, and the backend's errors.
        """
        under_way, names = self.ledger.open_by_job_id, seen.cluster.node_names
        new = {job_id: offer for job_id, offer in self._offers.items() if job_id not in under_way}
        wanted = [(_make_preemption_under_way(each, names), each.pending.job.user) for each in new.values()]
        self.ledger.record_intended(wanted, now_s)
        for job_id, offer in new.items():
            what = format_count(len(offer.victims), "running job")
            recorder.add_event("preemption", f"stops {what}: {', '.join(str(v.job_id) for v in offer.victims)}", job_id)
        self._asked_s = {id: at_s for id, at_s in self._asked_s.items() if 0 <= now_s - at_s < REPEAT_S}
        for job_id, offer in self._offers.items():
            due = [victim for victim in offer.victims if victim.job_id not in self._asked_s]
            due.sort(key=lambda victim: victim.mode == "cancel")  # requeues first, because a job may not permit them
            if not due:
                continue
            self._asked_s |= dict.fromkeys((victim.job_id for victim in due), now_s)
            outcomes = recorder.send(COMMAND_KIND, [each.job_id for each in due], partial(self.backend.preempt, due))
            refused = [each for each in outcomes if each.is_refusal]
            if refused:
                why = f"job {refused[0].job_id} was not stopped: {refused[0].detail}"
                self._drop(self.ledger.open_by_job_id[job_id], why, seen.now_s, recorder)

    def list_preemptor_starts(self) -> list[tuple[Job, Placement]]:
        """Return the held preemptors whose nodes are free, with their placements."""
        under_way = self.ledger.open_by_job_id
        return [
            (each.pending.job, each.placement)
            for job_id, each in self._offers.items()
            if job_id in under_way and not each.victims
        ]

    def drop_open_preemptions(self) -> None:
        """Close the open preemptions, because the bridge stops."""
        with suppress(sqlite3.Error):  # these preemptions then count as ineffective
            for entry in self.ledger.open_by_job_id.values():
                self.ledger.close_entry(entry, "dropped", entry.since_s)

    def _drop_all(self, why: str, now_s: int, recorder: CycleRecorder) -> None:
        for entry in self.ledger.open_by_job_id.values():
            self._drop(entry, why, now_s, recorder)

    def _drop(self, entry: PreemptionEntry, why: str, now_s: int, recorder: CycleRecorder) -> None:
        self.ledger.close_entry(entry, "dropped", now_s)
        recorder.add_event("preemption_dropped", why, entry.what.job_id)


def _max_ending_s(seen: Observation) -> int:
    """Return how many seconds victims may take to end."""
    return max(VICTIMS_END_S, 2 * seen.kill_wait_s)


def find_victim_choice_pause_end_s(ledger: PreemptionLedger, now_s: int) -> int | None:
    """Return when the pause after an ineffective preemption ends, or None."""
    last_s = max(ledger.find_last_end_s_by_job("ineffective").values(), default=None)
    return last_s + PAUSE_S if last_s is not None and 0 <= now_s - last_s < PAUSE_S else None


def can_start_after_victims_end(offer: PreemptionOffer, seen: Observation) -> bool:
    """Return whether an offer's job can start on its nodes after the victims end."""
    running = {each.job.id: each for each in seen.running}
    victims = list[RunningJob]()
    for victim in offer.victims:
        found = running.get(victim.job_id)
        if found is None or found.start_s != victim.start_s:
            return False
        victims.append(found)
    start = RunningJob(offer.pending.job, seen.now_s, offer.placement)
    return not verify_preemption(start, seen.cluster, offer.free, victims)


def _make_preemption_under_way(offer: PreemptionOffer, names: Sequence[str]) -> PreemptionUnderWay:
    nodes = tuple((names[node], units) for node, units in offer.placement)
    return PreemptionUnderWay(offer.pending.job.id, nodes, offer.victims)


def _is_held_preemptor(pending: PendingJob, under_way: Mapping[int, PreemptionEntry]) -> bool:
    return pending.job.id in under_way and pending.hold is not Hold.NONE


def _is_entry_held(entry: ManagedJobEntry | None) -> bool:
    return entry is not None and entry.state is LedgerState.HELD


def _start_not_permitted_reason(pending: PendingJob | None, entry: ManagedJobEntry | None) -> str:
    """Return why the bridge must not start a job, or "" if it may or is doing so."""
    if pending is None:
        return "the job no longer waits for the bridge"
    if pending.job.ineligible is not None:
        return "the job may not start"
    if entry is None:
        return "" if pending.hold is Hold.PLUGIN else "the job is not managed"
    if pending.hold is Hold.NONE:
        return "" if entry.state in (LedgerState.STARTING, LedgerState.ROLLING_BACK) else "the job is released"
    if pending.hold in (Hold.USER, Hold.CLUSTER):
        return "the job is held by another actor"
    if entry.state in (LedgerState.HELD, LedgerState.STARTING, LedgerState.ROLLING_BACK):
        return ""
    return f"the job is {entry.state.value}"
