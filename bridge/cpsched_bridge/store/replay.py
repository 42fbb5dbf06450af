"""Takes a recorded decision again, from the journal alone, and says whether it comes out the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from cpsched import catalogue
from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Job, Placement, Snapshot
from cpsched.overrun import Overrun
from cpsched.policy import Policy
from cpsched.predictors.base import OneByOne
from cpsched_bridge.store.rounds import PolicyRecord, RoundRecord


@runtime_checkable
class Remembers(Protocol):
    """A dispatcher that learns and can tell what it has learned, as JSON, and take it back."""

    def memory(self) -> Any:
        """What `learn` has taught it."""
        ...

    def recall(self, memory: Any) -> None:
        """Know what `memory` says, and nothing else."""
        ...


def replayable(dispatcher: Dispatcher) -> bool:
    """Whether rounds of this dispatcher can be decided again: it learns nothing, or tells what it has learned."""
    return not dispatcher.learns or isinstance(dispatcher, Remembers)


def memory_of(dispatcher: Dispatcher) -> Any:
    """What the dispatcher has learned and can tell, else None."""
    return dispatcher.memory() if dispatcher.learns and isinstance(dispatcher, Remembers) else None


class Recorded(OneByOne):
    """Predicts what was predicted when the round was recorded."""

    learns = False

    def __init__(self, estimates: Mapping[int, int]) -> None:
        self._estimates = estimates

    def predict(self, job: Job) -> int:
        """The recorded estimate."""
        return self._estimates[job.id]


def policy_of(record: PolicyRecord) -> Policy:
    """The policy that the record names."""
    return Policy(
        catalogue.predictor(record.predictor, record.predictor_settings),
        catalogue.dispatcher(record.dispatcher, record.dispatcher_settings),
        cast(Overrun, record.overrun),
    )


@dataclass(frozen=True, slots=True)
class Replay:
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


def replay(record: RoundRecord) -> Replay:
    """Decide the recorded round again."""
    if record.failure:
        return Replay(record.number, {}, (), f"the decision failed ({record.failure})")
    if not record.replayable:
        return Replay(record.number, {}, (), f"{record.policy.dispatcher} learns and does not tell what it has learned")
    dispatcher = catalogue.dispatcher(record.policy.dispatcher, record.policy.dispatcher_settings)
    if record.memory is not None:
        cast(Remembers, dispatcher).recall(record.memory)
    policy = Policy(Recorded(record.estimates), dispatcher, cast(Overrun, record.policy.overrun))
    snapshot = Snapshot.of(record.now_s, record.cluster, record.free, record.queue, record.running)
    decision = policy.decide(snapshot)
    starts, plan = decision.starts_by_job(snapshot), decision.plan_by_job(snapshot)
    return Replay(
        record.number, starts, (*_unlike("start", record.starts, starts), *_unlike("plan", record.plan, plan))
    )


def _unlike(what: str, recorded: Mapping[int, Any], now: Mapping[int, Any]) -> list[str]:
    return [
        f"{what} of job {id}: recorded {recorded.get(id, 'none')}, now {now.get(id, 'none')}"
        for id in sorted({*recorded, *now})
        if recorded.get(id) != now.get(id)
    ]
