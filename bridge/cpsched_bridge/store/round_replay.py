"""Repeat a recorded decision using only the journal, and compare the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cpsched.errors import PolicyError
from cpsched.model import ClusterState, Job, Placement, Wait
from cpsched.policy import Policy
from cpsched.predictors.base import Predictor
from cpsched.registration import FileReader
from cpsched.registry import DISPATCHERS
from cpsched_bridge.store.round_records import RoundRecord, compute_plan_digest


class RecordedPredictor(Predictor):
    """A predictor that returns the recorded estimates."""

    def __init__(self, estimates: Mapping[int, int]) -> None:
        self._estimates = estimates

    def predict(self, job: Job) -> int:
        """Return the recorded estimate for a job in seconds."""
        return self._estimates[job.id]


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """The result of a repeated decision.

    `differences` is empty if starts, placements and plan are equal.
    """

    number: int
    starts: Mapping[int, Placement]
    plan: Mapping[int, int]
    waits: Mapping[int, Wait]
    differences: tuple[str, ...]
    skipped: str = ""
    """Why the decision could not be repeated, or "" if it was repeated."""

    @property
    def is_same_decision(self) -> bool:
        """Whether the repeated decision equals the recorded decision."""
        return not self.differences and not self.skipped


def replay_round(record: RoundRecord, read: FileReader | None = None) -> ReplayedRound:
    """Repeat a recorded decision and return the result.

    `read` opens files for the dispatcher's settings.
    """
    if record.failure:
        return _make_skipped_round(record, f"the decision failed ({record.failure})")
    if not record.replayable:
        return _make_skipped_round(record, f"{record.policy.dispatcher} learns but does not export its memory")
    dispatcher = DISPATCHERS.build(record.policy.dispatcher, record.policy.dispatcher_settings, read)
    policy = Policy(RecordedPredictor(record.estimates), dispatcher, record.policy.effective_overrun(dispatcher))
    if record.memory is not None:
        try:
            policy.recall(record.memory)
        except PolicyError as fault:
            return _make_skipped_round(record, f"the memory cannot be restored: {fault}")
    snapshot = policy.add_estimates(
        ClusterState(record.now_s, record.cluster, record.free, record.queue, record.running)
    )
    decision = policy.decide(snapshot)
    starts, plan = decision.starts_by_job(snapshot), decision.plan_by_job(snapshot)
    differences = _list_differences("start", record, record.starts, starts)
    if record.explained:
        differences += _list_differences("plan", record, record.plan, plan)
    elif record.plan_digest != compute_plan_digest(decision):
        differences.append("plan: differs from the recorded plan, of which only a digest is stored")
    return ReplayedRound(record.number, starts, plan, decision.waits, tuple(differences))


def _make_skipped_round(record: RoundRecord, why: str) -> ReplayedRound:
    return ReplayedRound(record.number, {}, {}, {}, (), why)


def _list_differences(what: str, record: RoundRecord, recorded: Mapping[int, Any], now: Mapping[int, Any]) -> list[str]:
    return [
        f"{what} of job {record.get_job_name(id)}: recorded {recorded.get(id, 'none')}, now {now.get(id, 'none')}"
        for id in sorted({*recorded, *now})
        if recorded.get(id) != now.get(id)
    ]
