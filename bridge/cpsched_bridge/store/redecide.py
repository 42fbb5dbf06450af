"""Takes a recorded decision again, from the journal alone, and says whether it comes out the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cpsched.catalogue import DISPATCHERS
from cpsched.errors import DecisionFault
from cpsched.listing import ReadFile
from cpsched.model import Job, Placement, Scene
from cpsched.policy import Policy
from cpsched.policy_spec import overrun_of
from cpsched.predictors.base import Predictor
from cpsched_bridge.store.rounds import RoundRecord


class Recorded(Predictor):
    """Predicts what was predicted when the round was recorded."""

    def __init__(self, estimates: Mapping[int, int]) -> None:
        self._estimates = estimates

    def predict(self, job: Job) -> int:
        """The recorded estimate."""
        return self._estimates[job.id]


@dataclass(frozen=True, slots=True)
class DecidedAgain:
    """A decision taken again. `differences` is empty if it is the same in starts, placements and plan."""

    number: int
    starts: Mapping[int, Placement]
    differences: tuple[str, ...]
    skipped: str = ""
    """Why it could not be taken again, if so."""

    @property
    def same(self) -> bool:
        """Whether the decision is the recorded one."""
        return not self.differences and not self.skipped


def decide_again(record: RoundRecord, read: ReadFile | None = None) -> DecidedAgain:
    """Decide the recorded round again; `read` opens the files that settings of the dispatcher name."""
    if record.failure:
        return DecidedAgain(record.number, {}, (), f"the decision failed ({record.failure})")
    if not record.replayable:
        return DecidedAgain(
            record.number, {}, (), f"{record.policy.dispatcher} learns and does not tell what it has learned"
        )
    dispatcher = DISPATCHERS.build(record.policy.dispatcher, record.policy.dispatcher_settings, read)
    policy = Policy(Recorded(record.estimates), dispatcher, overrun_of(record.policy.overrun))
    if record.memory is not None:
        try:
            policy.recall(record.memory)
        except DecisionFault as fault:
            return DecidedAgain(record.number, {}, (), f"what was learned cannot be recalled: {fault}")
    snapshot = policy.estimated(Scene(record.now_s, record.cluster, record.free, record.queue, record.running))
    decision = policy.decide(snapshot)
    starts, plan = decision.starts_by_job(snapshot), decision.plan_by_job(snapshot)
    return DecidedAgain(
        record.number, starts, (*_unlike("start", record.starts, starts), *_unlike("plan", record.plan, plan))
    )


def _unlike(what: str, recorded: Mapping[int, Any], now: Mapping[int, Any]) -> list[str]:
    return [
        f"{what} of job {id}: recorded {recorded.get(id, 'none')}, now {now.get(id, 'none')}"
        for id in sorted({*recorded, *now})
        if recorded.get(id) != now.get(id)
    ]
