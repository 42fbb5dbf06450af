"""Define the reasons why a job is pending, as codes that user interfaces format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cpsched.errors import require


class PendingCode(StrEnum):
    """The reasons why a pending job does not start now, with arguments in parentheses.

    The dispatcher considered the job:

    - `never` (the violated rule): even the empty cluster could not run the job.
    - `resources`, or `whole_nodes` for whole nodes (units that fit, units requested): too few resources are free.
    - `blocks` (units requested): enough nodes are free, but they do not fill blocks as the topology requires.
    - `reserved`, `priority`, `weight`: the job fits, but it would delay a reservation, or other jobs come first or have
      a larger weight.
    - `not_considered`, `next_pass`: the search considers only the jobs before it, or the next scheduler pass decides.
    - `other` (text): a plug-in's reason.

    The job may not start yet:

    - `dependency`, or `depends_on` (names of the jobs): it waits for other jobs.
    - `begin_time`, or `begins_at` (cluster time in seconds): it waits for its begin time.
    - `array_limit` (name of the elements): its array has reached its limit on running elements.
    - `cluster` (name, details): a reason given by the cluster, such as a limit.
    - `backed_off`, or `backed_off_here` if the job cannot be released (the reason, and the group whose starts fail).
    - `held`, or `held_for_jobs` if PBS holds the job for other jobs (the holds). `held_by` (the holder).
    - `queue_opened`: PBS's scheduler may start jobs in its queue. `in_transit`: it is moving to another queue.
    - `no_gap`, `before_reservation` (missing resources, the reservations): it does not fit before these reservations
      end. `beside_reservation` (name): it does not fit next to the reserved cores.

    The bridge does not manage the job:

    - `unmodelled` (summary, details), `unreadable` (details): its request is not modelled, or cannot be read.
    - `chosen_nodes`: its owner requested specific nodes. `magnetic_reservation` (name). `preemption` (the group whose
      jobs it may preempt): it may start by preempting running jobs.
    """

    NEVER = "never"
    RESOURCES = "resources"
    WHOLE_NODES = "whole_nodes"
    BLOCKS = "blocks"
    RESERVED = "reserved"
    PRIORITY = "priority"
    WEIGHT = "weight"
    NOT_CONSIDERED = "not_considered"
    NEXT_PASS = "next_pass"
    OTHER = "other"
    DEPENDENCY = "dependency"
    DEPENDS_ON = "depends_on"
    BEGIN_TIME = "begin_time"
    BEGINS_AT = "begins_at"
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
    MAGNETIC_RESERVATION = "magnetic_reservation"
    PREEMPTION = "preemption"


@dataclass(frozen=True, slots=True)
class PendingReason:
    """The reason why a pending job does not start now, as a code with arguments.

    >>> PendingReason(PendingCode.RESOURCES, (0, 2)).arguments
    (0, 2)
    """

    code: PendingCode
    arguments: tuple[int | str, ...] = ()

    def __post_init__(self) -> None:
        require(isinstance(self.code, PendingCode), "reason.code", self.code, "must be a PendingCode")
        kinds = ARGUMENTS.get(self.code, ())
        right = isinstance(self.arguments, tuple) and tuple(map(type, self.arguments)) == kinds
        require(right, "reason.arguments", self.arguments, f"must match the {len(kinds)} arguments of {self.code}")


ARGUMENTS: dict[PendingCode, tuple[type, ...]] = {
    **dict.fromkeys((PendingCode.BEGINS_AT, PendingCode.BLOCKS), (int,)),
    **dict.fromkeys((PendingCode.RESOURCES, PendingCode.WHOLE_NODES), (int, int)),
    **dict.fromkeys(
        (
            PendingCode.NEVER, PendingCode.OTHER, PendingCode.ARRAY_LIMIT, PendingCode.HELD, PendingCode.HELD_FOR_JOBS,
            PendingCode.HELD_BY, PendingCode.BESIDE_RESERVATION, PendingCode.UNREADABLE,
            PendingCode.MAGNETIC_RESERVATION, PendingCode.PREEMPTION, PendingCode.DEPENDS_ON,
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


def to_pending_reason(reason: PendingReason | str) -> PendingReason:
    """Return `reason` as a `PendingReason`. Text, as from plug-ins, gets code `other`."""
    return PendingReason(PendingCode.OTHER, (reason,)) if isinstance(reason, str) else reason
