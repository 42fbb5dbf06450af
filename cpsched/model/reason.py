"""Why a job waits, as a code and its arguments; people's words for it are made where they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cpsched.errors import require


class PendingCode(StrEnum):
    """Why a pending job does not start now; the arguments of a reason are in parentheses.

    A dispatcher decided on the job:

    - `never` (the rule that it breaks): not even the empty cluster could hold it.
    - `resources`, for whole nodes `whole_nodes` (how many of its units would fit, how many it has): too little is free.
    - It fits, but `reserved`: it would delay a job that goes first; `priority`: others go first; `weight`: others have
      a larger weight; `not_considered`: the search considers only the jobs before it; `next_pass`: the next scheduler
      pass decides.
    - `other` (its text): what a plug-in says.

    The job may not start yet:

    - `dependency`, `begin_time`; `array_limit` (what its elements are called): its array runs as many as it may.
    - `cluster` (name, particulars): the cluster's own reason, such as a limit.
    - `backed_off`, of a job that cannot be handed back `backed_off_here` (the reason, whose starts fail).
    - `held`, for other jobs `held_for_jobs` (the holds): PBS's holds. `held_by` (who).
    - `queue_opened`: its queue is open to PBS's scheduler. `in_transit`: on its way to another queue.
    - `no_gap`, `before_reservation` (what is lacking, the reservations): too little room until these are over.
      `beside_reservation` (its name): too little beside its cores.

    The job is left to the cluster's scheduler:

    - `unmodelled` (in general, in particular): what it asks for is not modelled. `unreadable` (details).
    - `chosen_nodes`: by its owner. `sleeping_nodes`: it fits only there. `magnetic_reservation` (its name).
    """

    NEVER = "never"
    RESOURCES = "resources"
    WHOLE_NODES = "whole_nodes"
    RESERVED = "reserved"
    PRIORITY = "priority"
    WEIGHT = "weight"
    NOT_CONSIDERED = "not_considered"
    NEXT_PASS = "next_pass"
    OTHER = "other"
    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"
    ARRAY_LIMIT = "array_limit"
    CLUSTER = "cluster"
    BACKED_OFF = "backed_off"
    BACKED_OFF_HERE = "backed_off_here"
    HELD = "held"
    HELD_FOR_JOBS = "held_for_jobs"
    HELD_BY = "held_by"
    QUEUE_OPENED = "queue_opened"
    IN_TRANSIT = "in_transit"
    NO_GAP = "no_gap"
    BEFORE_RESERVATION = "before_reservation"
    BESIDE_RESERVATION = "beside_reservation"
    UNMODELLED = "unmodelled"
    UNREADABLE = "unreadable"
    CHOSEN_NODES = "chosen_nodes"
    SLEEPING_NODES = "sleeping_nodes"
    MAGNETIC_RESERVATION = "magnetic_reservation"


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why a pending job does not start now, as a code and its arguments.

    >>> PendingReason(PendingCode.RESOURCES, (0, 2)).arguments
    (0, 2)
    """

    code: PendingCode
    arguments: tuple[int | str, ...] = ()

    def __post_init__(self) -> None:
        require(isinstance(self.code, PendingCode), "reason.code", self.code, "must be a PendingCode")
        kinds = ARGUMENTS.get(self.code, ())
        right = isinstance(self.arguments, tuple) and tuple(map(type, self.arguments)) == kinds
        require(right, "reason.arguments", self.arguments, f"must be {len(kinds)} of {self.code}")


ARGUMENTS: dict[PendingCode, tuple[type, ...]] = {
    **dict.fromkeys((PendingCode.RESOURCES, PendingCode.WHOLE_NODES), (int, int)),
    **dict.fromkeys(
        (
            PendingCode.NEVER, PendingCode.OTHER, PendingCode.ARRAY_LIMIT, PendingCode.HELD, PendingCode.HELD_FOR_JOBS,
            PendingCode.HELD_BY, PendingCode.BESIDE_RESERVATION, PendingCode.UNREADABLE,
            PendingCode.MAGNETIC_RESERVATION,
        ),
        (str,),
    ),
    **dict.fromkeys(
        (
            PendingCode.CLUSTER, PendingCode.BACKED_OFF, PendingCode.BACKED_OFF_HERE, PendingCode.BEFORE_RESERVATION,
            PendingCode.UNMODELLED,
        ),
        (str, str),
    ),
}  # fmt: skip


def reason_from(said: PendingReason | str) -> PendingReason:
    """Return the reason that a plug-in or an earlier version gave: a text is one with the code `other`."""
    return PendingReason(PendingCode.OTHER, (said,)) if isinstance(said, str) else said
